# SPDX-License-Identifier: Apache-2.0
"""How runs over the fleet are shown: a line per step, a recap per host, and differences."""

from collections.abc import Iterator, Sequence
from typing import Any

from vgpuctl.agent.wire.decode import step_to_json
from vgpuctl.cli.support.output import Styled, plain
from vgpuctl.errors import VgpuctlError
from vgpuctl.planner.layout import Difference, HostPlan
from vgpuctl.usecases.layout.layout_lines import AppliedHost, Line, LineOutcome

_COLOURS = {
    LineOutcome.OK: "green",
    LineOutcome.CHANGED: "yellow",
    LineOutcome.SKIPPED: "cyan",
    LineOutcome.FAILED: "red",
}


def event_lines(line: Line, *, diff: bool) -> Iterator[tuple[str | Styled, ...]]:
    """`changed: [gpu1] 0000:41:00.0: enable 32 VFs`, and below it what was read before and after."""
    text = f": [{line.host}] {line.subject}: {line.text}"
    if line.reason is not None:
        text += f" ({line.reason})" if line.outcome is not LineOutcome.FAILED else f": {line.reason}"
    yield style(str(line.outcome), line.outcome), text
    if line.hint is not None:
        yield (f"    hint: {line.hint}",)
    if diff and line.before != line.after:
        yield (f"    - {line.before if line.before is not None else 'none'}",)
        yield (f"    + {line.after if line.after is not None else 'none'}",)


def recap_text(done: AppliedHost, width: int) -> tuple[str | Styled, ...]:
    """`gpu1 : ok=2 changed=3 skipped=0 failed=0 unreachable=0`."""
    if not done.is_begun:
        return (f"{done.host:{width}} : not begun, because other hosts failed",)
    counts = " ".join(
        f"{outcome}={done.count(outcome) - (done.is_unreachable and outcome is LineOutcome.FAILED):<3}"
        for outcome in LineOutcome
    )
    worst = (
        LineOutcome.FAILED if done.error else LineOutcome.CHANGED if done.count(LineOutcome.CHANGED) else LineOutcome.OK
    )
    return style(f"{done.host:{width}}", worst), f" : {counts} unreachable={int(done.is_unreachable)}"


def difference_lines(difference: Difference) -> list[str]:
    """A difference as people know them: what is there, what is declared."""
    head = f"  {difference.gpu or 'host'}: {difference.subject}"
    remedy = [f"    remedy: {difference.remedy}"] if difference.remedy else []
    return [head, f"    - {difference.found}", f"    + {difference.declared}", *remedy]


def plan_object(plan: HostPlan) -> dict[str, Any]:
    """A plan as --json has it."""
    return {
        "is_in_layout": plan.is_in_layout,
        "differences": plain(plan.differences),
        "steps": [
            {
                "phase": planned.phase.name.lower().replace("_", "-"),
                "gpu": planned.gpu,
                "summary": planned.summary,
                "step": step_to_json(planned.step),
                "undo": [step_to_json(step) for step in planned.undo],
                "disturbs": plain(planned.disturbs),
                "processes": plain(planned.processes),
                "needs_reset": planned.needs_reset,
            }
            for planned in plan.steps
        ],
        "undo": [step_to_json(step) for step in plan.undo],
        "obstacles": plain(plan.obstacles),
        "later": list(plan.later),
        "notes": list(plan.notes),
    }


def error_object(error: VgpuctlError | None) -> dict[str, Any] | None:
    """An error as --json has it."""
    if error is None:
        return None
    return {
        "reference": error.reference,
        "message": error.message,
        "context": list(error.context),
        "hint": error.hint,
    }


def applied_object(done: AppliedHost) -> dict[str, Any]:
    """A host's run as --json has it."""
    return {
        "host": done.host,
        "is_begun": done.is_begun,
        "is_unreachable": done.is_unreachable,
        **{str(outcome): done.count(outcome) for outcome in LineOutcome},
        "lines": [plain(line) for line in done.lines],
        "differences": plain(done.differences),
        "undo": [step_to_json(step) for step in done.undo],
        "writes": done.writes,
        "error": error_object(done.error),
    }


def style(text: str, outcome: LineOutcome) -> Styled:
    """Text in the colour of an outcome."""
    return Styled(text, _COLOURS[outcome])


def longest(names: Sequence[str]) -> int:
    """The width of a column of names."""
    return max((len(name) for name in names), default=0)
