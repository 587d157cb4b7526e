# SPDX-License-Identifier: Apache-2.0
"""resize-disk: make a disk of a VM larger."""

from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say

if TYPE_CHECKING:
    from vgpuctl.usecases.disk.resize_disk import DiskGrowth


class JsonGrowth(TypedDict):
    """A disk that is larger now; changed: false if it was so already."""

    changed: bool
    disk: "DiskGrowth"


_JSON: "JsonOutput[JsonGrowth]" = JsonOutput()


@click.command("resize-disk")
@click.argument("name")
@click.argument("size")
@click.option("--disk", metavar="NAME", help="Data disk of the VM.  [default: its first disk]")
@options.tenant
@options.one_host
@options.as_json
def command(name: str, size: str, disk: str | None, tenant: str, as_json: bool, **where: Any) -> None:
    """Make a disk of a VM larger, running or not. SIZE is its new size, such as 40GiB; a disk never gets smaller.

    A running guest sees the new size at once. Growing its partition and file system is the guest's task.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.units import format_mib, parse_mib
    from vgpuctl.usecases.disk.resize_disk import resize_disk
    from vgpuctl.usecases.found.find_vm import find_vm

    size_mib = parse_mib(size, what="SIZE")
    with services(**where) as opened:
        vm, _ = find_vm(opened, tenant, name)
        done = resize_disk(opened, vm, disk, size_mib)
    if as_json:
        _JSON.print({"changed": done.changed, "disk": done})
        return
    what = "first disk" if done.disk is None else f"disk {done.disk}"
    say(f"{done.vm}: {what} " + (f"has {format_mib(size_mib)} now" if done.changed else "no change"))
