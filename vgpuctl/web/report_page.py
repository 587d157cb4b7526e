# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML file: style and plots inside, no script, nothing from elsewhere. It is written, not served."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flask import Flask, render_template

from vgpuctl import __version__
from vgpuctl.model.times import format_duration, format_time, format_time_to_second
from vgpuctl.quota.report import MONTHS
from vgpuctl.usecases.tenant.report import Report, TenantReport
from vgpuctl.web.wording import finalize

_WIDTH, _HEIGHT = 640, 150
_COLOURS = 8
_DAY_S = 86_400
_DAYS, _QUARTERS = 31, 4
_ROWS = {"usage": 5, "waits": 3, "incidents": 4}
"""Rows of a tenant's page; what has more is whole in its annex, so that the page fits on one sheet of A4."""
_NAMES, _LETTERS = 3, 140


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
    """One plot. top: the value at the upper end, in words. keys: (number of the colour, name). quarters: of the page's
    width, for a plot of few days is narrow. gaps: bars that say that nothing was read."""

    title: str
    bars: tuple[PlotBar, ...]
    top: str
    first: str
    last: str
    keys: tuple[tuple[int, str], ...] = ()
    line: float | None = None
    quarters: int = _QUARTERS
    gaps: tuple[PlotBar, ...] = ()
    height: int = _HEIGHT

    @property
    def width(self) -> int:
        """Width in the plot's units."""
        return _WIDTH * self.quarters // _QUARTERS


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
        few=_few,
        short=lambda text: text if len(text) <= _LETTERS else text[:_LETTERS] + "…",
        longest=lambda waits: sorted(waits, key=lambda one: -one.wait_s),
    )
    with page.app_context():
        return render_template(
            "report.html",
            report=report,
            version=__version__,
            rows=_ROWS,
            annexed={one.tenant for one in report.tenants if _needs_annex(one)},
            plots={one.tenant: _plots(report, one) for one in report.tenants},
        )


def _needs_annex(one: TenantReport) -> bool:
    """True if the tenant's page leaves something out."""
    is_cut = any(_few(each.vms) != ", ".join(each.vms) for each in one.incidents)
    return is_cut or any(len(getattr(one, name)) > most for name, most in _ROWS.items())


def _few(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - _NAMES
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:_NAMES])} and {more} more"


def _plots(report: Report, tenant: TenantReport) -> list[Plot]:
    plots = []
    if len(tenant.months) > 1:
        plots.append(_months(tenant))
    if tenant.days:
        plots.append(_gpu_hours(report, tenant))
    if tenant.promises:
        plots.append(_promises(report, tenant))
    return plots


def _months(tenant: TenantReport) -> Plot:
    """A bar for each month since the first one with use."""
    top = max(one.gpu_hours for one in tenant.months) or 1.0
    quarters = _quarters(len(tenant.months), MONTHS)
    bars = []
    for number, one in enumerate(tenant.months):
        x, width = _place(number, len(tenant.months), quarters)
        height = one.gpu_hours / top * _HEIGHT
        text = f"{_day(one.begins_at)[:7]}: {one.gpu_hours:,.2f} GPU-hours, {one.share_hours:,.2f} share-hours"
        bars.append(PlotBar(x, _HEIGHT - height, width, height, 0, text))
    first, last = (_day(tenant.months[at].begins_at)[:7] for at in (0, -1))
    return Plot("GPU-hours a month", tuple(bars), f"{top:,.2f} h", first, last, quarters=quarters)


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
        x, width = _of_day(report, one.begins_at)
        height = one.gpu_hours / top * _HEIGHT
        above[one.begins_at] += height
        text = f"{_day(one.begins_at)} {one.profile}: {one.gpu_hours:.2f} GPU-hours, {one.share_hours:.2f} share-hours"
        bars.append(PlotBar(x, _HEIGHT - above[one.begins_at], width, height, colours[one.profile], text))
    keys = tuple((colours[name], name) for name in profiles)
    quarters = _quarters(_days(report), _DAYS)
    return Plot("GPU-hours a day", tuple(bars), f"{top:,.2f} h", *_ends(report), keys, quarters=quarters)


def _promises(report: Report, tenant: TenantReport) -> Plot:
    """A bar for each measured day, a gap for a day of use without readings; a line where the whole promise is used."""
    top = max(1.0, *(one.promised_used for one in tenant.promises))
    bars = []
    for one in tenant.promises:
        x, width = _of_day(report, one.begins_at)
        height = one.promised_used / top * _HEIGHT
        text = f"{_day(one.begins_at)}: {one.promised_used * 100:.0f} % of the promise, {one.hours:.1f} h measured"
        bars.append(PlotBar(x, _HEIGHT - height, width, height, 0, text))
    unread = sorted({one.begins_at for one in tenant.days} - {one.begins_at for one in tenant.promises})
    gaps = tuple(
        PlotBar(x, 0, width, _HEIGHT, 0, f"{_day(at)}: no readings")
        for at in unread
        for x, width in [_of_day(report, at)]
    )
    line = _HEIGHT - _HEIGHT / top
    title, quarters = "Use of the promised compute time", _quarters(_days(report), _DAYS)
    return Plot(title, tuple(bars), f"{top * 100:.0f} %", *_ends(report), line=line, quarters=quarters, gaps=gaps)


def _days(report: Report) -> int:
    """The days that have begun, at least one."""
    return max(1, math.ceil((report.until - report.since) / _DAY_S))


def _quarters(number: int, most: int) -> int:
    return min(_QUARTERS, math.ceil(number * _QUARTERS / most))


def _of_day(report: Report, begins_at: float) -> tuple[float, float]:
    days = _days(report)
    return _place(int((begins_at - report.since) // _DAY_S), days, _quarters(days, _DAYS))


def _place(number: int, count: int, quarters: int) -> tuple[float, float]:
    """Left end and width of a bar among others."""
    column = _WIDTH * quarters / _QUARTERS / count
    return number * column, max(1.0, column - 2)


def _ends(report: Report) -> tuple[str, str]:
    return _day(report.since), _day(max(report.since, report.until - 1))


def _day(at: float) -> str:
    return format_time(at)[:10]
