# SPDX-License-Identifier: Apache-2.0
"""Commands that plan moves of VMs and carry them out with --apply: their options, the questions, the table, the end."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, cast

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.options.numbers import SecondsRange
from vgpuctl.cli.shown.output import confirm, print_table, say
from vgpuctl.errors import PartialFailure, UsageError
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.scheduler.defrag.plan import DefragStep
    from vgpuctl.usecases.maintenance.planned_moves import MadeStep, MoveRules

Command = Callable[..., Any]


@dataclass(frozen=True)
class MoveChoice:
    """The moves that a command may plan and make. tenant: whose VMs move, None for all. max_downtime_s: inf for any."""

    tenant: str | None
    max_downtime_s: float
    applies: bool
    yes: bool
    allows_cold: bool
    until: str | None
    shutdown_timeout_s: float

    def rules(self, why: str, now: float) -> "MoveRules":
        """The rules of the moves. why: their purpose. now: seconds since the epoch. Raises UsageError."""
        from math import inf

        from vgpuctl.model.times import parse_period
        from vgpuctl.usecases.maintenance.planned_moves import MoveRules

        until = inf if self.until is None else parse_period("now", self.until, now=now)[1]
        return MoveRules(why, self.allows_cold, until, self.max_downtime_s, self.shutdown_timeout_s)

    def carry_out(self, steps: "Sequence[DefragStep]", carry_out: "Callable[[], list[MadeStep]]") -> "list[MadeStep]":
        """Carry the moves out after a yes. Raises UsageError where VMs would be stopped that nobody has agreed to."""
        stopped = [one for one in steps if one.downtime_s and one.way == "cold"]
        if self.yes and stopped and not self.allows_cold:
            names = ", ".join(one.name for one in stopped)
            raise UsageError(
                f"{counted(len(stopped), 'VM')} would be stopped for the move: {names}",
                context=[f"{one.name}: {one.reason}" for one in stopped if one.reason],
                hint="add --allow-cold, or leave --yes out to be asked",
            )
        if not steps:
            return []
        if not self.yes:
            for one in steps:
                say(f"{one.name}: moves {one.way} from {one.host} to {one.placement.host}")
            confirm(f"Move {counted(len(steps), 'VM')}?")
        return carry_out()


def move_options(*, downtime: str) -> Callable[[Command], Command]:
    """The options of a `MoveChoice`, which the command gets as `choice`. downtime: of the help of --max-downtime."""

    def decorate(function: Command) -> Command:
        @functools.wraps(function)
        def command(max_downtime_s: float | None, **given: Any) -> Any:
            from math import inf

            chosen = {one.name: given.pop(one.name) for one in fields(MoveChoice) if one.name in given}
            downtime_s = inf if max_downtime_s is None else max_downtime_s
            return function(choice=MoveChoice(max_downtime_s=downtime_s, **chosen), **given)

        made = cast(Command, command)
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
            options.tenant_filter_of("Move only VMs of this tenant."),
            click.option("--max-downtime", "max_downtime_s", type=SecondsRange(0), help=downtime),
        ):
            made = option(made)
        return made

    return decorate


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
