# SPDX-License-Identifier: Apache-2.0
"""The past readings of what VMs share: memory, huge pages and pools of hosts, and licence seats; with their outlooks.

What VMs hold is read only of a resource that ends, for that is the larger part of the history.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vgpuctl.agent.wire.measures import HOST, VM
from vgpuctl.model.exhaustible import DISK_POOL, HOST_MEMORY, HUGE_PAGES, LICENCE_SEATS, Exhaustible
from vgpuctl.model.licence import LicencePool, LicenceSeat
from vgpuctl.model.restriction import WHOLE_HOST, RestrictionKind
from vgpuctl.model.units import format_mib
from vgpuctl.scheduler.advice.exhaustion import Outlook, Prospect, SharedResource, Users, judge_resource, outlook
from vgpuctl.scheduler.advice.measured import MINUTE_S, Point, Points
from vgpuctl.store.store import Store
from vgpuctl.telemetry import history
from vgpuctl.telemetry.history import MeasuredValue, Sample, Subject
from vgpuctl.usecases.observed.states import States
from vgpuctl.usecases.running.history import Past

_FREE = "free"
_SAME_SIZE = 0.01
"""Hosts that name one file system of one size share it; of two sizes it is two servers of one name."""

_OUT = {
    RestrictionKind.DRAIN: "the host is drained for maintenance",
    RestrictionKind.FENCE: "the host was declared dead, and nothing that it says is trusted",
}


@dataclass(frozen=True)
class _OfHosts:
    """The measures of one kind. total, free: of hosts. held: of VMs.

    name: for people, by the last label, which alone tells resources of one host apart.
    """

    kind: Exhaustible
    total: str
    free: str
    held: str
    name: Callable[[str], str]


_SOURCES = (
    _OfHosts(
        HOST_MEMORY,
        "memory_without_hugepages_bytes",
        "memory_available_bytes",
        "memory_rss_bytes",
        lambda _part: "memory",
    ),
    _OfHosts(
        HUGE_PAGES,
        "hugepages_total_bytes",
        "hugepages_free_bytes",
        "hugepages_bytes",
        lambda size_kib: f"{_page_size(size_kib)} huge pages",
    ),
    _OfHosts(
        DISK_POOL,
        "pool_total_bytes",
        "pool_available_bytes",
        "disk_allocated_bytes",
        lambda filesystem: f"disk pool on {filesystem}",
    ),
)


def _page_size(kib: str) -> str:
    return format_mib(int(kib) // 1024) if kib.isdecimal() and int(kib) >= 1024 else f"{kib} KiB"


@dataclass
class _Reading:
    """What one host told of one part, such as a file system. total: the last one."""

    total: float = 0.0
    labels: list[tuple[str, ...]] = field(default_factory=list)
    used: defaultdict[float, list[float]] = field(default_factory=lambda: defaultdict(list))


def read_outlooks(store: Store, past: Past, now: float, hosts: Collection[str] | None = None) -> list[Outlook]:
    """The outlook of every resource, by kind, host and name.

    hosts: those that are told of, read or not; None for all that were read.

    Raises one of PAST_PROBLEMS, StoreError.
    """
    with store.reading() as session:
        out = {
            one.host: _OUT[one.kind] for one in session.restrictions() if one.device == WHOLE_HOST and one.kind in _OUT
        }
        pools, seats = session.licence_pools(), session.licence_seats()
    found = []
    for source in _SOURCES:
        missing = set(hosts or ()) if source.kind is HOST_MEMORY else set()
        for part, resource in _resources(source, past, now, out, hosts):
            missing -= set(resource.hosts)
            judged = judge_resource(resource, now)
            ends = judged.ending in (Prospect.USED_UP, Prospect.RUNS_OUT)
            found.append(outlook(resource, judged, _users(source, resource, part, past, now, store) if ends else {}))
        for host in sorted(missing):
            unread = SharedResource(source.kind, host, (host,), source.name(""), 0.0, (), out.get(host))
            found.append(outlook(unread, judge_resource(unread, now), {}))
    for resource, users in _licences(past, now, pools, seats):
        found.append(outlook(resource, judge_resource(resource, now), users))
    return found


def kept_seats(states: States) -> list[MeasuredValue]:
    """The seats of licence pools, as the history keeps them."""
    subject = Subject(history.LICENCE, "", "")
    return [
        MeasuredValue(subject.part(row.labels), history.LICENCE_SEATS.name, row.value)
        for row in states.of("licence_seats")
        if row.value is not None
    ]


def _resources(
    source: _OfHosts, past: Past, now: float, out: Mapping[str, str], hosts: Collection[str] | None
) -> Iterator[tuple[str, SharedResource]]:
    """Each resource of a kind with the last of its labels, which tells it apart on its host."""
    by_part: defaultdict[str, dict[str, _Reading]] = defaultdict(dict)
    totals = _series(past, source.kind, HOST, source.total, now)
    for subject, samples in _series(past, source.kind, HOST, source.free, now).items():
        if hosts is not None and subject.host not in hosts:
            continue
        sizes = {one.at: one.mean for one in totals.get(subject, ())}
        reading = by_part[_part(subject)].setdefault(subject.host, _Reading())
        for at, used in _used(sizes, samples):
            reading.used[at].append(used)
        if sizes:
            reading.total = sizes[max(sizes)]
            reading.labels.append(subject.labels)
    for part in sorted(by_part):
        known = {host: one for host, one in sorted(by_part[part].items()) if one.total > 0}
        for host, group in _shared(source.kind, part, known):
            inside = [one for name, one in group.items() if name not in out] or list(group.values())
            why_not = out[min(group)] if set(group) <= set(out) else None
            pools = {pool for one in group.values() for labels in one.labels for pool in labels[:-1]}
            total = max(one.total for one in inside)
            yield (
                part,
                SharedResource(
                    source.kind,
                    host,
                    tuple(group),
                    source.name(part),
                    total,
                    _means(inside),
                    why_not,
                    tuple(sorted(pools)),
                ),
            )


def _series(
    past: Past, kind: Exhaustible, of: str, measure: str, now: float, **where: str
) -> dict[Subject, list[Sample]]:
    """The samples of a measure in the kind's window. Those with other labels than the measure's are ignored."""
    since, step_s = now - kind.window_s, int(kind.step_s)
    found = past.series(of, measure, since=since, until=now + MINUTE_S, step_s=step_s, **where)
    labels = len(history.kept_measure(of, measure).labels)
    return {subject: samples for subject, samples in found.items() if len(subject.labels) == labels}


def _means(readings: Iterable[_Reading]) -> Points:
    """The mean of what hosts told, by time."""
    used: defaultdict[float, list[float]] = defaultdict(list)
    for one in readings:
        for at, values in one.used.items():
            used[at] += values
    return tuple(Point(at, sum(one) / len(one), min(one), max(one)) for at, one in sorted(used.items()))


def _part(subject: Subject) -> str:
    """What tells resources of one kind apart on a host, such as a file system."""
    return subject.labels[-1] if subject.labels else ""


def _used(sizes: Mapping[float, float], samples: Iterable[Sample]) -> Iterator[tuple[float, float]]:
    """The use at each time of which both are known and can be."""
    for one in samples:
        total = sizes.get(one.at)
        if total is not None and math.isfinite(one.mean) and 0 <= one.mean <= total:
            yield one.at, total - one.mean


def _shared(
    kind: Exhaustible, part: str, readings: Mapping[str, _Reading]
) -> Iterator[tuple[str, dict[str, _Reading]]]:
    """The hosts that have one resource together, and its host, empty where it is of the network.

    Hosts that name one file system of the network have it together if it has one size for them.
    """
    left, is_first = dict(readings), True
    is_of_network = kind is DISK_POOL and (not part.startswith("/") or part.startswith("//"))
    while left:
        host, first = next(iter(left.items()))
        same = {
            name: one
            for name, one in left.items()
            if one is first or (is_of_network and abs(one.total - first.total) <= _SAME_SIZE * first.total)
        }
        left = {name: one for name, one in left.items() if name not in same}
        yield "" if is_of_network and is_first else host, same
        is_first = False


def _users(source: _OfHosts, resource: SharedResource, part: str, past: Past, now: float, store: Store) -> Users:
    """What VMs hold of a resource. The disks of a VM that was deleted are gone, and so is what they took."""
    ours = None
    if not source.kind.is_returned:
        with store.reading() as session:
            ours = {(vm.request.tenant, vm.request.name) for vm in session.vms()}
    found: defaultdict[tuple[str, str], list[Point]] = defaultdict(list)
    for host in resource.hosts:
        for subject, samples in _series(past, source.kind, VM, source.held, now, host=host).items():
            is_gone = ours is not None and subject.tenant != "" and (subject.tenant, subject.vm) not in ours
            if _part(subject) == part and not is_gone:
                found[subject.tenant, subject.vm] += [Point(one.at, one.mean, one.low, one.high) for one in samples]
    return {vm: tuple(sorted(points)) for vm, points in found.items()}


def _licences(
    past: Past, now: float, pools: Sequence[LicencePool], seats: Sequence[LicenceSeat]
) -> Iterator[tuple[SharedResource, Users]]:
    """Each licence pool, with the VMs that have its seats since they took them."""
    kind = LICENCE_SEATS
    used: defaultdict[str, defaultdict[float, float]] = defaultdict(lambda: defaultdict(float))
    if pools:
        for subject, samples in _series(past, kind, history.LICENCE, history.LICENCE_SEATS.name, now).items():
            name, _edition, state = subject.labels
            for one in samples:
                used[name][one.at] += 0.0 if state == _FREE else one.mean
    for pool in pools:
        taken = [one for one in seats if one.pool == pool.name]
        before = [Point(at, count, count, count) for at, count in sorted(used[pool.name].items()) if at < now]
        points = (*before, Point(now, len(taken), len(taken), len(taken)))
        users: Users = {(one.tenant, one.vm_name): _held_since(one.taken_at, points) for one in taken}
        yield SharedResource(kind, "", (), f"licence pool {pool.name}", float(pool.seats), points), users


def _held_since(taken_at: float, points: Points) -> Points:
    return tuple(Point(one.at, 1.0, 1.0, 1.0) for one in points if one.at >= taken_at) or (points[-1],)
