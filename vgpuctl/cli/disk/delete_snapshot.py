# SPDX-License-Identifier: Apache-2.0
"""delete-snapshot: delete a snapshot, and keep what the disks hold."""

from typing import Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import confirm, print_json, say


@click.command("delete-snapshot")
@click.argument("name")
@click.argument("snapshot")
@options.tenant
@options.yes
@options.one_host
@options.as_json
def command(name: str, snapshot: str, tenant: str, yes: bool, as_json: bool, **where: Any) -> None:
    """Delete the newest snapshot of the running VM NAME; its disks keep what they hold.

    libvirt writes what changed since into the disks below, which takes a while and does not stop the guest.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.disk.delete_snapshot import delete_snapshot
    from vgpuctl.usecases.support.find_vm import find_vm

    with services(**where) as opened:
        vm, _ = find_vm(opened, tenant, name)
        if not yes:
            confirm(f"Delete snapshot {snapshot} of VM {name}?")
        done = delete_snapshot(opened, vm, snapshot)
    if as_json:
        print_json(done)
    else:
        say(f"{done.vm}: snapshot {snapshot} deleted")
