# SPDX-License-Identifier: Apache-2.0
"""Quotas and the question whether something still fits into them."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from vgpuctl.errors import QuotaExceeded
from vgpuctl.model.vm import VmRequest
from vgpuctl.quota.charge import Amounts
from vgpuctl.quota.resources import RATES, USUAL, WITHOUT_LIMIT, Resource, exact_amount, format_amount
from vgpuctl.quota.vm_limits import OPTIONS


@dataclass(frozen=True)
class Quota:
    """The promise to one tenant of one resource.

    limit: never more than this, None for no end. guaranteed: what it can count on; what it uses beyond that is
    borrowed. None: all up to the limit is its own.
    """

    resource: str
    limit: int | None = None
    guaranteed: int | None = None

    def borrowed(self, used: int) -> int:
        """How much of what is used is borrowed."""
        return 0 if self.guaranteed is None else max(0, used - self.guaranteed)


@dataclass(frozen=True)
class Excess:
    """One quota that a request would exceed. asked 0: hours of a VM whose end is not known."""

    resource: str
    used: int
    asked: int
    limit: int

    def __str__(self) -> str:
        """The quota, what is used and what was asked, in one line."""
        used, limit = format_amount(self.resource, self.used), format_amount(self.resource, self.limit)
        asked = format_amount(self.resource, self.asked) if self.asked else "an open end"
        return f"{self.resource}: {used} of {limit} used, {asked} asked"


def room_hint(tenant: str, excess: Excess) -> str:
    """The ways out for a tenant whose quota would be exceeded."""
    if excess.resource == Resource.GPU_HOURS:
        return f"wait for the next month, or raise it: vgpuctl set-quota {tenant} gpu-hours=HOURS"
    enough = shlex.quote(f"{excess.resource}={exact_amount(excess.resource, excess.used + excess.asked)}")
    raising = f"raise it: vgpuctl set-quota {tenant} {enough}"
    limited = next((limited for rate, limited in RATES.items() if rate == excess.resource), None)
    if limited is not None and excess.asked >= WITHOUT_LIMIT[limited]:
        usual = f"`vgpuctl set-quota {tenant} {USUAL}{limited}=NUMBER`"
        return (
            f"a part without a limit counts {WITHOUT_LIMIT[limited]}: ask for one by {OPTIONS[limited]}, or give one to"
            f" all by {usual}; or {raising}"
        )
    what = _GIVEN_BACK.get(excess.resource, "VMs")
    return f"delete {what} of {tenant}, or {raising}"


def exceeded(request: VmRequest, found: Sequence[Excess]) -> QuotaExceeded:
    """The error for a VM that does not fit into its tenant's quotas."""
    names = ", ".join(one.resource for one in found)
    return QuotaExceeded(
        f"VM {request.name} does not fit into the quota of tenant {request.tenant}: {names}",
        context=[str(one) for one in found],
        hint=room_hint(request.tenant, found[0]),
        short=f"over the quota of tenant {request.tenant}",
    )


_GIVEN_BACK: Mapping[str, str] = {
    Resource.DISK: "disks or VMs",
    Resource.IOPS: "disks or VMs",
    Resource.BANDWIDTH: "VMs or their network interfaces",
    Resource.SNAPSHOTS: "snapshots",
    Resource.NETWORKS: "networks",
    Resource.PUBLIC_ADDRESSES: "gateways or floating IPs",
    Resource.LOAD_BALANCERS: "load balancers",
    Resource.VPN_CONNECTIONS: "VPN connections",
    Resource.NICS: "VMs or their network interfaces",
}


def excesses(quotas: Sequence[Quota], used: Amounts, asked: Amounts) -> list[Excess]:
    """Every quota that `asked` on top of `used` would exceed, by resource. Other resources are ignored.

    GPU-hours are used up when none is left, also for a request that does not say how long it runs.
    """
    found = []
    for quota in sorted(quotas, key=lambda one: one.resource):
        if quota.limit is None or quota.resource not in asked:
            continue
        have, more = used.get(quota.resource, 0), asked[quota.resource]
        is_over = have + more > quota.limit if more else False
        if quota.resource == Resource.GPU_HOURS:
            is_over = is_over or have >= quota.limit
        if is_over:
            found.append(Excess(quota.resource, have, more, quota.limit))
    return found


def room_for(quotas: Sequence[Quota], used: Amounts, asked: Amounts) -> dict[str, int]:
    """How many times `asked` fits on top of `used`, by resource; of the resources that limit it only.

    GPU-hours that are not used up limit nothing that has no declared end.
    """
    room = {}
    for quota in quotas:
        amount = asked.get(quota.resource, 0)
        if quota.limit is None or quota.resource not in asked:
            continue
        left = max(0, quota.limit - used.get(quota.resource, 0))
        if amount:
            room[quota.resource] = left // amount
        elif quota.resource == Resource.GPU_HOURS and not left:
            room[quota.resource] = 0
    return room


def borrowed(quotas: Sequence[Quota], used: Amounts) -> dict[str, int]:
    """A tenant's use beyond its guarantees, by resource; only amounts above 0."""
    amounts = {quota.resource: quota.borrowed(used.get(quota.resource, 0)) for quota in quotas}
    return {resource: amount for resource, amount in amounts.items() if amount}


def merged(quotas: Iterable[Quota]) -> list[Quota]:
    """The quotas by resource; of two on one resource the lower limit and the lower guarantee."""
    found: dict[str, Quota] = {}
    for one in quotas:
        there = found.get(one.resource, one)
        found[one.resource] = Quota(
            one.resource, _lower(there.limit, one.limit), _lower(there.guaranteed, one.guaranteed)
        )
    return [found[name] for name in sorted(found)]


def _lower(*amounts: int | None) -> int | None:
    return min((one for one in amounts if one is not None), default=None)


def changed(
    there: Sequence[Quota], limits: Mapping[str, int | None], guaranteed: Mapping[str, int | None]
) -> list[Quota]:
    """The quotas of a tenant after some were set; None removes one. By resource, without empty ones."""
    by_name = {quota.resource: quota for quota in there}
    for resource in {*limits, *guaranteed}:
        old = by_name.get(resource, Quota(resource))
        by_name[resource] = Quota(resource, limits.get(resource, old.limit), guaranteed.get(resource, old.guaranteed))
    return [
        by_name[name]
        for name in sorted(by_name)
        if by_name[name].limit is not None or by_name[name].guaranteed is not None
    ]


def month_of(at: float) -> tuple[float, float]:
    """Begin and end of the calendar month (UTC) that a time is in, as seconds since the epoch."""
    moment = datetime.fromtimestamp(at, UTC)
    begin = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    end = begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)
    return begin.timestamp(), end.timestamp()
