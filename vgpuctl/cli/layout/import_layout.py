# SPDX-License-Identifier: Apache-2.0
"""import-layout: another tool's file becomes a declared layout."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_document, say
from vgpuctl.errors import UsageError

_FILE = click.Path(path_type=Path)


class JsonImportedLayout(TypedDict):
    """vgpu: the layout. remarks: what the host does not have, and what it would refuse."""

    vgpu: Mapping[str, object]
    left_out: Sequence[str]
    remarks: Sequence[str]


_JSON: "JsonOutput[JsonImportedLayout]" = JsonOutput()


@click.command("import-layout")
@click.option("--from-mig-parted", "mig_parted", type=_FILE, metavar="FILE", help="Configuration file of mig-parted.")
@click.option(
    "--from-vgpu-device-manager",
    "vgpu_device_manager",
    type=_FILE,
    metavar="FILE",
    help="Configuration file of NVIDIA's vGPU device manager.",
)
@click.option(
    "--from-mdevctl",
    "mdevctl",
    type=_FILE,
    metavar="PATH",
    help="Folder like /etc/mdevctl.d, or the output of `mdevctl list -d --dumpjson`.",
)
@click.option("--config", metavar="NAME", help="Configuration to import.  [default: the only one of the file]")
@click.option("--host", metavar="NAME", help="Host to import for; needed where the file counts GPUs or has type ids.")
@click.option("--partial", is_flag=True, help="Leave out entries that a layout cannot express; list them on stderr.")
@options.refresh
@options.one_host
@options.as_json
def command(
    mig_parted: Path | None,
    vgpu_device_manager: Path | None,
    mdevctl: Path | None,
    config: str | None,
    host: str | None,
    partial: bool,
    refresh: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Convert another tool's file to a declared layout. The tools are mig-parted, NVIDIA's vGPU device manager and
    mdevctl.

    The output is a file for host_vars or group_vars. Nothing is written; a host is read only where it is named.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.layout.import_layout import Tool, import_layout

    given = [
        (tool, path)
        for tool, path in (
            (Tool.MIG_PARTED, mig_parted),
            (Tool.VGPU_DEVICE_MANAGER, vgpu_device_manager),
            (Tool.MDEVCTL, mdevctl),
        )
        if path is not None
    ]
    if len(given) != 1:
        raise UsageError(
            f"{len(given)} files were given",
            hint="give one of --from-mig-parted, --from-vgpu-device-manager, --from-mdevctl",
        )
    tool, path = given[0]
    with services(**where) as opened:
        found = import_layout(opened, tool, path, config=config, host=host, refresh=refresh, partial=partial)
    for reason in found.left_out:
        say(f"left out: {reason}")
    for remark in found.remarks:
        say(f"remark: {remark}")
    if as_json:
        _JSON.print({"vgpu": found.variable, "left_out": found.left_out, "remarks": found.remarks})
    else:
        print_document(found.text, nl=False)
