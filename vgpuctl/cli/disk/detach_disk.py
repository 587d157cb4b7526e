# SPDX-License-Identifier: Apache-2.0
"""detach-disk: take a data disk from a VM."""

from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say

if TYPE_CHECKING:
    from vgpuctl.usecases.disk.attach_disk import DiskChange


_JSON: "JsonOutput[DiskChange]" = JsonOutput()


@click.command("detach-disk")
@click.argument("name")
@click.argument("disk")
@options.tenant
@options.shutdown_timeout("Seconds for the running guest to release the disk.", name="timeout", default_s=20.0)
@options.one_host
@options.as_json
def command(name: str, disk: str, tenant: str, timeout_s: float, as_json: bool, **where: Any) -> None:
    """Detach a data disk from a VM; the tenant keeps it. `delete-disk` deletes it.

    A running guest is asked, and releases it later: until then the disk is `detaching`, and nothing else can have it.
    The same command again looks again.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.guests.live.domain import LiveChange
    from vgpuctl.usecases.disk.detach_disk import detach_disk
    from vgpuctl.usecases.found.find_vm import find_vm

    with services(**where) as opened:
        vm, _ = find_vm(opened, tenant, name)
        done = detach_disk(opened, vm, disk, timeout_s=timeout_s)
    if as_json:
        _JSON.print(done)
    elif done.outcome is LiveChange.PENDING:
        say(
            f"{done.vm}: disk {done.disk} is pending: the guest has not released it; unmount it there and run the"
            " command again, or stop the VM"
        )
    else:
        say(f"{done.vm}: disk {done.disk} " + ("detached" if done.changed else "no change, it is detached"))
