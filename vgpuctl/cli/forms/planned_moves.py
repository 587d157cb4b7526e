# SPDX-License-Identifier: Apache-2.0
"""Commands that plan moves of VMs and carry them out with --apply: their options, the questions, the table, the end."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.output import confirm, print_table, say
from vgpuctl.errors import PartialFailure, UsageError
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.scheduler.defrag.plan import DefragStep
    from vgpuctl.usecases.maintenance.planned_moves import MadeStep, MoveRules

Command = Callable[..., Any]


def move_options(function: Command) -> Command:
    """`applies`, `yes`, `allows_cold`, `until` and `shutdown_timeout_s`."""
    for option in (
        options.shutdown_timeout("Seconds for the guest of a cold move to shut down before it is forced off."),
        click.option(
            "--until",
            metavar="TIME",
            help="With --apply, begin no move after this time, 2026-11-01T14:00, or so long from now on: 2h."
            "  [default: no limit]",
        ),
        click.option(
            "--allow-cold",
            "allows_cold",
            is_flag=True,
            help="With --apply, stop VMs that cannot move while they run, also where nobody is asked.",
        ),
        options.yes,
        click.option("--apply", "applies", is_flag=True, help="Make the moves of the plan, one after the other."),
    ):
        function = option(function)
    return function


def read_until(text: str | None, now: float) -> float:
    """The time after which no move begins, in seconds since the epoch. Raises UsageError."""
    from math import inf

    from vgpuctl.model.times import parse_period

    return inf if text is None else parse_period("now", text, now=now)[1]


def carry_out_asked(
    steps: "Sequence[DefragStep]", rules: "MoveRules", carry_out: "Callable[[], list[MadeStep]]", *, yes: bool
) -> "list[MadeStep]":
    """Carry the moves out after a yes. Raises UsageError where VMs would be stopped that nobody has agreed to."""
    stopped = [one for one in steps if one.downtime_s and one.way == "cold"]
    if yes and stopped and not rules.allows_cold:
        raise UsageError(
            f"{counted(len(stopped), 'VM')} would be stopped for the move: {', '.join(one.name for one in stopped)}",
            context=[f"{one.name}: {one.reason}" for one in stopped if one.reason],
            hint="add --allow-cold, or leave --yes out to be asked",
        )
    if not steps:
        return []
    if not yes:
        for one in steps:
            say(f"{one.name}: moves {one.way} from {one.host} to {one.placement.host}")
        confirm(f"Move {counted(len(steps), 'VM')}?")
    return carry_out()


def print_steps(steps: "Sequence[MadeStep]") -> None:
    """Print the table of steps."""
    print_table(
        ["STEP", "VM", "WAY", "FROM", "TO", "DOWNTIME", "OUTCOME"],
        [
            (
                number,
                one.step.name,
                one.way,
                f"{one.step.host} {' '.join(one.step.gpus)}",
                f"{one.step.placement.host} {' '.join(share.gpu for share in one.step.placement.shares)}",
                _downtime(one.downtime_s),
                one.outcome,
            )
            for number, one in enumerate(steps, 1)
        ],
        empty="",
        drops={"DOWNTIME": 0, "WAY": 1},
    )


def _downtime(downtime_s: float | None) -> str:
    from vgpuctl.model.times import format_duration

    if not downtime_s:
        return "not known" if downtime_s is None else "none"
    return f"{downtime_s:.1f}s" if downtime_s < 60 else format_duration(downtime_s)


def require_made(steps: "Sequence[MadeStep]", command: str) -> None:
    """Raise PartialFailure unless every step was made, or is to be."""
    left = [one for one in steps if one.outcome in ("failed", "left")]
    if left:
        moved = sum(one.outcome == "moved" for one in steps)
        raise PartialFailure(
            f"{moved} of {counted(len(steps), 'move')} made",
            context=[f"{one.step.name}: {one.outcome}: {one.reason}" for one in left],
            hint=f"settle what is said; `vgpuctl {command}` then plans anew from what is there",
        )
