# SPDX-License-Identifier: Apache-2.0
"""The end of resources, its time, and the VMs that cause it: one rule for every row of model/exhaustible.py.

An answer never goes further than its readings: see AHEAD and Prospect.UNKNOWN. docs/advice.md has the rule in words.
"""

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean

from vgpuctl.model.exhaustible import OF_RESOURCES, Exhaustible
from vgpuctl.model.plural import counted
from vgpuctl.model.times import format_duration
from vgpuctl.model.units import MIB
from vgpuctl.scheduler.advice.advice import CausingVm, MeasuredFault
from vgpuctl.scheduler.advice.measured import DAY_S, HOUR_S, MINUTE_S, Point, Points
from vgpuctl.scheduler.advice.trend import LimitReached, Trend, trend

FEWEST_READINGS = 6
AHEAD = 24.0
"""A trend tells this many times as far ahead as its readings go back."""

DROP, DROP_STEPS = 0.05, 3
"""A fall by this part of the whole, within so many steps, begins the trend anew, as after the end of a VM."""

LEAST_RATIO, MOST_CAUSES = 0.05, 5
Users = Mapping[tuple[str, ...], Points]
"""What each VM holds of a resource, by tenant and name.

The tenant is empty for a foreign domain; then the host is the third where the resource is of several.
"""


class Prospect(enum.StrEnum):
    """The outlook of a resource.

    used-up: (nearly) nothing is left. runs-out: it will be, if it grows on. lasts: not in the time that is told.
    unknown: the readings do not tell.
    """

    USED_UP = "used-up"
    RUNS_OUT = "runs-out"
    LASTS = "lasts"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class JudgedSeries:
    """A series, judged. text: why, as a clause. recent: the readings that it rests on.

    trend: None where they are too few. arrival: only of a resource that runs out.
    """

    ending: Prospect
    text: str
    recent: Points = ()
    trend: Trend | None = None
    arrival: LimitReached | None = None

    @property
    def span_s(self) -> float:
        """The time that the readings cover."""
        return self.recent[-1].at - self.recent[0].at if self.recent else 0.0


@dataclass(frozen=True)
class SharedResource:
    """Something that several VMs use. host: empty where it is not of one host. hosts: that have it.

    name: for people; it stays the same as long as it is the same resource. total: the whole now. used: its use by time.
    why_not: why nothing is told of it, such as the drain of its host. pools: the storage pools that have it now.
    """

    kind: Exhaustible
    host: str
    hosts: tuple[str, ...]
    name: str
    total: float
    used: Points
    why_not: str | None = None
    pools: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its name, with its pools, and its hosts where it is not of one host."""
        name = f"{self.name} ({', '.join(self.pools)})" if self.pools else self.name
        return name if self.host or not self.hosts else f"{name} of {', '.join(self.hosts)}"


@dataclass(frozen=True)
class Outlook:
    """The outlook of one resource. kind: its name in model/exhaustible.py. resource: what it is.

    host: empty where it is not of one host. hosts: that have it.
    readings: how many the answer rests on, measured_s: the time that they cover. is_read: False if nothing is known of
    it now. figures: as of a finding. causes: the VMs behind it, the largest first.
    """

    kind: str
    host: str
    hosts: tuple[str, ...]
    resource: str
    ending: Prospect
    text: str
    readings: int
    measured_s: float
    is_read: bool
    figures: Mapping[str, float] = field(default_factory=dict)
    causes: tuple[CausingVm, ...] = ()

    def concerns(self, tenant: str | None, host: str | None) -> bool:
        """True if it is about a tenant's VMs and a host; None for any."""
        tenants = {one.tenant for one in self.causes}
        return (tenant is None or tenant in tenants) and (host is None or not self.hosts or host in self.hosts)

    @property
    def finding(self) -> MeasuredFault | None:
        """The finding of what is used up, or will be; None of what is not."""
        if self.ending not in (Prospect.USED_UP, Prospect.RUNS_OUT):
            return None
        fault = next(one.fault for one in OF_RESOURCES if one.name == self.kind)
        return MeasuredFault(
            fault, self.host, "", "", "", "", "", self.text, (), self.figures, self.resource, self.causes, self.hosts
        )


def recent_points(kind: Exhaustible, points: Sequence[Point], now: float) -> Points:
    """The points of the kind's window; none where the last one is too old to tell of now."""
    found = tuple(one for one in points if now - kind.window_s <= one.at <= now + MINUTE_S)
    return found if found and now - found[-1].at <= kind.oldest_s else ()


def judge(kind: Exhaustible, total: float, points: Sequence[Point], now: float) -> JudgedSeries:
    """Judge a series by its trend alone, whether or not it is at its end already."""
    recent = recent_points(kind, points, now)
    if not recent:
        return JudgedSeries(Prospect.UNKNOWN, f"there is no reading of the last {in_words(kind.oldest_s)}")
    whole, after = _judged(kind, total, recent), _since_drop(recent, total)
    if whole.ending is Prospect.RUNS_OUT or len(after) == len(recent):
        return whole
    found = _judged(kind, total, after)
    fell = kind.amount(recent[-len(after) - 1].mean - after[0].mean)
    return replace(found, text=f"{found.text}, since it fell by {fell}")


def judge_resource(one: SharedResource, now: float) -> JudgedSeries:
    """Judge a resource. One that is used up now is so whatever its trend says."""
    if one.why_not is not None:
        return JudgedSeries(Prospect.UNKNOWN, one.why_not)
    found = judge(one.kind, one.total, one.used, now)
    if found.recent and one.kind.is_used_up(found.recent[-1].mean, one.total):
        used, total = one.kind.amount(found.recent[-1].mean), one.kind.amount(one.total)
        return replace(found, ending=Prospect.USED_UP, text=f"{used} of {total} are used")
    return found


def outlook(one: SharedResource, found: JudgedSeries, users: Users, tenant: str | None = None) -> Outlook:
    """The outlook of a judged resource, with the VMs behind it where it ends.

    tenant: name its VMs alone; the others are told together.
    """
    kind, used = one.kind, found.recent[-1].mean if found.recent else 0.0
    ratio = used / one.total if one.total > 0 else 0.0
    causes, text, figures = [], f"{one.title}: {found.text}", {}
    if found.ending in (Prospect.USED_UP, Prospect.RUNS_OUT):
        grows = _grows(found, one)
        causes = _behind_growth(kind, found.recent, users) if grows else _behind_use(kind, found.recent, users)
        causes = [vm for vm in causes if tenant in (None, vm.tenant)][:MOST_CAUSES]
        text = f"{one.title}: {found.text}{_rests_on(found)}; {_in_words(causes, tenant, is_growth=grows)}"
        times = found.arrival if found.ending is Prospect.RUNS_OUT and found.arrival else LimitReached(0.0, 0.0, 0.0)
        figures = {
            "used_ratio": ratio,
            "exhaustion_seconds": times.expected_s,
            "earliest_exhaustion_seconds": times.earliest_s,
            "latest_exhaustion_seconds": times.latest_s,
            "slope_per_second": found.trend.slope if grows and found.trend else 0.0,
            "measured_seconds": found.span_s,
            "readings": float(len(found.recent)),
        }
    return Outlook(
        kind.name,
        one.host,
        one.hosts,
        one.name,
        found.ending,
        text,
        len(found.recent),
        found.span_s,
        bool(found.recent),
        figures,
        tuple(causes),
    )


def in_words(seconds: float) -> str:
    """Write a time ahead, no finer than it is known."""
    if not math.isfinite(seconds) or seconds > 30 * DAY_S:
        return "more than 30 days"
    step_s = MINUTE_S if seconds > HOUR_S else 1.0
    return "less than a second" if seconds < 1 else format_duration(round(seconds / step_s) * step_s)


def _judged(kind: Exhaustible, total: float, points: Points) -> JudgedSeries:
    few = JudgedSeries(
        Prospect.UNKNOWN,
        f"{counted(len(points), 'reading')}, and a trend needs {FEWEST_READINGS} or more",
        points,
    )
    found = trend([(one.at, one.mean) for one in points]) if len(points) >= FEWEST_READINGS else None
    if found is None:
        return few
    ahead_s = min(kind.horizon_s, AHEAD * found.span_s)
    soonest_s = max(0.0, total - found.level) / found.high if found.high > 0 else math.inf
    arrival = found.seconds_until(total)
    grows = found.slope * found.span_s >= kind.least_growth * total and _grows_on(points, found.slope)
    if arrival is not None and grows and total > 0 and arrival.expected_s <= ahead_s:
        text = (
            f"{points[-1].mean / total:.0%} is used, and {_rate(kind, found.slope)} more: used up in"
            f" {in_words(arrival.expected_s)} (90 % between {in_words(arrival.earliest_s)} and"
            f" {in_words(arrival.latest_s)})"
        )
        return JudgedSeries(Prospect.RUNS_OUT, text, points, found, arrival)
    if soonest_s > ahead_s:
        return JudgedSeries(Prospect.LASTS, f"not used up in the next {in_words(ahead_s)}", points, found)
    return JudgedSeries(
        Prospect.UNKNOWN,
        f"it grows unevenly: used up in {in_words(soonest_s)} at the earliest, or never",
        points,
        found,
    )


def _rate(kind: Exhaustible, slope: float) -> str:
    """How much more it is in an hour; by the day where that is little."""
    is_slow = slope * HOUR_S < (1.0 if kind.is_counted else MIB)
    return f"{kind.amount(slope * (DAY_S if is_slow else HOUR_S))} {'a day' if is_slow else 'an hour'}"


def _grows_on(recent: Sequence[Point], slope: float) -> bool:
    """True if the last third still grows, at half the slope at least: a program that loads its data ends there."""
    last = recent[-max(3, len(recent) // 3) :]
    half = len(last) // 2
    before, after = last[:half], last[-half:]
    span_s = fmean(one.at for one in after) - fmean(one.at for one in before)
    return fmean(one.mean for one in after) - fmean(one.mean for one in before) >= slope * span_s / 2


def _since_drop(points: Points, total: float) -> Points:
    """The points since the use fell once; all of them where it never fell, or falls again and again."""
    falls = [
        place for place, (one, after) in enumerate(pairwise(points), 1) if one.mean - after.mean >= DROP * total > 0
    ]
    if not falls or falls[-1] - falls[0] >= DROP_STEPS:
        return points
    return points[falls[-1] :]


def _grows(found: JudgedSeries, one: SharedResource) -> bool:
    """True if the use has grown for sure over the readings, and by more than noise."""
    if found.trend is None or not found.trend.rises:
        return False
    return found.trend.slope * found.trend.span_s >= one.kind.least_growth * one.total


def _behind_growth(kind: Exhaustible, recent: Points, users: Users) -> list[CausingVm]:
    """The VMs that grew while the resource did. Together they are no more than the whole growth."""
    begin, end = recent[0].at, recent[-1].at
    grown = {}
    for vm, points in users.items():
        inside = [one for one in points if begin - kind.step_s <= one.at <= end + kind.step_s]
        if inside and not _has_ended(kind, inside, end):
            is_new = kind.is_returned and inside[0].at - begin > DROP_STEPS * kind.step_s
            grown[vm] = inside[-1].mean if is_new else _rise(inside)
    return _causes(grown, max(_rise(recent), sum(max(0.0, one) for one in grown.values())))


def _rise(points: Sequence[Point]) -> float:
    """From the first points to the last ones."""
    few = max(1, min(3, len(points) // 3))
    return fmean(one.mean for one in points[-few:]) - fmean(one.mean for one in points[:few])


def _behind_use(kind: Exhaustible, recent: Points, users: Users) -> list[CausingVm]:
    """The VMs that hold most of what is used."""
    end, used = recent[-1].at, recent[-1].mean
    held = {vm: points[-1].mean for vm, points in users.items() if points and not _has_ended(kind, points, end)}
    return _causes(held, max(used, sum(held.values())))


def _has_ended(kind: Exhaustible, points: Sequence[Point], end: float) -> bool:
    """True if a VM was not measured at the end any more, and what it held is free again."""
    return kind.is_returned and end - points[-1].at > kind.oldest_s


def _causes(amounts: Mapping[tuple[str, ...], float], whole: float) -> list[CausingVm]:
    found = [
        CausingVm(tenant, vm, amount, amount / whole, *host)
        for (tenant, vm, *host), amount in amounts.items()
        if whole > 0
    ]
    large = (one for one in found if one.ratio >= LEAST_RATIO)
    return sorted(large, key=lambda one: (-one.amount, one.tenant, one.vm, one.host))


def _rests_on(found: JudgedSeries) -> str:
    if len(found.recent) < 2:
        return f", by {counted(len(found.recent), 'reading')}"
    return f", by {counted(len(found.recent), 'reading')} of {in_words(found.span_s)}"


def _in_words(causes: Sequence[CausingVm], tenant: str | None, *, is_growth: bool) -> str:
    """Say which VMs are behind it, and how much is left for what is not named. tenant: whose VMs alone are named."""
    what = "the growth" if is_growth else "what is used"
    if not causes:
        return f"no VM{f' of {tenant}' if tenant else ''} that is measured is behind {what}"
    named = [f"{one.name} {one.ratio:.0%}" for one in causes]
    rest = 1.0 - sum(one.ratio for one in causes)
    if rest >= LEAST_RATIO:
        named[-1] += f"; others {rest:.0%}" if tenant else f"; no VM named here is behind the other {rest:.0%}"
    return f"behind {what}: {', '.join(named)}"
