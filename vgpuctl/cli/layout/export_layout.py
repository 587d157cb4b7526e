# SPDX-License-Identifier: Apache-2.0
"""export layout: a host's declared layout as another tool's file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_document, print_line, say


class JsonExportedLayout(TypedDict):
    """content: what the tool's file has. written: paths of files."""

    host: str
    content: object
    left_out: Sequence[str]
    written: Sequence[object]


_JSON: "JsonOutput[JsonExportedLayout]" = JsonOutput()


@click.command("export layout")
@click.argument("host")
@click.option(
    "--for",
    "tool",
    required=True,
    type=click.Choice(["mig-parted", "vgpu-device-manager", "mdevctl"]),
    help="Tool to write the file for.",
)
@click.option(
    "--config", default="vgpuctl", show_default=True, metavar="NAME", help="Name of the configuration in the file."
)
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Output file, for mdevctl a folder.  [default: stdout, for mdevctl as `mdevctl list --dumpjson`]",
)
@click.option("--partial", is_flag=True, help="Leave out entries that the tool cannot express; list them on stderr.")
@options.refresh
@options.one_host
@options.as_json
def command(
    host: str,
    tool: str,
    config: str,
    target: Path | None,
    partial: bool,
    refresh: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Convert a declared layout to another tool's file. The tools are mig-parted, NVIDIA's vGPU device manager and
    mdevctl.

    The host is read only where the file needs it: for indexes of GPUs, and for mdevctl's type ids.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.layout.export_layout import export_layout, save_export
    from vgpuctl.usecases.layout.import_layout import Tool

    with services(**where) as opened:
        found = export_layout(opened, host, Tool(tool), config=config, refresh=refresh, partial=partial)
    for reason in found.left_out:
        say(f"left out: {reason}")
    written = save_export(found, Tool(tool), target) if target is not None else ()
    if as_json:
        _JSON.print({"host": host, "content": found.content, "left_out": found.left_out, "written": written})
    elif target is None:
        print_document(found.text, nl=False)
    else:
        for path in written:
            print_line(path)
