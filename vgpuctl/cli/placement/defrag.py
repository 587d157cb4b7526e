# SPDX-License-Identifier: Apache-2.0
"""defrag: a plan of moves that makes room."""

from collections import Counter
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.forms.services import report_failures
from vgpuctl.cli.options import options
from vgpuctl.cli.options.numbers import SecondsRange, WholeRange
from vgpuctl.cli.options.vm_options import read_text_file
from vgpuctl.cli.shown.json_output import JsonFailure, JsonOutput, WithFields, failures_json
from vgpuctl.cli.shown.output import print_line, print_table, say

if TYPE_CHECKING:
    from vgpuctl.usecases.placement.defrag import Defrag


class JsonMore(TypedDict):
    """failures: hosts that gave no answer. optimal: true if it is proven that no plan within the limits is better."""

    failures: list[JsonFailure]
    optimal: bool


_JSON: "JsonOutput[WithFields[Defrag, JsonMore]]" = JsonOutput()


@click.command("defrag")
@click.option(
    "--for",
    "profile",
    metavar="GPU",
    help="The GPUs of a VM to make room for, as --gpu of create-vm.  [default: empty as many GPUs as can be]",
)
@click.option(
    "--count",
    type=WholeRange(1, 10_000),
    help="Number of such VMs that have to fit, or of GPUs that nobody uses.  [default: 1 with --for, else all]",
)
@click.option("--max-moves", type=WholeRange(0, 10_000), help="Most moves of the plan.  [default: no limit]")
@click.option(
    "--max-moves-of-tenant",
    type=WholeRange(0, 10_000),
    help="Most moves of the VMs of any one tenant.  [default: no limit]",
)
@click.option(
    "--max-downtime",
    "max_downtime_s",
    type=SecondsRange(0),
    help="Most seconds that VMs are down, all added up.  [default: no limit]",
)
@options.tenant_filter_of("Move only VMs of this tenant.")
@options.many_hosts
@options.refresh
@options.as_json
def command(
    profile: str | None,
    count: int | None,
    max_moves: int | None,
    max_moves_of_tenant: int | None,
    max_downtime_s: float | None,
    tenant: str | None,
    refresh: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Plan moves of VMs so that others fit, or so that GPUs are unused. Nothing is moved.

    The steps are in an order in which each has its place when its turn comes, and were checked with the rules of
    placing. The last lines say what is proven: that no plan makes more room, or needs fewer moves, or how far this one
    may be from the best. VMs that cannot leave their host, nodes of clusters, and VMs with a reservation stay.
    """
    from math import inf

    from vgpuctl.cli.forms.services import services
    from vgpuctl.scheduler.defrag.search import Limits
    from vgpuctl.specs.vm import read_hypothetical_vm
    from vgpuctl.usecases.placement.defrag import defrag
    from vgpuctl.usecases.vm.move_place import asked_elsewhere, cold_way

    request = None if profile is None else read_hypothetical_vm({"gpus": (profile,)}, read_text_file)
    if request is not None and count is None:
        count = 1
    limits = Limits(*(inf if one is None else one for one in (max_moves, max_moves_of_tenant, max_downtime_s)))
    with services(**where) as opened:
        found = defrag(
            opened,
            request,
            count,
            limits,
            ways=lambda vm: cold_way(opened, vm),
            asked=lambda vm, own: asked_elsewhere(opened, vm, own, None, vm.request),
            tenant=tenant,
            refresh=refresh,
        )
    if as_json:
        more: JsonMore = {"failures": failures_json(found.failures), "optimal": found.plan.is_optimal}
        _JSON.print(WithFields(found, more))
    else:
        _print(found, "unused GPUs" if profile is None else profile, count)
    report_failures(found.failures, answered=1)


def _print(found: "Defrag", what: str, count: int | None) -> None:
    from vgpuctl.model.plural import counted
    from vgpuctl.model.times import format_duration

    plan = found.plan
    down_s = sum(one.downtime_s for one in plan.steps)
    room = f"{what}: {plan.before}" if what == "unused GPUs" else f"room for {what}: {plan.before}"
    if not plan.steps:
        print_line(f"{room} now; no moves are planned")
    else:
        down = f", about {format_duration(down_s)} of downtime in all" if down_s else ""
        print_line(f"{room} now, {plan.after} after {counted(len(plan.steps), 'move')}{down}")
        print_table(
            ["STEP", "VM", "WAY", "FROM", "TO", "DOWNTIME"],
            [
                (
                    number,
                    one.name,
                    one.way,
                    f"{one.host} {' '.join(one.gpus)}",
                    f"{one.placement.host} {' '.join(share.gpu for share in one.placement.shares)}",
                    format_duration(one.downtime_s) if one.downtime_s else "none",
                )
                for number, one in enumerate(plan.steps, 1)
            ],
            empty="",
            drops={"DOWNTIME": 0, "WAY": 1},
        )
    for line in _proofs(found, count):
        print_line(line)
    reasons = Counter(one.reason for one in found.staying)
    for reason, times in reasons.most_common():
        say(f"{counted(times, 'VM')} stay{'s' if times == 1 else ''}: {reason}")


def _proofs(found: "Defrag", count: int | None) -> list[str]:
    """What is proven of the plan, line by line."""
    plan, lines = found.plan, []
    if count is not None and plan.after >= count:
        lines.append("as much room as was asked for")
    elif plan.after >= plan.most:
        lines.append("proven: no plan within the limits makes more room")
    else:
        lines.append(f"whether there could be more room is open: {plan.most} at most")
    if plan.steps and len(plan.steps) <= plan.fewest_moves:
        lines.append("proven: no plan makes as much room with fewer moves")
    elif plan.steps:
        percent = 100 * (len(plan.steps) - plan.fewest_moves) / len(plan.steps)
        lines.append(f"proven: at least {plan.fewest_moves} moves are needed for it; the gap is {percent:.0f} %")
    return lines
