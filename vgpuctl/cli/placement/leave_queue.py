# SPDX-License-Identifier: Apache-2.0
"""leave-queue: a VM no longer waits."""

from typing import TYPE_CHECKING, TypedDict

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.json_output import JsonOutput
from vgpuctl.cli.support.output import confirm, say

if TYPE_CHECKING:
    from vgpuctl.model.queue import QueueEntry


class JsonLeft(TypedDict):
    """left: the entry as it was."""

    left: "QueueEntry"


_JSON: "JsonOutput[JsonLeft]" = JsonOutput()


@click.command("leave-queue")
@click.argument("name")
@options.tenant
@options.yes
@options.database
@options.as_json
def command(name: str, tenant: str, yes: bool, database: str | None, as_json: bool) -> None:
    """Remove a VM from the queue with the other VMs of its gang; a preempted VM stays stopped."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.placement.leave_queue import leave_queue

    if not yes:
        confirm(f"Remove VM {name} of tenant {tenant} from the queue, with its gang?")
    with services(database=database) as opened:
        entry = leave_queue(opened, tenant, name)
    if as_json:
        _JSON.print({"left": entry})
    else:
        say(f"{entry.name}: no longer waits")
