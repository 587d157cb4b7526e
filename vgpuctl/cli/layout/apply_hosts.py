# SPDX-License-Identifier: Apache-2.0
"""apply-hosts: bring every host into its declared layout."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.options.numbers import WholeRange
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import confirm, print_line, say

if TYPE_CHECKING:
    from vgpuctl.cli.shown.layout_output import JsonAppliedHost
    from vgpuctl.hosts.fleet import HostResult
    from vgpuctl.usecases.layout.layout_lines import Line
    from vgpuctl.usecases.layout.plan_hosts import PlannedHost


class JsonApplied(TypedDict):
    """A run over hosts. check: nothing was written."""

    check: bool
    hosts: "Sequence[JsonAppliedHost]"


_JSON: "JsonOutput[JsonApplied]" = JsonOutput()


@click.command("apply-hosts")
@options.inventory
@options.limit
@options.forks
@click.option(
    "--serial",
    metavar="N|%",
    help="Size of a batch of hosts: 2, 25% or 1,5,50%. A batch begins after the one before.",
)
@click.option(
    "--max-failures",
    type=WholeRange(0),
    metavar="N",
    help="Stop after more than N failed hosts.  [default: no limit; 0 with --serial]",
)
@click.option("--check", "--dry-run", "check", is_flag=True, help="Show what would be done and write nothing anywhere.")
@click.option("--diff", is_flag=True, help="Show what was read before and after each step.")
@click.option(
    "--disrupt",
    is_flag=True,
    help="Stop VMs that block a change, release their shares, start them again after it; restart Fabric Manager where"
    " no VM has its GPUs.",
)
@click.option("--reset", is_flag=True, help="Reset GPUs to activate a pending MIG mode.")
@click.option("--undo", is_flag=True, help="Roll back the changes on a host where a step fails.")
@click.option("--no-boot", is_flag=True, help="Do not install the unit that restores the layout at boot.")
@options.yes
@options.database
@options.ssh
@options.as_json
def command(
    serial: str | None,
    max_failures: int | None,
    check: bool,
    diff: bool,
    disrupt: bool,
    reset: bool,
    undo: bool,
    no_boot: bool,
    yes: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Bring every host into its declared layout. It is read again as proof.

    Prints a line per step and a recap per host; of several hosts only the recap counts what was as declared. A failed
    step ends the run on its host; the other hosts go on. A failed run names the differences that it leaves. Steps that
    would disturb a VM are skipped without --disrupt, and with it if the VM could not start again. A second run changes
    nothing.

    With --disrupt on several hosts it reads them first, and asks if VMs would be stopped on more than one.
    """
    from vgpuctl.cli.forms.services import report_hosts, services
    from vgpuctl.cli.shown.layout_output import applied_object, event_lines, longest, recap_text
    from vgpuctl.planner.layout.step_words import describe_step
    from vgpuctl.usecases.layout.apply_hosts import apply_hosts
    from vgpuctl.usecases.layout.layout_lines import LineOutcome
    from vgpuctl.usecases.layout.plan_hosts import declared_layouts, plan_hosts
    from vgpuctl.usecases.layout.rollout import parse_serial
    from vgpuctl.usecases.layout.run_options import RunOptions

    sizes = parse_serial(serial)
    run = RunOptions(check=check, disrupt=disrupt, reset=reset, undo=undo, boot=not no_boot)

    def tell(line: "Line") -> None:
        is_told = not as_json and not (line.outcome is LineOutcome.OK and len(layouts) > 1)
        for parts in () if not is_told else event_lines(line, diff=diff):
            print_line(*parts)

    with services(**where) as opened:
        layouts = declared_layouts(opened)
        if disrupt and not check and not yes:
            _ask(plan_hosts(opened, layouts, boot=not no_boot) if len(layouts) > 1 else [])
        done = apply_hosts(opened, layouts, run, serial=sizes, most_failures=max_failures, tell=tell)
    if as_json:
        _JSON.print({"check": check, "hosts": [applied_object(one) for one in done]})
    else:
        for one in done:
            if one.left:
                print_line()
                print_line(f"{one.host}: not as before this run:")
                for thing in one.left:
                    print_line(f"  {thing}")
            if one.error is not None and one.undo:
                print_line()
                print_line(f"{one.host}: these steps roll back what was done:")
                for step in one.undo:
                    print_line(f"  {describe_step(step)}")
        print_line()
        print_line("RECAP" + (" (nothing was changed: --check)" if check else ""))
        width = longest([one.host for one in done])
        for one in done:
            print_line(*recap_text(one, width))
    left = [one.host for one in done if not one.is_begun]
    if left:
        say(f"not begun: {', '.join(left)}")
    failures = [(one.host, one.error) for one in done if one.error is not None]
    fine = len(done) - len(failures) - len(left)
    report_hosts(failures, fine=fine, what="are not in their declared layout", left=left)


def _ask(found: "Sequence[HostResult[PlannedHost]]") -> None:
    """Ask before VMs of several hosts are stopped. Hosts that cannot be read are left to the run."""
    from vgpuctl.cli.shown.layout_output import disturbed_in_words

    by_host = {
        one.name: {each for step in one.value.plan.steps for each in step.disturbs}
        for one in found
        if one.value is not None
    }
    disturbed = [(host, everyone) for host, everyone in by_host.items() if everyone]
    if len(disturbed) > 1:
        for host, everyone in disturbed:
            say(f"{host}: stops {disturbed_in_words(everyone)}")
        confirm(f"Stop {disturbed_in_words({one for _, ones in disturbed for one in ones})} on {len(disturbed)} hosts?")
