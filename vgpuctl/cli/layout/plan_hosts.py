# SPDX-License-Identifier: Apache-2.0
"""plan-hosts: what would bring every host into its declared layout."""

from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonError, JsonOutput, error_json
from vgpuctl.cli.shown.output import print_line
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.cli.shown.layout_output import JsonWholePlan
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
@click.option("--diff", is_flag=True, help="Show the declared and the found value of each difference.")
@click.option("--no-boot", is_flag=True, help="Plan for `apply-hosts --no-boot`.")
@options.database
@options.ssh
@options.as_json
def command(diff: bool, no_boot: bool, as_json: bool, **where: Any) -> None:
    """Show the steps that bring hosts into their declared layout. Also the VMs that they disturb, and the steps that
    undo them.

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
        for result in found:
            if result.value is not None:
                _print_plan(result.value, diff=diff)
            elif result.error is not None:
                print_line(result.error.line_of(result.name))
    ends = [(one.name, one.error if one.value is None else one.value.dead_end) for one in found]
    failures = [(name, error) for name, error in ends if error is not None]
    report_hosts(failures, fine=len(found) - len(failures), what="cannot come into their declared layout")


def _print_plan(planned_host: "PlannedHost", *, diff: bool) -> None:
    from vgpuctl.cli.shown.layout_output import difference_lines
    from vgpuctl.planner.layout.step_words import describe_step
    from vgpuctl.usecases.declared.layout_records import restarts_in_words

    host, plan = planned_host.host, planned_host.plan
    further = [("start again", text) for text in restarts_in_words(planned_host.restarts)]
    further += [("install", one.summary) for one in planned_host.installs]
    if planned_host.is_done:
        print_line(f"{host}: as declared")
    else:
        differences = counted(len(plan.differences) + len(planned_host.installs), "difference")
        print_line(f"{host}: {differences}, {counted(len(plan.steps) + len(further), 'step')}")
    for difference in plan.differences if diff else ():
        for line in difference_lines(difference):
            print_line(line)
    for number, planned in enumerate(plan.steps, 1):
        phase = planned.phase.name.lower().replace("_", " ")
        print_line(f"  {number:2} {phase}: {planned.summary}")
        for one in planned.disturbs:
            print_line(f"     disturbs {one}")
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
    if plan.undo:
        print_line("  rolled back by:")
        for step in plan.undo:
            print_line(f"     {describe_step(step)}")
