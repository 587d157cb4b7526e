# SPDX-License-Identifier: Apache-2.0
"""Options and output of the commands that write files for tools in place of vgpuctl."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

from vgpuctl.cli.forms.services import report_failures
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_document, print_line, say

if TYPE_CHECKING:
    from vgpuctl.usecases.layout.tool_exports import CommentedFile, ToolExport

Command = TypeVar("Command", bound=Callable[..., Any])


def export_options(function: Command) -> Command:
    """Add HOST…, --profile, --to and --refresh."""
    for option in (
        click.option(
            "--to",
            "folder",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="FOLDER",
            help="Write files below this folder.  [default: stdout]",
        ),
        click.option(
            "--profile", metavar="TYPE", help="vGPU type to hand out, such as A40-8Q.  [default: those of the layout]"
        ),
    ):
        function = option(function)
    return click.argument("hosts", nargs=-1, metavar="[HOST]...")(options.refresh(function))


class JsonToolExport(TypedDict):
    """Files for another tool, and what it cannot be told. written: paths of files."""

    hosts: "Sequence[str]"
    files: "Sequence[CommentedFile]"
    remarks: "Sequence[str]"
    written: "Sequence[str]"


def show_export(found: "ToolExport", folder: Path | None, output: "JsonOutput[JsonToolExport] | None") -> None:
    """Print or write the files; remarks go to stderr. output: None unless JSON is wanted.

    Raises the failures of hosts that did not answer.
    """
    from vgpuctl.usecases.layout.tool_exports import save_files

    for remark in found.remarks:
        say(f"limit: {remark}")
    written = save_files(found.files, folder) if folder is not None else []
    if output is not None:
        output.print({"hosts": found.hosts, "files": found.files, "remarks": found.remarks, "written": written})
    elif folder is None:
        print_document("\n".join(f"# ---- {one.path}\n{one.text}" for one in found.files), nl=False)
    else:
        for path in written:
            print_line(path)
    report_failures(found.failures, answered=len(found.hosts))
