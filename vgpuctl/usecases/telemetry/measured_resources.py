# SPDX-License-Identifier: Apache-2.0
"""The past readings of what VMs share: memory, huge pages and pools of hosts, and licence seats; with their outlooks.

The holdings of VMs are the larger part of the history, and are read only of a resource that ends.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.measures import HOST, VM
from vgpuctl.agent.wire.readings import NOT_MEASURABLE
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
_SAME_SIZE, _MOST_SIZES = 0.01, 32
"""Hosts that name one file system of one size share it; of two sizes it is two servers of one name, so many at most."""

_OUT = {
    RestrictionKind.DRAIN: "the host is drained for maintenance",
    RestrictionKind.FENCE: "the host was declared dead, and nothing that it says is trusted",
}


@dataclass(frozen=True)
class _OfHosts:
    """The measures of one kind. total, free: of hosts. held: of VMs.

    name: for people, by the last label, which alone tells resources of one host apart. is_room_of_others: what others
    take of the room makes the whole smaller, as of a file system of ZFS; the use then counts of the whole now.
    """

    kind: Exhaustible
    total: str
    free: str
    held: str
    name: Callable[[str], str]
    is_room_of_others: bool = False


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
        is_room_of_others=True,
    ),
)


def _page_size(kib: str) -> str:
    return format_mib(int(kib) // 1024) if kib.isdecimal() and int(kib) >= 1024 else f"{kib} KiB"


@dataclass(frozen=True)
class _Told:
    """The readings of one host about one part, such as a pool, by time. last_at: of the last total."""

    host: str
    labels: tuple[str, ...]
    totals: Mapping[float, float]
    free: Mapping[float, float]
    last_at: float

    def total(self, at: float) -> float:
        """The whole as of the last reading until a time, else as of the first."""
        if at not in self.totals:
            at = max((time for time in self.totals if time <= at), default=min(self.totals))
        return self.totals[at]

    def is_as_large_as(self, other: "_Told") -> bool:
        """True if both had one size when both were last read, as two that tell of one file system have."""
        at = min(self.last_at, other.last_at)
        one, two = self.total(at), other.total(at)
        return abs(one - two) <= _SAME_SIZE * max(one, two)


def read_outlooks(
    store: Store, past: Past, now: float, hosts: Collection[str] | None = None, tenant: str | None = None
) -> list[Outlook]:
    """The outlook of every resource, by kind, host and name.

    hosts: those that are told of, read or not; None for all that were read. tenant: name its VMs alone as causes.
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
            users = _users(source, resource, part, past, now, store) if ends else {}
            found.append(outlook(resource, judged, users, tenant))
        for host in sorted(missing):
            unread = SharedResource(source.kind, host, (host,), source.name(""), 0.0, (), out.get(host))
            found.append(outlook(unread, judge_resource(unread, now), {}))
    for pool in _unmeasured_pools(past, now, out, hosts):
        found.append(outlook(pool, judge_resource(pool, now), {}))
    for resource, users in _licences(past, now, pools, seats):
        found.append(outlook(resource, judge_resource(resource, now), users, tenant))
    return found


def hosts_with_pools_read(past: Past, now: float) -> frozenset[str]:
    """The hosts that have told the room of all their pools lately: a pool that is not among them is gone.

    Raises one of PAST_PROBLEMS.
    """
    found = past.series(HOST, "pools_read", since=now - DISK_POOL.oldest_s, until=now + MINUTE_S)
    return frozenset(one.host for one, samples in found.items() if samples[-1].low >= 1)


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
    by_part: defaultdict[str, list[_Told]] = defaultdict(list)
    totals = _series(past, source.kind, HOST, source.total, now)
    for subject, samples in _series(past, source.kind, HOST, source.free, now).items():
        sizes = {one.at: one.mean for one in totals.get(subject, ())}
        if sizes and sizes[max(sizes)] > 0 and (hosts is None or subject.host in hosts):
            free = {one.at: one.mean for one in samples if one.at in sizes and 0 <= one.mean <= sizes[one.at]}
            by_part[_part(subject)].append(_Told(subject.host, subject.labels, sizes, free, max(sizes)))
    for part, every in sorted(by_part.items()):
        for host, group, more in _shared(source, part, every):
            inside = [one for one in group if one.host not in out] or group
            having = sorted({one.host for one in group})
            why_not = out[having[0]] if set(having) <= set(out) else None
            last_at = max(one.last_at for one in inside)
            total = max(one.total(last_at) for one in inside if last_at - one.last_at <= source.kind.oldest_s)
            name, used = f"{source.name(part)}{more}", _used(source, inside, total)
            pools = () if more else _pools(group)
            yield part, SharedResource(source.kind, host, tuple(having), name, total, used, why_not, pools)


def _unmeasured_pools(
    past: Past, now: float, out: Mapping[str, str], hosts: Collection[str] | None
) -> Iterator[SharedResource]:
    """Each active storage pool whose host says now that it cannot tell the room, and has not told it in the window."""
    told = {
        (subject.host, *subject.labels)
        for subject, samples in _series(past, DISK_POOL, HOST, "pool_unmeasured", now).items()
        if (hosts is None or subject.host in hosts) and now - samples[-1].at <= DISK_POOL.oldest_s
    }
    totals = _series(past, DISK_POOL, HOST, "pool_total_bytes", now) if told else {}
    known = {(subject.host, subject.labels[0]) for subject in totals}
    for host, pool, of_type, kind in sorted(told):
        if (host, pool) not in known:
            untold = f"vgpuctl has no reading for pools of type {of_type}, whose room libvirt tells as of a refresh"
            unread = f"the host cannot read it now: `vgpuctl check-hosts --limit {host}` tells why"
            why = out.get(host) or (untold if kind == NOT_MEASURABLE else unread)
            yield SharedResource(DISK_POOL, host, (host,), f"disk pool {pool}", 0.0, (), why)


def _series(
    past: Past, kind: Exhaustible, of: str, measure: str, now: float, **where: str
) -> dict[Subject, list[Sample]]:
    """The samples of a measure in the kind's window. Those with other labels than the measure's are ignored."""
    since, step_s = now - kind.window_s, int(kind.step_s)
    found = past.series(of, measure, since=since, until=now + MINUTE_S, step_s=step_s, **where)
    labels = len(history.kept_measure(of, measure).labels)
    return {subject: samples for subject, samples in found.items() if len(subject.labels) == labels}


def _used(source: _OfHosts, group: Iterable[_Told], total: float) -> Points:
    """The use by time: the mean of what hosts told. total: the whole now.

    It is below 0 where more was free than the whole is now, for the trend is that of the room that is left.
    """
    used: defaultdict[float, list[float]] = defaultdict(list)
    for one in group:
        for at, free in one.free.items():
            whole = min(one.totals[at], total) if source.is_room_of_others else one.totals[at]
            used[at].append(whole - free)
    return tuple(Point(at, sum(one) / len(one), min(one), max(one)) for at, one in sorted(used.items()))


def _part(subject: Subject) -> str:
    """The name that tells resources of one kind apart on a host, such as a file system."""
    return subject.labels[-1] if subject.labels else ""


def _shared(source: _OfHosts, part: str, every: Sequence[_Told]) -> Iterator[tuple[str, list[_Told], str]]:
    """Each resource of one part: its host, empty where it is of the network, who tells of it, and the name's end.

    Hosts that name one file system of the network have it together if it has one size for them. Pools of one file
    system have one size too, unless a quota gives each its own.
    """
    is_of_network = source.kind is DISK_POOL and (not part.startswith("/") or part.startswith("//"))
    scopes: defaultdict[str, list[_Told]] = defaultdict(list)
    for one in every:
        scopes["" if is_of_network else one.host].append(one)
    for _scope, told in sorted(scopes.items()):
        for number, group in enumerate(_of_one_size(told)):
            more = f" ({', '.join(_pools(group))})" if number else ""
            yield "" if is_of_network and number == 0 else group[0].host, group, more


def _of_one_size(told: Iterable[_Told]) -> list[list[_Told]]:
    """Groups of one size, by their first host, which stays the first while it is silent."""
    groups: list[list[_Told]] = []
    for one in sorted(told, key=lambda one: (-one.last_at, one.host, one.labels)):
        group = next((group for group in groups if group[0].is_as_large_as(one)), None)
        if group is not None:
            group.append(one)
        elif len(groups) < _MOST_SIZES:
            groups.append([one])
    by_name = [sorted(group, key=lambda one: (one.host, one.labels)) for group in groups]
    return sorted(by_name, key=lambda group: (group[0].host, group[0].labels))


def _pools(group: Iterable[_Told]) -> tuple[str, ...]:
    return tuple(sorted({pool for one in group for pool in one.labels[:-1]}))


def _users(source: _OfHosts, resource: SharedResource, part: str, past: Past, now: float, store: Store) -> Users:
    """The part of a resource that each VM holds. The disks of a deleted VM are gone, and so is their part."""
    ours = None
    if not source.kind.is_returned:
        with store.reading() as session:
            ours = {(vm.request.tenant, vm.request.name) for vm in session.vms()}
    found: defaultdict[tuple[str, ...], list[Point]] = defaultdict(list)
    for host in resource.hosts:
        for subject, samples in _series(past, source.kind, VM, source.held, now, host=host).items():
            is_gone = ours is not None and subject.tenant != "" and (subject.tenant, subject.vm) not in ours
            if _part(subject) == part and not is_gone:
                own = (host,) if not subject.tenant and len(resource.hosts) > 1 else ()
                points = (Point(one.at, one.mean, one.low, one.high) for one in samples)
                found[subject.tenant, subject.vm, *own] += points
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
