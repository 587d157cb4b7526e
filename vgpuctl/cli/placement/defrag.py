# SPDX-License-Identifier: Apache-2.0
"""defrag: moves that make room, planned and made."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.forms.planned_moves import MoveChoice, move_options, print_steps, require_made
from vgpuctl.cli.forms.services import report_failures
from vgpuctl.cli.options import options
from vgpuctl.cli.options.numbers import WholeRange
from vgpuctl.cli.options.vm_options import read_text_file
from vgpuctl.cli.shown.json_output import JsonFailure, JsonOutput, WithFields, failures_json
from vgpuctl.cli.shown.output import print_line, say
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.usecases.maintenance.planned_moves import MadeStep
    from vgpuctl.usecases.placement.defrag import Defrag


class JsonMore(TypedDict):
    """changed: true if a VM was moved. failures: hosts that gave no answer. moves: each step and what became of it.

    optimal: true if it is proven that no plan within the limits is better.
    """

    changed: bool
    failures: list[JsonFailure]
    moves: "Sequence[MadeStep]"
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
@move_options(downtime="Most seconds that VMs are down, all added up.  [default: no limit]")
@options.many_hosts
@options.refresh
@options.as_json
def command(
    profile: str | None,
    count: int | None,
    max_moves: int | None,
    max_moves_of_tenant: int | None,
    choice: MoveChoice,
    refresh: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Plan moves of VMs so that others fit, or so that GPUs are unused. --apply makes the moves.

    The steps are in an order in which each has its place when its turn comes, and were checked with the rules of
    placing. The last lines say what is proven: that no plan makes more room, or needs fewer moves, or how far this one
    may be from the best. VMs that cannot leave their host, nodes of clusters, and VMs with a reservation stay.

    The host of each step says whether the VM can run on meanwhile. --apply makes the steps one after the other and ends
    at the first that is not made as planned; the same command then plans anew from what is there.
    """
    from math import inf

    from vgpuctl.cli.forms.services import services
    from vgpuctl.scheduler.defrag.search import Limits
    from vgpuctl.specs.vm import read_hypothetical_vm
    from vgpuctl.usecases.maintenance.planned_moves import carry_out, plan_room

    request = None if profile is None else read_hypothetical_vm({"gpus": (profile,)}, read_text_file)
    if request is not None and count is None:
        count = 1
    most, most_of_tenant = (inf if one is None else one for one in (max_moves, max_moves_of_tenant))
    limits = Limits(most, most_of_tenant, choice.max_downtime_s)
    with services(**where) as opened:
        why = "unused GPUs" if profile is None else f"room for {profile}"
        rules = choice.rules(why, opened.store.now())
        planned = plan_room(opened, request, count, limits, tenant=choice.tenant, refresh=refresh)
        found, steps = planned.found, planned.found.plan.steps
        moves = [*planned.steps, *planned.refused]
        if choice.applies and not planned.refused:
            moves = choice.carry_out(steps, lambda: carry_out(opened, "defrag", steps, rules))
    if as_json:
        more: JsonMore = {
            "changed": any(one.outcome == "moved" for one in moves),
            "failures": failures_json(found.failures),
            "moves": moves,
            "optimal": found.plan.is_optimal,
        }
        _JSON.print(WithFields(found, more))
    else:
        _print(found, moves, rules.why, count)
    require_made(moves, "defrag")
    report_failures(found.failures, answered=1)


def _print(found: "Defrag", moves: "Sequence[MadeStep]", room: str, count: int | None) -> None:
    from vgpuctl.model.times import format_duration

    plan = found.plan
    down_s = sum(one.downtime_s for one in plan.steps)
    if not moves:
        print_line(f"{room}: {plan.before} now; no moves are planned")
    else:
        down = f", about {format_duration(down_s)} of downtime in all" if down_s >= 60 else ""
        print_line(f"{room}: {plan.before} now, {plan.after} after {counted(len(moves), 'move')}{down}")
        print_steps(moves)
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
