# SPDX-License-Identifier: Apache-2.0
"""check-hosts: drift, health, and the state after a reboot."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonError, JsonOutput, error_json
from vgpuctl.cli.shown.output import Styled, print_line
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.cli.host.prepare_output import JsonPreparedHost
    from vgpuctl.cli.shown.layout_output import JsonPlan
    from vgpuctl.hosts.fleet import HostResult
    from vgpuctl.planner.doctor import Finding
    from vgpuctl.planner.layout.result import Difference
    from vgpuctl.usecases.declared.installs import PlannedInstall
    from vgpuctl.usecases.host.check_hosts import CheckedHost

_MOST_LISTED = 10
"""Hosts of which nothing is to be told that have a line each."""

_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


class JsonCheckedHost(TypedDict):
    """A host against its layout. installs: files of the layout that differ.

    has_drifted: null where no difference was found and a declared setting could not be read (`notes` of the plan).
    since_reboot: with --after-reboot. error: why it did not answer.
    """

    host: str
    has_drifted: bool | None
    is_healthy: bool | None
    plan: "JsonPlan | None"
    installs: "Sequence[PlannedInstall] | None"
    since_reboot: "Sequence[Difference] | None"
    findings: "Sequence[Finding] | None"
    error: JsonError | None


_JSON: "JsonOutput[Sequence[JsonCheckedHost] | Sequence[JsonPreparedHost]]" = JsonOutput()


@click.command("check-hosts")
@options.inventory
@options.limit
@options.forks
@click.option("--diff", is_flag=True, help="Show the declared and the found value of each difference.")
@click.option("--after-reboot", is_flag=True, help="Compare with the snapshot taken before the reboot.")
@click.option("--snapshot", is_flag=True, help="Take the snapshot for --after-reboot now; apply-hosts takes one too.")
@click.option("--no-boot", is_flag=True, help="Check for `apply-hosts --no-boot`.")
@click.option(
    "--prepare", is_flag=True, help="List missing prerequisites of hosts; needs neither Python nor root on them."
)
@click.option("--script", is_flag=True, help="With --prepare: print the commands that fix them as a shell script.")
@options.database
@options.ssh
@options.as_json
def command(
    diff: bool,
    after_reboot: bool,
    snapshot: bool,
    no_boot: bool,
    prepare: bool,
    script: bool,
    as_json: bool,
    **where: Any,
) -> int:
    """Check hosts for drift from their layout and known failures. docs/doctor.md has all checks.

    More than ten hosts that are as declared and healthy are counted.

    Exit code 1 means that a host is not as declared, or that a check found an error; nothing is written on hosts.
    """
    if script and not prepare:
        raise click.UsageError("--script needs --prepare.")
    if prepare:
        if diff or after_reboot or snapshot or no_boot or (script and as_json):
            raise click.UsageError("--prepare goes with --script or --json, and with no other kind of check.")
        from vgpuctl.cli.host.prepare_output import prepare_and_print

        return prepare_and_print(script=script, as_json=as_json, **where)
    from vgpuctl.cli.forms.services import report_hosts, services_of_hosts

    with services_of_hosts(**where) as opened:
        from vgpuctl.usecases.host.check_hosts import check_hosts

        found = check_hosts(opened, after_reboot=after_reboot, take_snapshot=snapshot, boot=not no_boot)
    checked = [result.value for result in found if result.value is not None]
    if as_json:
        _JSON.print([_object(result) for result in found])
    else:
        _print_hosts(found, diff=diff)
    failures = [(result.name, result.error) for result in found if result.error is not None]
    report_hosts(failures, fine=len(checked), what="did not answer")
    return int(any(one.has_drifted or not one.is_healthy for one in checked))


def _object(result: "HostResult[CheckedHost]") -> JsonCheckedHost:
    from vgpuctl.cli.shown.layout_output import plan_object

    checked = result.value
    return {
        "host": result.name,
        "has_drifted": _has_drifted(checked) if checked else None,
        "is_healthy": checked.is_healthy if checked else None,
        "plan": {**plan_object(checked.plan), "is_in_layout": checked.plan.unless_unread(checked.is_in_layout)}
        if checked and checked.plan
        else None,
        "installs": checked.installs if checked else None,
        "since_reboot": checked.since_reboot if checked else None,
        "findings": checked.findings if checked else None,
        "error": error_json(result.error),
    }


def _has_drifted(checked: "CheckedHost") -> bool | None:
    is_settled = not checked.has_drifted
    known = is_settled if checked.plan is None else checked.plan.unless_unread(is_settled)
    return None if known is None else not known


def _print_hosts(found: "Sequence[HostResult[CheckedHost]]", *, diff: bool) -> None:
    """Each host; those of which nothing is to be told are counted where they are many."""
    checked = [one.value for one in found if one.value is not None]
    settled = [one for one in checked if _is_settled(one)]
    fine = {one.host: _state(one) for one in settled}
    if len(fine) <= _MOST_LISTED:
        fine = {}
    for result in found:
        if result.error is not None:
            print_line(result.error.line_of(result.name))
        elif result.value is not None and result.name not in fine:
            _print_host(result.value, diff=diff)
    for state, number in Counter(fine.values()).items():
        print_line(f"{counted(number, 'host')}: {state}, healthy")


def _is_settled(checked: "CheckedHost") -> bool:
    has_notes = checked.plan is not None and bool(checked.plan.notes)
    return checked.is_in_layout and not checked.findings and checked.since_reboot is None and not has_notes


def _state(checked: "CheckedHost") -> str:
    plan = checked.plan
    if plan is None:
        return "no layout declared"
    if checked.is_in_layout:
        return plan.settled_in_words
    return counted(len(plan.differences) + len(plan.obstacles) + len(checked.installs), "difference")


def _print_host(checked: "CheckedHost", *, diff: bool) -> None:
    from vgpuctl.cli.shown.layout_output import difference_lines

    plan = checked.plan
    health = "" if checked.findings else ", healthy"
    print_line(f"{checked.host}: {_state(checked)}{health}")
    for difference in plan.differences if plan else ():
        remedy = f"; {difference.remedy}" if difference.remedy else ""
        for line in difference_lines(difference) if diff else (f"  {difference}{remedy}",):
            print_line(line)
    for install in checked.installs:
        print_line(f"  host: {install}; `vgpuctl apply-hosts` installs it")
    for obstacle in plan.obstacles if plan else ():
        print_line(f"  {obstacle}")
    for note in plan.notes if plan else ():
        print_line(f"  not read: {note}")
    if checked.since_reboot is not None:
        print_line("  since the reboot: " + ("as before" if not checked.since_reboot else "not as before"))
        for difference in checked.since_reboot:
            where = difference.gpu or "host"
            print_line(f"    {where}: {difference.subject} was {difference.declared}, is {difference.found}")
    for finding in checked.findings:
        word = Styled(str(finding.severity), _COLOURS[finding.severity])
        print_line("  ", word, f" {finding.check} at {finding.subject}: {finding.read}")
        print_line(f"      fix: {finding.fix}")
