# SPDX-License-Identifier: Apache-2.0
"""How runs over the fleet are shown: a line per step, a recap per host, and differences."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypedDict

from vgpuctl.agent.wire.decode import step_to_json
from vgpuctl.cli.shown.json_output import JsonError, JsonStep, error_json
from vgpuctl.cli.shown.output import Styled
from vgpuctl.model.plural import counted
from vgpuctl.planner.layout.result import Difference, HostPlan
from vgpuctl.usecases.layout.layout_lines import AppliedHost, Line, LineOutcome

if TYPE_CHECKING:
    from vgpuctl.agent.wire.facts import Holder
    from vgpuctl.planner.layout.result import Disturbed, LayoutObstacle
    from vgpuctl.usecases.declared.installs import PlannedInstall
    from vgpuctl.usecases.layout.layout_lines import LeftBehind
    from vgpuctl.usecases.layout.plan_hosts import PlannedHost

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


def disturbed_in_words(disturbed: "Iterable[Disturbed]") -> str | None:
    """`2 VMs, 1 vGPU of no VM that vgpuctl knows`; None when there is nobody."""
    vms = {(one.tenant, one.vm) for one in disturbed if one.vm is not None}
    others = {one.device for one in disturbed if one.vm is None}
    parts = [counted(len(vms), "VM")] if vms else []
    parts += [f"{counted(len(others), 'vGPU')} of no VM that vgpuctl knows"] if others else []
    return ", ".join(parts) or None


class JsonPlannedStep(TypedDict):
    """A step of a plan, what it does in words, whom it disturbs, and the steps that undo it.

    disrupts: what it disturbs for the whole host, in words; such a step needs --disrupt although no VM is in its way.
    """

    phase: str
    gpu: str | None
    summary: str
    step: JsonStep
    undo: list[JsonStep]
    disturbs: "Sequence[Disturbed]"
    processes: "Sequence[Holder]"
    needs_reset: bool
    disrupts: str


class JsonPlan(TypedDict):
    """The way of a host to its layout. later: what can be planned only after these steps.

    is_in_layout: null where nothing differs and a declared setting could not be read; notes: which ones.
    """

    is_in_layout: bool | None
    differences: Sequence[Difference]
    steps: list[JsonPlannedStep]
    undo: list[JsonStep]
    obstacles: "Sequence[LayoutObstacle]"
    later: Sequence[str]
    notes: Sequence[str]


class JsonWholePlan(JsonPlan):
    """Everything that apply-hosts does on a host; is_in_layout: also, nothing is to be done.

    installs: files that are written after the steps. restarts: services and VMs that an interrupted run stopped and
    that are started again.
    """

    installs: "Sequence[PlannedInstall]"
    restarts: Sequence[str]


class JsonAppliedHost(TypedDict):
    """The run on a host. ok, changed, skipped, failed: numbers of lines. undo: steps that roll back what was done.

    left: what a run that failed left otherwise than it was; null where the host could not be read afterwards.
    """

    host: str
    is_begun: bool
    is_unreachable: bool
    ok: int
    changed: int
    skipped: int
    failed: int
    lines: Sequence[Line]
    differences: Sequence[Difference]
    undo: list[JsonStep]
    left: "Sequence[LeftBehind] | None"
    writes: int
    error: JsonError | None


def whole_plan_object(planned: "PlannedHost") -> JsonWholePlan:
    """The plan of everything that a run does, as --json has it."""
    from vgpuctl.usecases.declared.layout_records import restarts_in_words

    return {
        **plan_object(planned.plan),
        "is_in_layout": planned.plan.unless_unread(planned.is_done),
        "later": planned.later,
        "installs": planned.installs,
        "restarts": restarts_in_words(planned.restarts),
    }


def plan_object(plan: HostPlan) -> JsonPlan:
    """A plan as --json has it."""
    return {
        "is_in_layout": plan.unless_unread(plan.is_in_layout),
        "differences": plan.differences,
        "steps": [
            {
                "phase": planned.phase.name.lower().replace("_", "-"),
                "gpu": planned.gpu,
                "summary": planned.summary,
                "step": step_to_json(planned.step),
                "undo": [step_to_json(step) for step in planned.undo],
                "disturbs": planned.disturbs,
                "processes": planned.processes,
                "needs_reset": planned.needs_reset,
                "disrupts": planned.disrupts,
            }
            for planned in plan.steps
        ],
        "undo": [step_to_json(step) for step in plan.undo],
        "obstacles": plan.obstacles,
        "later": plan.later,
        "notes": plan.notes,
    }


def applied_object(done: AppliedHost) -> JsonAppliedHost:
    """A host's run as --json has it."""
    return {
        "host": done.host,
        "is_begun": done.is_begun,
        "is_unreachable": done.is_unreachable,
        "ok": done.count(LineOutcome.OK),
        "changed": done.count(LineOutcome.CHANGED),
        "skipped": done.count(LineOutcome.SKIPPED),
        "failed": done.count(LineOutcome.FAILED),
        "lines": done.lines,
        "differences": done.differences,
        "undo": [step_to_json(step) for step in done.undo],
        "left": done.left,
        "writes": done.writes,
        "error": error_json(done.error),
    }


def style(text: str, outcome: LineOutcome) -> Styled:
    """Text in the colour of an outcome."""
    return Styled(text, _COLOURS[outcome])


def longest(names: Sequence[str]) -> int:
    """The width of a column of names."""
    return max((len(name) for name in names), default=0)
