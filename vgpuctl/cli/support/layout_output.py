# SPDX-License-Identifier: Apache-2.0
"""How runs over the fleet are shown: a line per step, a recap per host, differences, and live progress."""

import os
import sys
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from vgpuctl.agent.wire.decode import step_to_json
from vgpuctl.cli.support.output import Styled, plain, print_line
from vgpuctl.errors import VgpuctlError
from vgpuctl.model.printable import printable
from vgpuctl.planner.layout import Difference, HostPlan
from vgpuctl.usecases.layout.apply_hosts import Event
from vgpuctl.usecases.layout.layout_lines import AppliedHost, HostBegun, Line, LineOutcome

if TYPE_CHECKING:
    from rich.progress import Progress

_COLOURS = {
    LineOutcome.OK: "green",
    LineOutcome.CHANGED: "yellow",
    LineOutcome.SKIPPED: "cyan",
    LineOutcome.FAILED: "red",
}


class RunDisplay:
    """Prints what happens as it happens; on a terminal a bar below tells how far the fleet is.

    hosts: how many there are. quiet: print no lines (--json).
    """

    def __init__(self, *, hosts: int, quiet: bool, diff: bool) -> None:
        self._quiet = quiet
        self._diff = diff
        self._hosts = hosts
        self._running: list[str] = []
        self._progress: Progress | None = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and self._hosts > 1:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            console = Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR")))
            names = TextColumn("{task.description}", markup=False)
            columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), names)
            self._progress = Progress(*columns, console=console, transient=True)
            self._task = self._progress.add_task("", total=self._hosts)
            self._progress.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def take(self, event: Event) -> None:
        """Show one event."""
        if isinstance(event, Line):
            if not self._quiet:
                for parts in event_lines(event, diff=self._diff):
                    self.print(*parts)
            return
        if isinstance(event, HostBegun):
            self._running.append(event.host)
        elif event.host in self._running:
            self._running.remove(event.host)
            if self._progress is not None:
                self._progress.advance(self._task)
        self._show_running()

    def advance(self, name: str) -> None:
        """One host is done, for runs without lines."""
        if self._progress is not None:
            self._progress.update(self._task, advance=1, description=printable(name))

    def print(self, *parts: str | Styled) -> None:
        """Print a line above the bar."""
        if self._progress is None or not sys.stdout.isatty():
            print_line(*parts)
        else:
            from rich.text import Text

            styled = (Styled(one, "") if isinstance(one, str) else one for one in parts)
            shown = Text.assemble(*((printable(one.text), one.colour) for one in styled))
            self._progress.console.print(shown, soft_wrap=True)

    def _show_running(self) -> None:
        if self._progress is not None:
            more = " …" if len(self._running) > 4 else ""
            self._progress.update(self._task, description=printable(", ".join(self._running[:4])) + more)


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
