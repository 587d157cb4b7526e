# SPDX-License-Identifier: Apache-2.0
"""set-queue: who comes first."""

from typing import TYPE_CHECKING, TypedDict

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.json_output import JsonOutput
from vgpuctl.cli.support.output import say

if TYPE_CHECKING:
    from vgpuctl.model.queue import QueuePolicy


class JsonQueueSettings(TypedDict):
    """The order of the queue. ageing_s: seconds after which nobody overtakes an entry."""

    changed: bool
    policy: "QueuePolicy"
    ageing_s: float


_JSON: "JsonOutput[JsonQueueSettings]" = JsonOutput()


@click.command("set-queue")
@click.argument("policy", type=click.Choice(["fifo", "priority", "shortest-first", "fair-share"]))
@click.option(
    "--ageing",
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="Waiting time after which no other entry overtakes.",
)
@options.database
@options.as_json
def command(policy: str, ageing: str, database: str | None, as_json: bool) -> None:
    """Set the order of the queue.

    fifo: first come, first served. priority: highest first. shortest-first: shortest declared time (--for) first.
    fair-share: the tenant with the smallest dominant share of the fleet first. Entries move up as they age.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.model.queue import QueuePolicy, QueueSettings
    from vgpuctl.model.times import parse_duration
    from vgpuctl.usecases.placement.set_queue import set_queue

    settings = QueueSettings(QueuePolicy(policy), parse_duration(ageing, what="--ageing"))
    with services(database=database) as opened:
        changed = set_queue(opened, settings)
    if as_json:
        _JSON.print({"changed": changed, "policy": settings.policy, "ageing_s": settings.ageing_s})
    else:
        say(f"queue: {settings.policy if changed else 'no change'}")
