# SPDX-License-Identifier: Apache-2.0
"""list-queue, set-queue, leave-queue: the queue of VMs that wait."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.forms.stored_kind import StoredKind
from vgpuctl.cli.lists.listing import Column, ColumnUnit, Listing, ListOutput
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say
from vgpuctl.model.queue import QueuePolicy
from vgpuctl.model.times import format_duration

if TYPE_CHECKING:
    from vgpuctl.model.queue import QueueEntry
    from vgpuctl.usecases.found.deletion import Deletion
    from vgpuctl.usecases.placement.queue import Waiting


class JsonQueue(TypedDict):
    """ageing_s: seconds of waiting that raise the priority by one."""

    policy: QueuePolicy
    ageing_s: float
    queue: "Sequence[Waiting]"


@dataclass(frozen=True)
class _QueueRow:
    """An entry. waits_s: seconds that it has waited."""

    waiting: "Waiting"
    waits_s: float


def _gpus(row: _QueueRow) -> str | None:
    wanted = (gpu.text for vm in row.waiting.entry.requests for gpu in vm.gpus)
    return ", ".join(dict.fromkeys(wanted)) or None


def _expected(row: _QueueRow) -> float | str:
    return "not known" if row.waiting.expected_at is None else row.waiting.expected_at


_QUEUE: "JsonOutput[JsonQueue]" = JsonOutput(("list-",))
_LISTING: "Listing[_QueueRow, Waiting]" = Listing(
    columns=(
        Column("POSITION", lambda one: one.waiting.position),
        Column("TENANT", lambda one: one.waiting.entry.request.tenant),
        Column("VM", lambda one: one.waiting.entry.vm_names),
        Column("GPU", _gpus),
        Column("PRIORITY", lambda one: one.waiting.entry.priority, drops=3),
        Column("FOR", lambda one: one.waiting.entry.duration_s, unit=ColumnUnit.SECONDS, drops=4),
        Column("WAITS", lambda one: one.waits_s, unit=ColumnUnit.SECONDS, is_age=True, drops=2),
        Column(
            "EXPECTED START (UTC)", _expected, key=lambda one: one.waiting.expected_at, unit=ColumnUnit.UTC, drops=1
        ),
        Column("NODE POOL", lambda one: one.waiting.node_pool, is_rare=True, drops=5),
        Column("CLUSTER", lambda one: one.waiting.cluster, is_rare=True, drops=6),
        Column("REASON", lambda one: one.waiting.entry.why, is_text=True),
    ),
    name=lambda one: f"{one.waiting.entry.request.tenant}/{one.waiting.entry.request.name}",
    in_order=True,
    json=lambda one: one.waiting,
    empty="nobody waits",
)


@click.command("list-queue")
@options.tenant_filter
@options.inventory
@options.database
@_LISTING.options
def list_queue(tenant: str | None, inventories: tuple[str, ...], database: str | None, output: ListOutput) -> None:
    """List the VMs in the queue with the reason and the expected start. The first of the queue stands first.

    The expected start follows from the declared ends (--for) of running VMs and of earlier entries, and from the
    seats of licences that come back; it is unknown where too few VMs have an end, and over quota. With an inventory,
    labels and maintenance count too. No host is contacted.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.placement.queue import list_queue

    policy, ageing_s = QueuePolicy.FIFO, 0.0
    with services(inventories=inventories, database=database) as opened:

        def read() -> Sequence[_QueueRow]:
            nonlocal policy, ageing_s
            settings, queue = list_queue(opened, has_inventory=bool(inventories), tenant=tenant)
            policy, ageing_s = settings.policy, settings.ageing_s
            now = opened.store.now()
            return [_QueueRow(one, now - one.entry.queued_at) for one in queue]

        _LISTING.show(output, read, lambda rows: _QUEUE.print({"policy": policy, "ageing_s": ageing_s, "queue": rows}))
    if not output.form.is_for_programs():
        say(f"policy {policy}, ageing {format_duration(ageing_s)}")


class JsonQueueSettings(TypedDict):
    """The order of the queue. ageing_s: seconds after which nobody overtakes an entry."""

    changed: bool
    policy: "QueuePolicy"
    ageing_s: float


_ORDER: "JsonOutput[JsonQueueSettings]" = JsonOutput(("set-",))


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
def set_queue(policy: str, ageing: str, database: str | None, as_json: bool) -> None:
    """Set the order of the queue.

    fifo: first come, first served. priority: highest first. shortest-first: shortest declared time (--for) first.
    fair-share: the tenant with the smallest dominant share of the fleet first. Entries move up as they age.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.queue import QueuePolicy, QueueSettings
    from vgpuctl.model.times import parse_duration
    from vgpuctl.usecases.placement.queue import set_queue

    settings = QueueSettings(QueuePolicy(policy), parse_duration(ageing, what="--ageing"))
    with services(database=database) as opened:
        changed = set_queue(opened, settings)
    if as_json:
        _ORDER.print({"changed": changed, "policy": settings.policy, "ageing_s": settings.ageing_s})
    else:
        say(f"queue: {settings.policy if changed else 'no change'}")


@StoredKind[Any]("queued VM", "list-queue", tenant=options.tenant).deletes(
    verb="Remove", whose=" of tenant {tenant} from the queue, with the gangs", outcome="out of the queue"
)
def leave_queue() -> "Deletion[QueueEntry]":
    """Remove VMs from the queue with the other VMs of their gangs. A preempted VM stays stopped."""
    from vgpuctl.usecases.placement.queue import DELETION

    return DELETION
