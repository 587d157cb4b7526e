# SPDX-License-Identifier: Apache-2.0
"""import-layout: another tool's file as a declared layout. Nothing is written, and a host is read only where named."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgpuctl.errors import UsageError
from vgpuctl.inventory.exchange import Left, import_mdevctl, import_mig_parted, import_vgpu_device_manager
from vgpuctl.inventory.layout_text import layout_variable, layout_yaml
from vgpuctl.inventory.yaml_document import read_document
from vgpuctl.model.layout import HostLayout
from vgpuctl.usecases.services import Services
from vgpuctl.usecases.survey import survey

if TYPE_CHECKING:
    from vgpuctl.agent.wire.facts import HostFacts


class Tool(StrEnum):
    """Whose files are read and written."""

    MIG_PARTED = "mig-parted"
    VGPU_DEVICE_MANAGER = "vgpu-device-manager"
    MDEVCTL = "mdevctl"


@dataclass(frozen=True)
class ImportedLayout:
    """A layout, what stands under `vgpu:` for it, a file of host_vars with it, and what was left out."""

    layout: HostLayout
    variable: dict[str, Any]
    text: str
    left_out: Sequence[str]


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
        document = read_document(str(path))
        for warning in document.warnings:
            services.say(f"warning: {warning}")
        read = import_mig_parted if tool is Tool.MIG_PARTED else import_vgpu_device_manager
        layout = read(document, config, facts.gpus if facts is not None else None)
    left.settle("a declared layout")
    return ImportedLayout(layout, layout_variable(layout), layout_yaml(layout), left.reasons)


def known_facts(services: Services, host: str, *, refresh: bool) -> "HostFacts":
    """The facts of one host, from the cache unless refresh. Raises the host's error when it does not answer."""
    services.inventory.target(host)
    seen = survey(services, [host], refresh=refresh)
    if seen.failures:
        raise seen.failures[0][1]
    return seen.capacities[0].facts
