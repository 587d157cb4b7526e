# SPDX-License-Identifier: Apache-2.0
"""show-usage: what tenants used, from the ledger of attached shares."""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.errors import UsageError
from vgpuctl.quota.usage import Interval, UsageLine, add_up
from vgpuctl.usecases.support.services import Services


@dataclass(frozen=True)
class Usage:
    """since, until: the range that was added up, seconds since the epoch. intervals: what the lines are the sums of."""

    since: float
    until: float
    lines: tuple[UsageLine, ...]
    intervals: tuple[Interval, ...]


def show_usage(
    services: Services,
    *,
    since: float,
    until: float | None,
    tenant: str | None = None,
    profiles: Sequence[str] = (),
) -> Usage:
    """Add up what was used in a range of time; None is now, and nothing is counted beyond now.

    Raises NotFound for the tenant, UsageError for a range that ends before it begins.
    """
    now = services.store.now()
    if until is not None and until <= since:
        raise UsageError("the range of time ends before it begins", hint="give --until later than --since")
    end = now if until is None else min(until, now)
    with services.store.reading() as session:
        if tenant is not None:
            session.tenant(tenant)
        found = session.intervals(since, end, tenant)
    kept = tuple(one for one in found if not profiles or one.profile in profiles)
    return Usage(since, end, tuple(add_up(kept, since, end)), kept)
