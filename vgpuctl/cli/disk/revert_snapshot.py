# SPDX-License-Identifier: Apache-2.0
"""revert-snapshot: bring the disks of a VM back to a snapshot."""

from typing import Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import confirm, print_json, say


@click.command("revert-snapshot")
@click.argument("name")
@click.argument("snapshot")
@options.tenant
@options.yes
@options.one_host
@options.as_json
def command(name: str, snapshot: str, tenant: str, yes: bool, as_json: bool, **where: Any) -> None:
    """Bring the disks of the stopped VM NAME back to its newest snapshot, which ends with that.

    Everything that the guest wrote since is lost. Take the snapshot again to keep the state.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.disk.revert_snapshot import revert_snapshot
    from vgpuctl.usecases.support.find_vm import find_vm

    with services(**where) as opened:
        vm, _ = find_vm(opened, tenant, name)
        if not yes:
            confirm(f"Drop everything that VM {name} wrote since snapshot {snapshot}?")
        done = revert_snapshot(opened, vm, snapshot)
    if as_json:
        print_json(done)
    else:
        say(f"{done.vm}: snapshot {snapshot} reverted")
