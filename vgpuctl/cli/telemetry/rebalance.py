# SPDX-License-Identifier: Apache-2.0
"""rebalance: moves of VMs for load, planned and made."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.forms.planned_moves import MoveChoice, move_options, print_steps, require_made
from vgpuctl.cli.options import options
from vgpuctl.cli.options.numbers import WholeRange
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_line, say

if TYPE_CHECKING:
    from vgpuctl.scheduler.advice.advice import Advice
    from vgpuctl.usecases.maintenance.planned_moves import MadeStep


class JsonRebalance(TypedDict):
    """changed: true if a VM was moved. advice: what each move gains. moves: each and what became of it, in their order.

    refused: moves that would gain something, and that a host refuses.
    """

    changed: bool
    advice: "Sequence[Advice]"
    moves: "Sequence[MadeStep]"
    refused: "Sequence[MadeStep]"


_JSON: "JsonOutput[JsonRebalance]" = JsonOutput()


@click.command("rebalance")
@click.option(
    "--above",
    "above_percent",
    type=WholeRange(1, 100),
    metavar="PERCENT",
    help="Bring GPUs below this load, whatever their VMs were promised.  [default: replay promised time]",
)
@click.option("--max-moves", type=WholeRange(1, 10_000), help="Most moves.  [default: no limit]")
@click.option(
    "--moves-per-hour",
    type=WholeRange(1, 10_000),
    help="With --above, most moves in an hour, with those of earlier runs.  [default: no limit]",
)
@click.option(
    "--replay", default="6h", show_default=True, metavar="DURATION", help="Minutes before now to replay sharing with."
)
@move_options(downtime="With --above, most seconds that VMs are down, all added up.  [default: no limit]")
@options.history
@options.prometheus
@options.one_host
@options.as_json
def command(
    above_percent: int | None,
    max_moves: int | None,
    moves_per_hour: int | None,
    replay: str,
    choice: MoveChoice,
    as_json: bool,
    **where: Any,
) -> None:
    """Plan moves of VMs away from GPUs that have too little time for them. --apply makes the moves.

    The moves are the recommendations `rebalance` of `vgpuctl advise`, with the largest gain first: at most one to or
    from each GPU, since the gain of each is replayed by itself. The host of each says whether the VM can run on
    meanwhile. --apply makes them one after the other and ends at the first that is not made as planned.

    With --above, moves bring GPUs below that load: from the hottest on, each VM to the calmest GPU of another host that
    stays below it. A load is the mean of 15 minutes, and what it varies is added. Where a host refuses a VM, the next
    best move is planned.
    """
    from math import isfinite

    from vgpuctl.cli.forms.services import services
    from vgpuctl.errors import UsageError
    from vgpuctl.model.times import parse_duration
    from vgpuctl.usecases.telemetry.balance import carry_out_moves, plan_balance
    from vgpuctl.usecases.telemetry.rebalance import plan_rebalance

    limited = {"--moves-per-hour": moves_per_hour is not None, "--max-downtime": isfinite(choice.max_downtime_s)}
    for option, is_given in limited.items():
        if is_given and above_percent is None:
            raise UsageError(f"{option} is for moves with --above", hint="add --above 70, or leave it out")
    replay_s = parse_duration(replay, what="--replay")
    with services(**where) as opened:
        rules = choice.rules("a calmer GPU", opened.store.now())
        if above_percent is None:
            found = plan_rebalance(opened, since_s=replay_s, replay_s=replay_s, most=max_moves, tenant=choice.tenant)
        else:
            found = plan_balance(
                opened,
                above_percent,
                most=max_moves,
                per_hour=moves_per_hour,
                max_downtime_s=choice.max_downtime_s,
                tenant=choice.tenant,
            )
        moves = list(found.steps)
        if choice.applies:
            steps = [one.as_asked for one in found.steps]
            moves = choice.carry_out(steps, lambda: carry_out_moves(opened, steps, rules, per_hour=moves_per_hour))
    if as_json:
        changed = any(one.outcome == "moved" for one in moves)
        _JSON.print({"changed": changed, "advice": found.advice, "moves": moves, "refused": found.refused})
    else:
        for one in found.advice:
            print_line(f"{one.text}: {one.gain.text}")
        if moves:
            print_steps(moves)
        else:
            print_line("no move is worth it")
        for left in found.refused:
            say(f"{left.step.name} stays: {left.reason}")
    require_made(moves, "rebalance")
