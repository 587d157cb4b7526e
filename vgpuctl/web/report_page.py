# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML file: style and plots inside, no script, nothing from elsewhere. It is written, not served."""

from dataclasses import dataclass

from flask import Flask, render_template

from vgpuctl import __version__
from vgpuctl.model.times import format_duration, format_time, format_time_to_second
from vgpuctl.usecases.tenant.report import Report, TenantReport
from vgpuctl.web.wording import finalize

_WIDTH, _HEIGHT = 640, 150
_COLOURS = 8
_DAY_S = 86_400


@dataclass(frozen=True)
class PlotBar:
    """One bar. x, y, width, height: in the plot's units. colour: number of a class of the style. text: its title."""

    x: float
    y: float
    width: float
    height: float
    colour: int
    text: str


@dataclass(frozen=True)
class Plot:
    """One plot. top: the value at the upper end, in words. keys: (number of the colour, name)."""

    title: str
    bars: tuple[PlotBar, ...]
    top: str
    first: str
    last: str
    keys: tuple[tuple[int, str], ...] = ()
    line: float | None = None
    width: int = _WIDTH
    height: int = _HEIGHT


class _Page(Flask):
    jinja_options = {"finalize": finalize, "trim_blocks": True, "lstrip_blocks": True}


def render_report(report: Report) -> str:
    """The whole page."""
    page = _Page(__name__, static_folder=None)
    page.jinja_env.filters.update(
        when=format_time,
        exactly=format_time_to_second,
        duration=format_duration,
        percent=lambda value: "–" if value is None else f"{value * 100:.0f} %",
        hours=lambda value: f"{value:,.2f}",
        gib=lambda value: "–" if value is None else f"{value / (1 << 30):.1f}",
    )
    with page.app_context():
        return render_template(
            "report.html",
            report=report,
            version=__version__,
            plots={one.tenant: _plots(report, one) for one in report.tenants},
        )


def _plots(report: Report, tenant: TenantReport) -> list[Plot]:
    plots = []
    if tenant.days:
        plots.append(_gpu_hours(report, tenant))
    if tenant.promises:
        plots.append(_promises(report, tenant))
    return plots


def _gpu_hours(report: Report, tenant: TenantReport) -> Plot:
    """A bar for each day, with a part for each profile."""
    profiles = sorted({one.profile for one in tenant.days})
    colours = {name: number % _COLOURS for number, name in enumerate(profiles)}
    by_day: dict[float, float] = {}
    for one in tenant.days:
        by_day[one.begins_at] = by_day.get(one.begins_at, 0.0) + one.gpu_hours
    top = max(by_day.values()) or 1.0
    bars, above = [], dict.fromkeys(by_day, 0.0)
    for one in sorted(tenant.days, key=lambda one: (one.begins_at, one.profile)):
        x, width = _place(report, one.begins_at)
        height = one.gpu_hours / top * _HEIGHT
        above[one.begins_at] += height
        text = f"{_day(one.begins_at)} {one.profile}: {one.gpu_hours:.2f} GPU-hours, {one.share_hours:.2f} share-hours"
        bars.append(PlotBar(x, _HEIGHT - above[one.begins_at], width, height, colours[one.profile], text))
    keys = tuple((colours[name], name) for name in profiles)
    return Plot("GPU-hours a day", tuple(bars), f"{top:.2f} h", *_ends(report), keys)


def _promises(report: Report, tenant: TenantReport) -> Plot:
    """A bar for each measured day; a line where the whole promise is used."""
    top = max(1.0, *(one.promised_used for one in tenant.promises))
    bars = []
    for one in tenant.promises:
        x, width = _place(report, one.begins_at)
        height = one.promised_used / top * _HEIGHT
        text = f"{_day(one.begins_at)}: {one.promised_used * 100:.0f} % of the promise, {one.hours:.1f} h measured"
        bars.append(PlotBar(x, _HEIGHT - height, width, height, 0, text))
    line = _HEIGHT - _HEIGHT / top
    return Plot("Use of the promised compute time", tuple(bars), f"{top * 100:.0f} %", *_ends(report), line=line)


def _place(report: Report, begins_at: float) -> tuple[float, float]:
    """Left end and width of a day's bar."""
    days = max(1.0, (report.until - report.since) / _DAY_S)
    column = _WIDTH / days
    return (begins_at - report.since) / _DAY_S * column, max(1.0, column - 2)


def _ends(report: Report) -> tuple[str, str]:
    return _day(report.since), _day(max(report.since, report.until - 1))


def _day(at: float) -> str:
    return format_time(at)[:10]
