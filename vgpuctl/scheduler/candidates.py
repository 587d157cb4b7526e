# SPDX-License-Identifier: Apache-2.0
"""VMs that may be preempted, and hosts as they would be read without some of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from vgpuctl.model.lease import Lease
from vgpuctl.model.numa import Footprint
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.vm import Preemption
from vgpuctl.scheduler.host_memory import with_promised
from vgpuctl.scheduler.relieve import relieve


@dataclass(frozen=True)
class Candidate:
    """One VM that may be preempted. work_s: how long it has run, which is lost. leases: all it holds.

    footprint: what its guest takes, nothing when it does not run. gang: VMs with the same id are preempted together or
    not at all. action, grace_s: its state afterwards, and the time from the notice to its shutdown, as its owner was
    told. on_borrowed_quota: it is reclaimed, rather than less important.
    """

    vm_uuid: str
    name: str
    host: str
    priority: int
    work_s: float
    footprint: Footprint
    leases: tuple[Lease, ...]
    gang: str | None = None
    action: Preemption = Preemption.STOP
    grace_s: float = 0.0
    on_borrowed_quota: bool = False


Party = tuple[Candidate, ...]
"""VMs that are preempted together: a gang, on whatever hosts it is, or one VM."""


def parties_of(candidates: Iterable[Candidate]) -> list[Party]:
    """The candidates by gang, in the order in which they come."""
    found: dict[tuple[str, str], list[Candidate]] = {}
    for one in candidates:
        key = ("vm", one.vm_uuid) if one.gang is None else ("gang", one.gang)
        found.setdefault(key, []).append(one)
    return [tuple(members) for members in found.values()]


def importance(party: Party) -> tuple[object, ...]:
    """A key to sort by: the party with the least important VMs first, then the least work, then by name."""
    return (
        sorted((one.priority for one in party), reverse=True),
        sum(one.work_s for one in party),
        sorted(one.name for one in party),
    )


def relieved(capacity: HostCapacity, gone: Sequence[Candidate]) -> HostCapacity:
    """The host as it would be read after these VMs, all on it, were preempted."""
    shares = [lease.share for one in gone for lease in one.leases]
    freed = [one.footprint for one in gone]
    facts = relieve(capacity.facts, shares, {one.vm_uuid for one in gone}, freed)
    return replace(with_promised(capacity, less=freed), facts=facts)


def left_of(leases: Sequence[Lease], gone: Sequence[Candidate]) -> list[Lease]:
    """The leases without those of these VMs."""
    uuids = {one.vm_uuid for one in gone}
    return [lease for lease in leases if lease.vm_uuid not in uuids]
