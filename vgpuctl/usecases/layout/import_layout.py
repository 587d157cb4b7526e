# SPDX-License-Identifier: Apache-2.0
"""import-layout: another tool's file as a declared layout. Nothing is written, and a host is read only where named."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgpuctl import catalog
from vgpuctl.errors import UsageError
from vgpuctl.inventory.exchange import Left, import_mdevctl, import_mig_parted, import_vgpu_device_manager
from vgpuctl.inventory.exchange.kubernetes import read_tool_file
from vgpuctl.inventory.layout_text import layout_variable, layout_yaml
from vgpuctl.model.layout import HostLayout
from vgpuctl.planner.layout.plan import plan_host
from vgpuctl.sharing.kinds import existing_vgpus
from vgpuctl.sharing.matching import entries_for
from vgpuctl.usecases.observed.observations import readings_in_words
from vgpuctl.usecases.observed.survey import survey
from vgpuctl.usecases.running.services import Services

if TYPE_CHECKING:
    from vgpuctl.agent.wire.facts import Gpu, HostFacts


class Tool(StrEnum):
    """Tools whose files are read and written."""

    MIG_PARTED = "mig-parted"
    VGPU_DEVICE_MANAGER = "vgpu-device-manager"
    MDEVCTL = "mdevctl"


@dataclass(frozen=True)
class ImportedLayout:
    """A layout, what stands under `vgpu:` for it, a file of host_vars with it, and what was left out.

    remarks: what the named host does not have, and what it would refuse.
    """

    layout: HostLayout
    variable: dict[str, Any]
    text: str
    left_out: Sequence[str]
    remarks: Sequence[str] = ()


def import_layout(
    services: Services, tool: Tool, path: Path, *, config: str | None, host: str | None, refresh: bool, partial: bool
) -> ImportedLayout:
    """Read a file. config: which of its configurations, None where it has one only or none at all.

    host: whose GPUs it is for; needed where the file counts GPUs, and for mdevctl. Raises InventoryError with file and
    line, and UsageError when the file says what a layout cannot and not `partial`.
    """
    left = Left(partial=partial)
    facts = None if host is None else known_facts(services, host, refresh=refresh)
    if tool is Tool.MDEVCTL:
        if facts is None:
            raise UsageError(
                "definitions of mdevctl name types by ids that mean something only on their host",
                hint="give --host HOST, the host that they are for",
            )
        if config is not None:
            raise UsageError("--config means nothing to mdevctl, which has no configurations")
        layout = import_mdevctl(path, facts, left)
    else:
        document = read_tool_file(path)
        for warning in document.warnings:
            services.say(f"warning: {warning}")
        read = import_mig_parted if tool is Tool.MIG_PARTED else import_vgpu_device_manager
        layout = read(document, config, facts.gpus if facts is not None else None)
    left.settle("a declared layout")
    remarks = () if facts is None or host is None else list_remarks(layout, facts, host)
    return ImportedLayout(layout, layout_variable(layout), layout_yaml(layout), left.reasons, remarks)


_GPUS = "{GPUS}"


def list_remarks(layout: HostLayout, facts: "HostFacts", host: str) -> list[str]:
    """Sentences about entries that the host has no GPU for, and about those that it would refuse with no VM on it.

    A reason that several GPUs share is one sentence with all of them.
    """
    used = {
        gpu.address for gpu in facts.gpus if existing_vgpus(gpu) or gpu.holders or any(vf.holders for vf in gpu.vfs)
    }
    refused = [
        one
        for one in plan_host(layout, facts).obstacles
        if one.gpu is not None and not (one.follows_from_use and one.gpu in used)
    ]
    gpus_of: dict[str, list[str]] = {}
    for one in refused:
        gpus_of.setdefault(one.reason.replace(str(one.gpu), _GPUS), []).append(str(one.gpu))
    reasons = [reason.replace(_GPUS, ", ".join(dict.fromkeys(gpus))) for reason, gpus in gpus_of.items()]
    return [*list_missing(layout, facts.gpus, host), *(f"{host} would refuse it: {reason}" for reason in reasons)]


def list_missing(layout: HostLayout, gpus: "Sequence[Gpu]", host: str) -> list[str]:
    """Sentences about entries that no GPU of the host fits, and about vGPU types that the fitting ones never offer."""
    remarks = []
    for entry in layout.gpus:
        fitting = [gpu for gpu in gpus if entry in entries_for(gpu, layout.gpus)]
        if not fitting:
            remarks.append(f"{host} has no GPU for the entry of {entry.match}")
        boards = {catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id) for gpu in fitting}
        known = {one.name for board in boards if board is not None for one in catalog.types_of(board)}
        known |= {catalog.short_name(one.name) for gpu in fitting for one in gpu.types}
        foreign = [name for name, _ in getattr(entry.layout, "shares", ()) if name not in known]
        if fitting and foreign:
            names = ", ".join(sorted({gpu.name or gpu.address for gpu in fitting}))
            remarks.append(
                f"no GPU of {host} for the entry of {entry.match} offers {', '.join(foreign)}: it has {names}"
            )
    return remarks


def known_facts(services: Services, host: str, *, refresh: bool) -> "HostFacts":
    """The facts of one host, from the cache unless refresh; the user is told their age.

    Raises the host's error when it does not answer.
    """
    services.inventory.target(host)
    seen = survey(services, [host], refresh=refresh)
    if seen.failures:
        raise seen.failures[0][1]
    with services.store.reading() as session:
        services.say(f"the GPUs of {host} as it last answered: {readings_in_words(session, [host])[host]}")
    return seen.capacities[0].facts
