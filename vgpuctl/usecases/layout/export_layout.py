# SPDX-License-Identifier: Apache-2.0
"""export layout: a host's declared layout as another tool's file. The host is read only where the file needs it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgpuctl.errors import InventoryError, UsageError
from vgpuctl.inventory.exchange import (
    Left,
    config_text,
    definition_paths,
    dumped,
    export_mdevctl,
    export_mig_parted,
    export_vgpu_device_manager,
    needs_gpus,
)
from vgpuctl.local_files import make_folder, write_file
from vgpuctl.usecases.layout.import_layout import Tool, known_facts
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class ExportedLayout:
    """The content as JSON knows it, as the tool's text, and what was left out. files: those of mdevctl, by path."""

    content: Any
    text: str
    left_out: Sequence[str]
    files: Sequence[tuple[str, dict[str, Any]]] = ()


def export_layout(
    services: Services, host: str, tool: Tool, *, config: str, refresh: bool, partial: bool
) -> ExportedLayout:
    """Write a host's layout for another tool. config: what the configuration is called in the file.

    Raises InventoryError when the host has no layout, UsageError when the tool cannot carry it and not `partial`.
    """
    layout = services.inventory.layout(host)
    if layout is None:
        raise InventoryError(
            f"host {host!r} has no declared layout", hint="declare its variable `vgpu`: docs/layout.md"
        )
    left = Left(partial=partial)
    if tool is Tool.MDEVCTL:
        definitions = export_mdevctl(layout, known_facts(services, host, refresh=refresh), left)
        left.settle("mdevctl")
        content = dumped(definitions)
        return ExportedLayout(content, _json(content), left.reasons, definition_paths(definitions))
    facts = known_facts(services, host, refresh=refresh) if needs_gpus(layout) else None
    write = export_mig_parted if tool is Tool.MIG_PARTED else export_vgpu_device_manager
    written = write(layout, config, facts.gpus if facts is not None else None, left)
    left.settle(str(tool))
    return ExportedLayout(written, config_text(written), left.reasons)


def save_export(exported: ExportedLayout, tool: Tool, output: Path) -> Sequence[str]:
    """Write the tool's file, or for mdevctl a file for each definition below the folder. Returns the paths.

    A definition that is there and says the same stays as it is; one that says otherwise is refused, for it may be
    somebody else's. Raises UsageError and FileNotWritten.
    """
    wanted = (
        [(output / path, _json(one)) for path, one in exported.files]
        if tool is Tool.MDEVCTL
        else [(output, exported.text)]
    )
    try:
        for path, text in wanted if tool is Tool.MDEVCTL else ():
            if path.exists() and path.read_text() != text:
                raise UsageError(f"{path} is there and says otherwise", hint="choose another folder")
    except OSError as exc:
        raise UsageError(f"{output} cannot be read: {exc.strerror}") from exc
    for path, text in wanted:
        make_folder(path.parent, "the folder of the exported layout")
        write_file(path, text, "the exported layout")
    return [str(path) for path, _ in wanted]


def _json(content: Any) -> str:
    return json.dumps(content, indent=2) + "\n"
