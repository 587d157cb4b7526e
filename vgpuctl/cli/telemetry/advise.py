# SPDX-License-Identifier: Apache-2.0
"""advise: changes that are worth it, from kept readings."""

from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput, WithFields
from vgpuctl.cli.shown.output import print_line, say
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.scheduler.advice.advice import Advice
    from vgpuctl.usecases.telemetry.advise import Advised
    from vgpuctl.usecases.telemetry.tuning_advice import ShownTrial


class JsonDiff(TypedDict):
    """diff: a line for each value that goes, and each that comes."""

    diff: list[str]


class JsonAdvised(TypedDict):
    """recommendations: each with its lines for people."""

    recommendations: "list[WithFields[Advice, JsonDiff]]"


_JSON: "JsonOutput[WithFields[Advised, JsonAdvised]]" = JsonOutput()


@click.command("advise")
@options.tenant_filter_of("Only what concerns VMs of this tenant.")
@click.option("--host", metavar="NAME", help="Only what concerns this host.")
@click.option(
    "--since", default="14d", show_default=True, metavar="DURATION", help="Judge sizes by this time before now."
)
@click.option(
    "--replay", default="6h", show_default=True, metavar="DURATION", help="Minutes before now to replay sharing with."
)
@options.history
@options.prometheus
@options.inventory
@options.database
@options.as_json
def command(tenant: str | None, host: str | None, since: str, replay: str, as_json: bool, **where: Any) -> None:
    """Advise changes that are worth it, from kept readings. It names resources that run out, and VMs that take time.

    Framebuffer, memory, huge pages and pools of hosts and licence seats are named with the VMs behind their end.
    Each recommendation has the declared values before and after, the commands, the gain with its proof by replay, and
    the hours that were measured (docs/advice.md). Nothing is changed, and no host is contacted.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.times import parse_duration
    from vgpuctl.usecases.telemetry.advise import advise

    since_s, replay_s = parse_duration(since, what="--since"), parse_duration(replay, what="--replay")
    with services(**where) as opened:
        found = advise(opened, since_s=since_s, replay_s=replay_s, tenant=tenant, host=host)
    if as_json:
        advice: list[WithFields[Advice, JsonDiff]]
        advice = [WithFields(one, {"diff": one.diff}) for one in found.recommendations]
        _JSON.print(WithFields(found, {"recommendations": advice}))
        return
    _show(found)


def _show(found: "Advised") -> None:
    from vgpuctl.model.faults import FAULTS
    from vgpuctl.scheduler.advice.exhaustion import Prospect

    for finding in found.findings:
        print_line(f"{finding.fault}: {finding.host} {finding.gpu}".rstrip(" :"))
        print_line(f"  {finding.text}")
        print_line(f"  next: {FAULTS[finding.fault].remedy}")
    for outlook in found.outlooks:
        if outlook.ending is Prospect.UNKNOWN:
            print_line(f"unknown: {' '.join((*outlook.hosts, outlook.text))}")
    for shared in found.unmeasured:
        what = f"the time that its VMs take from each other ({', '.join(shared.vms)})"
        print_line(f"not measured: {shared.host} {shared.gpu}: {what}: {shared.why}")
    for one in found.recommendations:
        _show_advice(one, found.tuning.get(one.id))
    for trial in found.trials:
        _show_trial(trial)
    if not found.recommendations:
        print_line("no recommendation")
    say(
        f"{found.measured} of {counted(found.leases, 'lease')} measured, for up to {found.hours:.1f} hours;"
        f" {counted(len(found.findings), 'finding')}, {counted(len(found.recommendations), 'recommendation')};"
        f" {sum(one.ending is Prospect.LASTS for one in found.outlooks)} of"
        f" {counted(len(found.outlooks), 'shared resource')} last"
    )


def _show_trial(one: "ShownTrial") -> None:
    from vgpuctl.model.times import format_time

    until = "" if one.ends_at is None else f", watched until {format_time(one.ends_at)} UTC"
    print_line(f"{one.advice} is in trial on {one.host} since {format_time(one.begun_at)} UTC ({one.state}{until})")
    for name, value in one.after.items():
        print_line(f"  {name}: {one.before.get(name, '')} → {value}")
    print_line(f"  VMs: {', '.join(one.vms)}")
    if one.why:
        print_line(f"  {one.why}")


def _show_advice(one: "Advice", tuning: str | None) -> None:
    print_line(f"{one.id}: {one.text}")
    for line in one.diff:
        print_line(f"  {line}")
    print_line(f"  gain: {one.gain.text}")
    print_line(f"  proof: {one.proof}")
    print_line(f"  confidence: {one.confidence}, from {one.measured_hours:.1f} measured hours")
    for line in one.commands:
        print_line(f"  $ {line}")
    if tuning is not None:
        print_line(f"  controller: {tuning}")
