# SPDX-License-Identifier: Apache-2.0
"""list-snapshots: the snapshots of a VM's disks."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_table


@click.command("list-snapshots")
@click.argument("name")
@options.tenant
@options.database
@options.as_json
def command(name: str, tenant: str, database: str | None, as_json: bool) -> None:
    """List the snapshots of the disks of the VM NAME, oldest first. The first disk is shown as `-`."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.disk.list_snapshots import list_snapshots
    from vgpuctl.usecases.support.find_vm import find_vm

    with services(database=database) as opened:
        vm, _ = find_vm(opened, tenant, name)
        listed = list_snapshots(opened, vm)
    if as_json:
        print_json(listed)
        return
    print_table(
        ["SNAPSHOT", "DISKS", "STATE"],
        [(one.name, ", ".join(one.disks), "whole" if one.is_whole else "cut short") for one in listed],
        empty=f"VM {name} has no snapshot: take one with `vgpuctl create-snapshot`",
    )
