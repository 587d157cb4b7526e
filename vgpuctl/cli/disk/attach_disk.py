# SPDX-License-Identifier: Apache-2.0
"""attach-disk: give a VM a data disk."""

from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say

if TYPE_CHECKING:
    from vgpuctl.usecases.disk.attach_disk import DiskChange


_JSON: "JsonOutput[DiskChange]" = JsonOutput()


@click.command("attach-disk")
@click.argument("name")
@click.argument("disk")
@options.tenant
@options.one_host
@options.as_json
def command(name: str, disk: str, tenant: str, as_json: bool, **where: Any) -> None:
    """Attach a new or kept data disk to a VM, running or not.

    DISK is NAME,size=SIZE[,pool=…][,bus=…][,cache=…][,iops=…][,mbps=…][,keep]; without a size, a disk of `list-disks`.
    A running guest gets it at once, on a spare port or its SCSI controller.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.guests.live.domain import LiveChange
    from vgpuctl.specs.compact import compact
    from vgpuctl.specs.vm_devices import DATA_DISK
    from vgpuctl.usecases.disk.attach_disk import attach_disk
    from vgpuctl.usecases.found.find_vm import find_vm

    wanted = compact(DATA_DISK).parse(disk, what="DISK")
    with services(**where) as opened:
        vm, _ = find_vm(opened, tenant, name)
        done = attach_disk(opened, vm, wanted)
    if as_json:
        _JSON.print(done)
        return
    what = "attached" if done.changed else "no change, it is attached"
    say(f"{done.vm}: disk {done.disk} {what}" + ("" if done.outcome is LiveChange.DONE else ", from the next start on"))
