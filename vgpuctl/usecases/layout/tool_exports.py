# SPDX-License-Identifier: Apache-2.0
"""Files for tools that hand out the GPUs of hosts in place of vgpuctl, from facts and declared layouts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vgpuctl import catalog
from vgpuctl.errors import NotFound, VgpuctlError
from vgpuctl.inventory.exchange import HandedOut, ToolFile, handed_out
from vgpuctl.local_files import make_folder, write_file
from vgpuctl.usecases.found.known_profiles import refuse_unknown_profiles
from vgpuctl.usecases.observed.survey import survey
from vgpuctl.usecases.running.services import Services

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
    """Write the files of one tool for these hosts, or for all.

    profile: the vGPU type to hand out where a layout names none or several. Raises InventoryError for an unknown host,
    NotFound when no GPU can be handed out by the tool, and UsageError for a type that nobody knows.
    """
    for name in names:
        services.inventory.require(name)
    seen = survey(services, names or services.hosts(), refresh=refresh)
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
    remarks = list(dict.fromkeys(remarks))
    if not files and not seen.failures:
        raise NotFound(
            "no GPU of these hosts can be exported",
            context=remarks,
            hint="docs/exports.md lists what each tool needs; `vgpuctl list-gpus` shows the GPUs",
        )
    texts = [CommentedFile(one.path, one.text(command, remarks)) for one in files]
    return ToolExport(texts, remarks, [one.name for one in seen.capacities], seen.failures)


def save_files(files: Sequence[CommentedFile], folder: Path) -> list[str]:
    """Write the files below a folder. Returns their paths. Raises FileNotWritten."""
    written = []
    for one in files:
        path = folder / one.path
        make_folder(path.parent, "the folder of the export")
        write_file(path, one.text, "the export")
        written.append(str(path))
    return written
