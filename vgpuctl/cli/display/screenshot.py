# SPDX-License-Identifier: Apache-2.0
"""screenshot: a picture of a running VM's screen."""

from pathlib import Path
from typing import Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.options.numbers import WholeRange
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say


class JsonPicture(TypedDict):
    """A picture (PNG). width, height: in pixels. bytes: size of the file."""

    vm: str
    file: str
    width: int
    height: int
    bytes: int


_JSON: "JsonOutput[JsonPicture]" = JsonOutput()


@click.command("screenshot")
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@options.tenant
@click.option("--screen", type=WholeRange(0, 15), default=0, show_default=True, help="Head of the adapter.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
@options.one_host
@options.as_json
def command(name: str, file: Path | None, tenant: str, screen: int, force: bool, as_json: bool, **where: Any) -> None:
    """Take a picture of a VM's screen as PNG. [default of FILE: NAME.png]

    The file is for its owner alone, and none is overwritten without --force. An event tells who took it.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.errors import UsageError
    from vgpuctl.local_files import replace_file, write_new
    from vgpuctl.usecases.display.screenshot import screenshot
    from vgpuctl.usecases.found.find_vm import find_vm

    path = file or Path(f"{name}.png")
    there = UsageError(f"{path} is there already", hint="give another FILE, or --force to overwrite it")
    if path.exists() and not force:
        raise there
    with services(**where) as opened:
        vm, _leases = find_vm(opened, tenant, name)
        taken = screenshot(opened, vm, screen=screen)
    if force:
        replace_file(path, taken.png, "the picture")
    elif not write_new(path, taken.png, "the picture"):
        raise there
    if as_json:
        size = len(taken.png)
        _JSON.print({"vm": name, "file": str(path), "width": taken.width, "height": taken.height, "bytes": size})
    else:
        say(f"{path}: {taken.width}x{taken.height}, {len(taken.png)} bytes")
