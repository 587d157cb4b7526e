# SPDX-License-Identifier: Apache-2.0
"""The usage ledger's intervals, and what they add up to."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """One share, attached to one VM from begun_at to ended_at (seconds since the epoch, UTC; None: still attached).

    profile: in its normal form, with the model for a type that several have; without, where it was not recorded.
    card_part: how much of its GPU it kept from others, 0 to 1. compute_slices: of its MIG instance, 0 without MIG.
    """

    lease_id: str
    tenant: str
    vm_uuid: str
    vm_name: str
    host: str
    gpu: str
    profile: str
    framebuffer_mib: int
    compute_slices: int
    card_part: float
    begun_at: float
    ended_at: float | None

    def seconds(self, since: float, until: float) -> float:
        """How long it was attached within a range; `until` must not lie in the future."""
        end = until if self.ended_at is None else min(self.ended_at, until)
        return max(0.0, end - max(self.begun_at, since))


@dataclass(frozen=True)
class UsageLine:
    """The use of one profile by one tenant. share_hours: of all its shares together."""

    tenant: str
    profile: str
    shares: int
    attached: int
    share_hours: float
    framebuffer_gib_hours: float
    mig_compute_hours: float
    gpu_hours: float


def add_up(intervals: Iterable[Interval], since: float, until: float) -> list[UsageLine]:
    """One line per tenant and profile, by name. shares: how many leases; attached: those that still are."""
    lines: dict[tuple[str, str], UsageLine] = {}
    leases: dict[tuple[str, str], set[str]] = {}
    for one in intervals:
        hours = one.seconds(since, until) / 3600
        if not hours and not (since <= one.begun_at < until):
            continue
        key = (one.tenant, one.profile)
        line = lines.get(key, UsageLine(one.tenant, one.profile, 0, 0, 0.0, 0.0, 0.0, 0.0))
        held = leases.setdefault(key, set())
        held.add(one.lease_id)
        lines[key] = UsageLine(
            tenant=one.tenant,
            profile=one.profile,
            shares=len(held),
            attached=line.attached + (one.ended_at is None),
            share_hours=line.share_hours + hours,
            framebuffer_gib_hours=line.framebuffer_gib_hours + hours * one.framebuffer_mib / 1024,
            mig_compute_hours=line.mig_compute_hours + hours * one.compute_slices,
            gpu_hours=line.gpu_hours + hours * one.card_part,
        )
    return [lines[key] for key in sorted(lines)]


def gpu_seconds(intervals: Iterable[Interval], since: float, until: float) -> int:
    """Seconds of whole GPUs within a range, rounded up so that nothing is forgotten."""
    return -int(-sum(one.seconds(since, until) * one.card_part for one in intervals) // 1)
