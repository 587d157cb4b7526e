# SPDX-License-Identifier: Apache-2.0
"""leave-queue: a VM no longer waits."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, say


@click.command("leave-queue")
@click.argument("name")
@options.tenant
@options.database
@options.as_json
def command(name: str, tenant: str, database: str | None, as_json: bool) -> None:
    """Remove a VM from the queue with the other VMs of its gang; a preempted VM stays stopped."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.placement.leave_queue import leave_queue

    with services(database=database) as opened:
        entry = leave_queue(opened, tenant, name)
    if as_json:
        print_json({"left": entry})
    else:
        say(f"{entry.name}: no longer waits")
