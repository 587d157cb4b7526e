# SPDX-License-Identifier: Apache-2.0
"""report: one month of tenants as table, CSV, JSON or HTML page."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_csv, print_line, print_table, say
from vgpuctl.errors import UsageError
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.quota.traffic import TrafficLine
    from vgpuctl.usecases.tenant.report import MeasuredUse, Report, TenantReport

_USAGE = ("tenant", "profile", "shares", "attached", "share_hours", "gpu_hours", "framebuffer_gib_hours")
_MEASURED = ("mig_compute_hours", "measured_hours", "coverage", "promised_used", "promised_peak", "utilization")
_MEMORY = ("framebuffer_mean_gib", "framebuffer_peak_gib")
_BYTES = ("received_bytes", "sent_bytes", "received_packets", "sent_packets")


_JSON: "JsonOutput[Report]" = JsonOutput()


@click.command("report")
@options.tenant_filter
@click.option("--month", metavar="YYYY-MM", help="Calendar month (UTC).  [default: this month]")
@click.option(
    "--csv",
    "csv_of",
    type=click.Choice(["usage", "traffic", "waits", "incidents"]),
    is_flag=False,
    flag_value="usage",
    help="Print comma-separated values of one part.  [default part: usage]",
)
@click.option(
    "--html",
    "html_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write one HTML file with plots; it needs no other file and has no script.",
)
@options.history
@options.prometheus
@options.database
@options.as_json
def command(
    tenant: str | None, month: str | None, csv_of: str | None, html_file: Path | None, as_json: bool, **where: Any
) -> None:
    """Report a month of tenants: use, promises, queue waits, incidents. Shown are the hours used, the use of what was
    promised, the traffic of VMs, how long VMs waited, and the incidents that VMs felt.

    Hours come from the usage ledger, as in `show-usage`. Use of the promise comes from past readings; COVERAGE is the
    part of these hours that was measured.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.times import parse_month
    from vgpuctl.quota.limits import month_of
    from vgpuctl.usecases.tenant.report import make_report

    if sum((csv_of is not None, html_file is not None, as_json)) > 1:
        raise UsageError("give only one of --csv, --html and --json")
    named = None if month is None else parse_month(month, what="--month")
    with services(**where) as opened:
        now = opened.store.now()
        since, until = month_of(now if named is None else named)
        if since > now:
            raise UsageError(f"--month {month} has not begun", hint="leave it out for this month")
        report = make_report(opened, since=since, until=until, tenant=tenant)
    if as_json:
        _JSON.print(report)
    elif html_file is not None:
        _write(report, html_file)
    elif csv_of is not None:
        _print_csv(report, csv_of)
    else:
        _print(report)


def _write(report: "Report", path: Path) -> None:
    from vgpuctl.local_files import write_file
    from vgpuctl.web.report_page import render_report

    write_file(path, render_report(report), "the report")
    say(f"{path}: report on {counted(len(report.tenants), 'tenant')}")


def _print_csv(report: "Report", part: str) -> None:
    from vgpuctl.model.times import format_time_to_second

    def at(time: float | None) -> str | None:
        return None if time is None else format_time_to_second(time)

    if part == "usage":
        print_csv([*_USAGE, *_MEASURED, *_MEMORY], [row for one in report.tenants for row in _usage_rows(one)])
    elif part == "traffic":
        rows = [
            [line.tenant, str(line.kind), line.name, *_counts(line), at(line.first_at), at(line.last_at)]
            for one in report.tenants
            for line in one.traffic
        ]
        print_csv(["tenant", "kind", "name", *_BYTES, "first_read", "last_read"], rows)
    elif part == "waits":
        waits = [(one.tenant, wait) for one in report.tenants for wait in one.waits]
        rows = [
            [name, one.vm, at(one.queued_at), at(one.left_at), f"{one.wait_s:.0f}", one.reason] for name, one in waits
        ]
        print_csv(["tenant", "vm", "queued_at", "left_at", "wait_seconds", "reason"], rows)
    else:
        found = [(one.tenant, incident) for one in report.tenants for incident in one.incidents]
        rows = [
            [
                name,
                at(one.at),
                one.kind,
                one.what,
                one.subject,
                " ".join(one.vms),
                None if one.duration_s is None else f"{one.duration_s:.0f}",
                one.text,
                one.effect,
            ]
            for name, one in found
        ]
        print_csv(["tenant", "time", "event", "what", "subject", "vms", "duration_seconds", "detail", "effect"], rows)


def _counts(line: "TrafficLine") -> list[int]:
    return [getattr(line, name) for name in _BYTES]


def _usage_rows(report: "TenantReport") -> list[list[object]]:
    measured = {one.profile: one for one in report.measured}
    return [
        [
            report.tenant,
            line.profile,
            line.shares,
            line.attached,
            round(line.share_hours, 4),
            round(line.gpu_hours, 4),
            round(line.framebuffer_gib_hours, 4),
            round(line.mig_compute_hours, 4),
            *_measured_cells(measured.get(line.profile)),
        ]
        for line in report.usage
    ]


def _measured_cells(one: "MeasuredUse | None") -> list[str | None]:
    if one is None:
        return [None] * 7
    sizes = (one.framebuffer_mean_bytes, one.framebuffer_peak_bytes)
    return [
        f"{one.hours:.4f}",
        f"{one.coverage:.4f}",
        *(
            None if value is None else f"{value:.4f}"
            for value in (one.promised_used, one.promised_peak, one.utilization)
        ),
        *(None if size is None else f"{size / (1 << 30):.3f}" for size in sizes),
    ]


def _print(report: "Report") -> None:
    from vgpuctl.model.times import format_time

    say(f"{format_time(report.since)} to {format_time(report.until)} UTC")
    if report.past_problem is not None:
        say(f"no use was measured: {report.past_problem}")
    rows = [
        [
            one.tenant,
            line.profile,
            line.shares,
            f"{line.share_hours:.2f}",
            f"{line.gpu_hours:.2f}",
            f"{line.framebuffer_gib_hours:.2f}",
            *_measured_words(next((each for each in one.measured if each.profile == line.profile), None)),
        ]
        for one in report.tenants
        for line in one.usage
    ]
    columns = ["TENANT", "PROFILE", "SHARES", "SHARE H", "GPU H", "GIB H", "PROMISE", "PEAK", "COVERAGE"]
    print_table(columns, rows, empty="nothing was used")
    _print_traffic(report)
    _print_waits(report)
    _print_incidents(report)


def _measured_words(one: "MeasuredUse | None") -> list[str | None]:
    if one is None or one.promised_used is None or one.promised_peak is None:
        return [None, None, None if one is None or not one.hours else f"{one.coverage * 100:.0f}%"]
    return [f"{one.promised_used * 100:.0f}%", f"{one.promised_peak * 100:.0f}%", f"{one.coverage * 100:.0f}%"]


def _print_traffic(report: "Report") -> None:
    rows = [
        [one.tenant, f"{one.vm_traffic.received_bytes / (1 << 30):.2f}", f"{one.vm_traffic.sent_bytes / (1 << 30):.2f}"]
        for one in report.tenants
        if one.vm_traffic
    ]
    if rows:
        print_line()
        print_table(["TENANT", "VMS RECEIVED GIB", "VMS SENT GIB"], rows, empty="")


def _print_waits(report: "Report") -> None:
    from vgpuctl.model.times import format_duration

    rows = []
    for one in report.tenants:
        waits = [wait.wait_s for wait in one.waits]
        if waits:
            still = sum(wait.left_at is None for wait in one.waits)
            mean, longest = format_duration(sum(waits) / len(waits)), format_duration(max(waits))
            rows.append([one.tenant, len(waits), mean, longest, still])
    if rows:
        print_line()
        print_table(["TENANT", "WAITS", "MEAN", "LONGEST", "STILL WAITING"], rows, empty="")


def _print_incidents(report: "Report") -> None:
    from vgpuctl.model.times import format_duration, format_time_to_second

    rows = [
        [
            format_time_to_second(incident.at),
            one.tenant,
            incident.what + ("" if incident.duration_s is None else f", {format_duration(incident.duration_s)}"),
            incident.subject,
            ", ".join(incident.vms),
            incident.effect,
        ]
        for one in report.tenants
        for incident in one.incidents
    ]
    if rows:
        print_line()
        print_table(
            ["TIME (UTC)", "TENANT", "INCIDENT", "OBJECT", "VMS", "FOR THE VMS"],
            rows,
            empty="",
            drops={"OBJECT": 1, "FOR THE VMS": 0},
        )
