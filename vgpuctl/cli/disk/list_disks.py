# SPDX-License-Identifier: Apache-2.0
"""list-disks: the data disks of tenants."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_table


@click.command("list-disks")
@options.tenant_filter
@options.database
@options.as_json
def command(tenant: str | None, database: str | None, as_json: bool) -> None:
    """List the data disks of tenants: attached, detaching, free for a VM on their host, or kept of a deleted VM."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.model.times import format_time
    from vgpuctl.model.units import format_mib
    from vgpuctl.usecases.disk.list_disks import list_disks

    with services(database=database) as opened:
        listed = list_disks(opened, tenant)
    if as_json:
        print_json(listed)
        return
    print_table(
        ["TENANT", "DISK", "SIZE", "STATE", "VM", "HOST", "POOL", "KEPT", "UNTIL"],
        [
            (
                one.tenant,
                one.name,
                None if one.size_bytes is None else format_mib(one.size_bytes // 2**20),
                one.state,
                one.vm,
                one.host,
                one.pool,
                "yes" if one.keep else "no",
                None if one.until is None else format_time(one.until),
            )
            for one in listed
        ],
        empty="no data disk yet: attach one with `vgpuctl attach-disk`, or create a VM with --data-disk",
    )
