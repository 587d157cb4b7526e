# SPDX-License-Identifier: Apache-2.0
"""show-usage: what tenants used, from the ledger of attached shares and that of traffic."""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.catalog import ProfileName, profile_name
from vgpuctl.errors import UsageError
from vgpuctl.quota.traffic import TrafficLine, add_up_traffic, whole_days
from vgpuctl.quota.usage import Interval, UsageLine, add_up
from vgpuctl.usecases.found.known_profiles import refuse_unknown_profiles
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class Usage:
    """since, until: the range that was added up, seconds since the epoch. intervals: what the lines are the sums of."""

    since: float
    until: float
    lines: tuple[UsageLine, ...]
    intervals: tuple[Interval, ...]


@dataclass(frozen=True)
class TrafficUsage:
    """since, until: the days that were added up, seconds since the epoch."""

    since: float
    until: float
    lines: tuple[TrafficLine, ...]


def show_usage(
    services: Services,
    *,
    since: float,
    until: float | None,
    tenant: str | None = None,
    profiles: Sequence[str] = (),
) -> Usage:
    """Add up what was used in a range of time; None is now, and nothing is counted beyond now.

    profiles: only these, as users write them; a type of several models without a model means each of them.
    Raises NotFound for the tenant, UsageError for a range that ends before it begins and for a profile that nobody
    knows and nobody used.
    """
    end = _end(services, since, until)
    with services.store.reading() as session:
        if tenant is not None:
            session.tenant(tenant)
        found = session.intervals(since, end, tenant)
        wanted = set(map(profile_name, profiles))
        used = {known for one in found for known in _names_of(one)}
        refuse_unknown_profiles(session, map(str, wanted - used), what="--profile")
    kept = tuple(one for one in found if not wanted or wanted & _names_of(one))
    return Usage(since, end, tuple(add_up(kept, since, end)), kept)


def show_traffic(services: Services, *, since: float, until: float | None, tenant: str | None = None) -> TrafficUsage:
    """Add up the traffic of each object on the days that a range touches; None is now.

    Raises NotFound for the tenant, UsageError for a range that ends before it begins.
    """
    end = _end(services, since, until)
    with services.store.reading() as session:
        if tenant is not None:
            session.tenant(tenant)
        rows = session.traffic(since, end, tenant)
    begin, last = whole_days(since, end)
    return TrafficUsage(begin, min(last, services.store.now()), tuple(add_up_traffic(rows)))


def _end(services: Services, since: float, until: float | None) -> float:
    """The end of a range, which nothing beyond now is in. Raises UsageError."""
    if until is not None and until <= since:
        raise UsageError("the range of time ends before it begins", hint="give --until later than --since")
    now = services.store.now()
    return now if until is None else min(until, now)


def _names_of(one: Interval) -> set[ProfileName]:
    known = profile_name(one.profile)
    return {known, ProfileName(known.name)}
