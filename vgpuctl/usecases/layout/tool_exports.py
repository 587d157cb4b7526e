# SPDX-License-Identifier: Apache-2.0
"""Files for tools that hand out the GPUs of hosts in place of vgpuctl, from facts and declared layouts."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vgpuctl import catalog
from vgpuctl.errors import NotFound, VgpuctlError
from vgpuctl.inventory.exchange import HandedOut, ToolFile, handed_out
from vgpuctl.local_files import make_folder, write_file
from vgpuctl.model.plural import counted
from vgpuctl.model.times import format_time
from vgpuctl.usecases.found.known_profiles import refuse_unknown_profiles
from vgpuctl.usecases.observed.capacities import with_silence
from vgpuctl.usecases.observed.observations import observed_hosts
from vgpuctl.usecases.observed.survey import Survey, survey
from vgpuctl.usecases.running.services import Services

_OF_GPU = re.compile(r"GPU (?P<gpu>\S+) of (?P<host>\S+): (?P<text>.*)", re.DOTALL)

Write = Callable[[Sequence[HandedOut], list[str]], list[ToolFile]]


@dataclass(frozen=True)
class CommentedFile:
    """One file with its comments. path: below the folder of the export."""

    path: str
    text: str


@dataclass(frozen=True)
class ToolExport:
    """The files, what the tool cannot be told, the hosts that they are for, and those that did not answer."""

    files: Sequence[CommentedFile]
    remarks: Sequence[str]
    hosts: Sequence[str]
    failures: Sequence[tuple[str, VgpuctlError]]


def export_for(
    services: Services, command: str, write: Write, names: Sequence[str], *, profile: str | None, refresh: bool
) -> ToolExport:
    """Write the files of one tool for these hosts, or for all. names: of hosts, or patterns as of --limit.

    profile: the vGPU type to hand out where a layout names none or several. Raises InventoryError for an unknown host,
    NotFound when no GPU can be handed out by the tool, and UsageError for a type that nobody knows.
    """
    chosen = services.inventory.select(",".join(names), option="HOST") if names else services.hosts()
    seen = survey(services, chosen, refresh=refresh)
    if profile is not None:
        profile = catalog.profile_name(profile).name
        with services.store.reading() as session:
            refuse_unknown_profiles(session, [profile], what="--profile")
    remarks: list[str] = []
    devices: list[HandedOut] = []
    for one in seen.capacities:
        layout = services.inventory.layout(one.name)
        devices += handed_out(one.name, one.facts, layout.gpus if layout is not None else (), profile, remarks)
    files = write(devices, remarks)
    remarks = [*_of_now(services, seen, devices), *_grouped(remarks)]
    if not files and not seen.failures:
        raise NotFound(
            "no GPU of these hosts can be exported",
            context=remarks,
            hint="docs/exports.md lists what each tool needs; `vgpuctl list-gpus` shows the GPUs",
        )
    texts = [CommentedFile(one.path, one.text(command, remarks)) for one in files]
    return ToolExport(texts, remarks, [one.name for one in seen.capacities], seen.failures)


def _of_now(services: Services, seen: Survey, devices: Sequence[HandedOut]) -> list[str]:
    """Remarks on hosts that give no answer, with the time of their facts, and on devices that VMs of vgpuctl hold."""
    with services.store.reading() as session:
        observed = observed_hosts(session)
        leases = session.leases()
    remarks = []
    for one in with_silence(seen.capacities, observed, seen.read):
        read_at = None if one.name not in observed else observed[one.name].agent.at
        if one.silence is not None and read_at is not None:
            remarks.append(f"{one.name}: {one.silence}; what is written is of {format_time(read_at)} UTC")
    for device in devices:
        held: dict[str, list[str]] = {}
        for lease in leases:
            if (lease.host, lease.share.gpu) == (device.host, device.gpu.address):
                held.setdefault(lease.share.function, []).append(f"{lease.tenant}/{lease.vm_name}")
        if held:
            named = "; ".join(f"{function} ({', '.join(vms)})" for function, vms in sorted(held.items()))
            remarks.append(f"{device.title}: VMs of vgpuctl hold {named}: the tool must not hand these out")
    return remarks


def _grouped(remarks: Sequence[str]) -> list[str]:
    """The remarks in their order, each once; those that several GPUs have are one line with their number and hosts."""
    places: dict[str, list[tuple[str, str]]] = {}
    for one in dict.fromkeys(remarks):
        found = _OF_GPU.fullmatch(one)
        of_gpus = places.setdefault(one if found is None else found["text"], [])
        if found is not None:
            of_gpus.append((found["gpu"], found["host"]))
    return [_of_gpus(text, of_gpus) for text, of_gpus in places.items()]


def _of_gpus(text: str, gpus: Sequence[tuple[str, str]]) -> str:
    """A remark on these GPUs, each with its host; on none it stands by itself."""
    if len(gpus) > 1:
        return f"{counted(len(gpus), 'GPU')} of {', '.join(dict.fromkeys(host for _gpu, host in gpus))}: {text}"
    return "".join(f"GPU {gpu} of {host}: " for gpu, host in gpus) + text


def save_files(files: Sequence[CommentedFile], folder: Path) -> list[str]:
    """Write the files below a folder. Returns their paths. Raises FileNotWritten."""
    written = []
    for one in files:
        path = folder / one.path
        make_folder(path.parent, "the folder of the export")
        write_file(path, one.text, "the export")
        written.append(str(path))
    return written
