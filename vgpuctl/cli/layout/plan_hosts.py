# SPDX-License-Identifier: Apache-2.0
"""plan-hosts: what would bring every host into its declared layout."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonError, JsonOutput, error_json
from vgpuctl.cli.shown.output import print_line, print_table, say
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.cli.shown.layout_output import JsonWholePlan
    from vgpuctl.planner.layout.result import Phase, PlannedStep
    from vgpuctl.usecases.layout.plan_hosts import PlannedHost


class JsonPlannedHost(TypedDict):
    """A host's plan, or why it did not answer."""

    host: str
    plan: "JsonWholePlan | None"
    error: JsonError | None


_JSON: "JsonOutput[list[JsonPlannedHost]]" = JsonOutput()


@click.command("plan-hosts")
@options.inventory
@options.limit
@options.forks
@click.option("--steps", is_flag=True, help="Show each step of every host, and the steps that roll them back.")
@click.option("--diff", is_flag=True, help="Show the declared and the found value of each difference.")
@click.option("--no-boot", is_flag=True, help="Plan for `apply-hosts --no-boot`.")
@options.database
@options.ssh
@options.as_json
def command(steps: bool, diff: bool, no_boot: bool, as_json: bool, **where: Any) -> None:
    """Show the steps that bring hosts into their declared layout. Also the VMs that they disturb.

    The steps of one host are listed one by one, those of several are counted by host and by kind.

    These are all steps of `apply-hosts`, with the files that it installs. Every host is read now; nothing is written.
    It ends as `apply-hosts --check --disrupt --reset` does: with 0 where a run that may do all reaches the layout.
    """
    from vgpuctl.cli.forms.services import report_hosts, services_of_hosts
    from vgpuctl.cli.shown.layout_output import whole_plan_object

    with services_of_hosts(**where) as opened:
        from vgpuctl.usecases.layout.plan_hosts import declared_layouts, plan_hosts

        found = plan_hosts(opened, declared_layouts(opened), boot=not no_boot)
    if as_json:
        _JSON.print(
            [
                {
                    "host": result.name,
                    "plan": whole_plan_object(result.value) if result.value else None,
                    "error": error_json(result.error),
                }
                for result in found
            ]
        )
    else:
        planned = [result.value for result in found if result.value is not None]
        if steps or diff or len(found) == 1:
            for one in planned:
                _print_plan(one, diff=diff, with_undo=steps)
        else:
            _print_summary(planned, silent=len(found) - len(planned))
    ends = [(one.name, one.error if one.value is None else one.value.dead_end) for one in found]
    failures = [(name, error) for name, error in ends if error is not None]
    report_hosts(failures, fine=len(found) - len(failures), what="cannot come into their declared layout")


_FURTHER = ("start again", "install")
"""Kinds of steps after those of a plan."""


def _further(planned_host: "PlannedHost") -> list[tuple[str, str]]:
    """The steps of a run after those of the plan: their kind, and what they do in words."""
    from vgpuctl.usecases.declared.layout_records import restarts_in_words

    further = (restarts_in_words(planned_host.restarts), [one.summary for one in planned_host.installs])
    return [(kind, text) for kind, texts in zip(_FURTHER, further, strict=True) for text in texts]


def _kind_of(phase: "Phase") -> str:
    return phase.name.lower().replace("_", " ")


def _print_summary(planned: "Sequence[PlannedHost]", *, silent: int) -> None:
    """Hosts that differ with what is to be done there, the same by kind of step, and the sums.

    silent: the number of hosts that could not be read.
    """
    from vgpuctl.planner.layout.result import Phase

    order = [*map(_kind_of, Phase), *_FURTHER]
    differing = [one for one in planned if not one.is_done]
    rows = []
    steps: Counter[str] = Counter()
    hosts: Counter[str] = Counter()
    steps_of: dict[str, list[PlannedStep]] = {}
    for one in differing:
        own = Counter([*(_kind_of(step.phase) for step in one.plan.steps), *(kind for kind, _ in _further(one))])
        steps += own
        hosts.update(own.keys())
        for step in one.plan.steps:
            steps_of.setdefault(_kind_of(step.phase), []).append(step)
        obstacles = Counter(obstacle.code for obstacle in one.plan.obstacles)
        in_the_way = ", ".join(f"{code} ({number})" if number > 1 else code for code, number in obstacles.items())
        rows.append(
            (
                one.host,
                counted(len(one.differences), "difference"),
                own.total(),
                _disturbs(one.plan.steps),
                in_the_way or None,
            )
        )
    if differing:
        print_table(("HOST", "LAYOUT", "STEPS", "DISTURBS", "IN THE WAY"), rows, empty="")
        print_line()
    if steps:
        kinds = sorted(steps, key=order.index)
        by_kind = [(kind, steps[kind], hosts[kind], _disturbs(steps_of.get(kind, ()))) for kind in kinds]
        print_table(("KIND OF STEP", "STEPS", "HOSTS", "DISTURBS"), by_kind, empty="")
        print_line()
    parts = [f"{len(planned) - len(differing)} as declared"]
    parts += [f"{len(differing)} with differences"] if differing else []
    parts += [f"{silent} not read"] if silent else []
    parts += [counted(steps.total(), "step")] if steps else []
    everyone = _disturbs([one for ones in steps_of.values() for one in ones])
    print_line(
        f"{counted(len(planned) + silent, 'host')}: {', '.join(parts)}"
        + (f" that disturb {everyone}" if everyone else "")
    )
    if rows:
        host = max(rows, key=lambda row: row[2])[0]
        say(f"each step of one host: `vgpuctl plan-hosts -l {host}`; of all: `--steps`")


def _disturbs(steps: "Sequence[PlannedStep]") -> str | None:
    """The VMs, vGPUs and links that steps disturb, in words; None without any."""
    from vgpuctl.cli.shown.layout_output import disturbed_in_words

    someone = disturbed_in_words({each for step in steps for each in step.disturbs})
    links = "the NVLinks of every GPU" if any(step.disrupts for step in steps) else None
    return ", ".join(filter(None, (someone, links))) or None


def _print_plan(planned_host: "PlannedHost", *, diff: bool, with_undo: bool) -> None:
    from vgpuctl.cli.shown.layout_output import difference_lines
    from vgpuctl.planner.layout.step_words import describe_step

    host, plan, further = planned_host.host, planned_host.plan, _further(planned_host)
    if planned_host.is_done:
        print_line(f"{host}: {plan.settled_in_words}")
    else:
        differences = counted(len(planned_host.differences), "difference")
        print_line(f"{host}: {differences}, {counted(len(plan.steps) + len(further), 'step')}")
    for difference in plan.differences if diff else ():
        for line in difference_lines(difference):
            print_line(line)
    for number, planned in enumerate(plan.steps, 1):
        print_line(f"  {number:2} {_kind_of(planned.phase)}: {planned.summary}")
        for one in planned.disturbs:
            print_line(f"     disturbs {one}")
        if planned.disrupts:
            print_line(f"     only with --disrupt: {planned.disrupts}")
        for process in planned.processes:
            print_line(f"     waits for {process.command} (pid {process.pid}), which has the GPU open")
    for number, (kind, text) in enumerate(further, len(plan.steps) + 1):
        print_line(f"  {number:2} {kind}: {text}")
    for text in planned_host.later:
        print_line(f"   - then: {text}")
    for obstacle in plan.obstacles:
        where = f" ({obstacle.origin})" if obstacle.origin else ""
        print_line(f"   ! {obstacle.gpu or 'host'}: {obstacle.reason}{where} [{obstacle.code}]")
        if obstacle.remedy:
            print_line(f"     hint: {obstacle.remedy}")
    for difference in plan.differences:
        if difference.remedy and not diff:
            print_line(f"   ~ {difference}; {difference.remedy}")
    for note in plan.notes:
        print_line(f"   ~ {note}")
    if plan.undo and with_undo:
        print_line("  rolled back by:")
        for step in plan.undo:
            print_line(f"     {describe_step(step)}")
    elif plan.undo:
        print_line(f"  rolled back by {counted(len(plan.undo), 'step')} (--steps shows them)")
