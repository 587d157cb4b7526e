# SPDX-License-Identifier: Apache-2.0
"""The rows of every kind of state of model/states/, from one reading transaction of the store."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vgpuctl.agent.wire.readings import HostReadings
from vgpuctl.model.lease import Lease
from vgpuctl.model.promise import FRESH_S, GpuFault, LastFinding, PromiseVerdict
from vgpuctl.model.restriction import WHOLE_HOST, Restriction, RestrictionKind
from vgpuctl.model.states import SEAT_STATES, STATE_KINDS, UNKNOWN, StateKind, StateRow, TruthMismatch, state_kind
from vgpuctl.model.units import MIB
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.model.volume import VolumeState
from vgpuctl.quota.resources import RATES, Resource, adds_up
from vgpuctl.scheduler.gpu_map import map_gpus
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.attempts import Attempts, attempts_by_host
from vgpuctl.usecases.observed.capacities import cached_capacities, with_silence
from vgpuctl.usecases.observed.fleet_reader import HostSnapshot, state_now
from vgpuctl.usecases.observed.known_promises import gpu_faults, silence_of
from vgpuctl.usecases.observed.network_states import AskedNetworks, network_rows
from vgpuctl.usecases.observed.node_pool_states import pool_rows
from vgpuctl.usecases.observed.observation_record import (
    ABSENT,
    FREE,
    LOST,
    MISSING,
    NEVER_LOOKED,
    STALE,
    TAKEN,
    UP,
    Record,
    Seen,
    answered_at,
)
from vgpuctl.usecases.observed.observations import ObservedHost, observation_records, observed_hosts
from vgpuctl.usecases.observed.promise_record import recorded_of_hosts
from vgpuctl.usecases.observed.strays import Stray, strays_by_host
from vgpuctl.usecases.running.operations import may_run

if TYPE_CHECKING:
    from vgpuctl.inventory.load import Inventory

_UNITS: Mapping[str, tuple[str, float]] = {
    Resource.MEMORY: ("bytes", MIB),
    Resource.FRAMEBUFFER: ("bytes", MIB),
    Resource.DISK: ("bytes", MIB),
    Resource.SNAPSHOTS: ("bytes", MIB),
    Resource.GPU_HOURS: ("seconds", 1),
    Resource.COMPUTE: ("gpus", 0.001),
    Resource.IOPS: ("operations_per_second", 1),
    Resource.BANDWIDTH: ("bytes_per_second", 125_000),
}
"""Unit of a resource's metric, and how many of it are one of the quota's; every other resource is counted."""
_TRUTH_OF_SHARES = {
    LOST: TruthMismatch.SHARE_LOST,
    TAKEN: TruthMismatch.SHARE_TAKEN,
    FREE: TruthMismatch.SHARE_FREE,
}


@dataclass(frozen=True)
class States:
    """The rows of every kind of state, by its name; each kind of the table is there. at: the store's time.

    vms, leases: all of the store, read in the same transaction.
    """

    at: float
    rows: Mapping[str, Sequence[StateRow]]
    vms: Sequence[Vm]
    leases: Sequence[Lease]

    def of(self, name: str) -> Sequence[StateRow]:
        """Return the rows of one kind."""
        return self.rows[state_kind(name).name]

    def items(self) -> Iterator[tuple[StateKind, Sequence[StateRow]]]:
        """Return every kind in the table's order, with its rows."""
        for kind in STATE_KINDS:
            yield kind, self.rows[kind.name]


@dataclass(frozen=True)
class _Stored:
    now: float
    hosts: Sequence[str]
    records: Mapping[str, Record]
    tried: Mapping[str, Attempts | None]
    vms: Sequence[Vm]
    leases: Sequence[Lease]
    restrictions: Sequence[Restriction]
    parents: Mapping[tuple[str, str], str]
    promises: Mapping[str, Mapping[str, Sequence[LastFinding]]]
    faults: Mapping[str, GpuFault]
    readings: Mapping[str, HostReadings]
    snapshots: Mapping[str, HostSnapshot]
    strays: Mapping[str, Mapping[str, Stray]]

    def record(self, host: str) -> Record:
        return self.records.get(host, NEVER_LOOKED)


def read_states(
    session: Session,
    hosts: Collection[str] = (),
    *,
    readings: Mapping[str, HostReadings] | None = None,
    snapshots: Mapping[str, HostSnapshot] | None = None,
    inventory: "Inventory | None" = None,
    networks: AskedNetworks | None = None,
    is_read_only: bool = False,
    of: Collection[str] | None = None,
) -> States:
    """Read every state, or those of some kinds of objects (StateKind.of); the other kinds have no rows then.

    hosts: the inventory's, beside those that the store knows.
    readings: by host, compared with the store for `truth_mismatch`. snapshots: the last attempts of this process to
    read each host. inventory: what is said there of hosts counts for
    the shares that are free. networks: what OVN's southbound database said. is_read_only: what the store said when it
    was opened.
    """
    records = observation_records(session)
    vms, leases, restrictions = session.vms(), session.leases(), session.restrictions()
    known = {*hosts, *records, *(vm.host for vm in vms), *(one.host for one in restrictions)}
    stored = _Stored(
        session.now(),
        sorted(known),
        records,
        attempts_by_host(session, records),
        vms,
        leases,
        restrictions,
        _parents(session, restrictions, records),
        recorded_of_hosts(session),
        gpu_faults(leases, restrictions),
        readings or {},
        snapshots or {},
        strays_by_host(session),
    )
    rows: dict[str, list[StateRow]] = {kind.name: [] for kind in STATE_KINDS}
    parts: tuple[tuple[str, Callable[[], _Rows]], ...] = (
        ("host", lambda: _of_hosts(stored)),
        ("gpu", lambda: _of_gpus(stored)),
        ("lease", lambda: _of_leases(stored)),
        ("vm", lambda: _of_vms(stored)),
        ("queue", lambda: _of_queue(session, stored)),
        ("node-pool", lambda: pool_rows(session)),
        ("quota", lambda: _of_quotas(session)),
        ("licence", lambda: _of_licences(session)),
        ("capacity", lambda: _of_capacity(session, inventory, leases, observed_hosts(session))),
        ("reservation", lambda: _of_reservations(session, stored)),
        ("network volume", lambda: _of_networks_and_volumes(session)),
        ("port", lambda: network_rows(session, vms, networks)),
        ("store controller", lambda: _of_store(session, is_read_only=is_read_only)),
        ("truth", lambda: _of_truth(stored)),
    )
    for objects, read in parts:
        if of is None or not set(of).isdisjoint(objects.split()):
            for name, row in read():
                rows[name].append(row)
    return States(stored.now, rows, vms, leases)


_HELD, _COMING_BACK = SEAT_STATES
_Rows = Iterator[tuple[str, StateRow]]


def _parents(
    session: Session, restrictions: Sequence[Restriction], records: Mapping[str, Record]
) -> dict[tuple[str, str], str]:
    """The GPU of each restricted VF, by host and VF. Facts are read of hosts with such a VF only."""
    parents = {}
    for host in sorted({one.host for one in restrictions if _names_function(one, records)}):
        cached = session.facts(host)
        for gpu in () if cached is None else cached.facts.gpus:
            for function in gpu.vfs:
                parents[host, function.address] = gpu.address
    return parents


def _names_function(one: Restriction, records: Mapping[str, Record]) -> bool:
    return one.device != WHOLE_HOST and one.device not in records.get(one.host, NEVER_LOOKED).gpus


def _of_hosts(stored: _Stored) -> _Rows:
    for host in stored.hosts:
        record, labels = stored.record(host), (host,)
        silence, tried = record.silence, stored.tried.get(host)
        text = "" if tried is None else f"tried in vain: {tried.problem}"
        text = text if silence is None else silence.problem
        since = record.read_at if silence is None else silence.since
        snapshot = stored.snapshots.get(host)
        if silence is None and snapshot is not None and snapshot.error is not None:
            text = snapshot.error.message
        yield "host_state", StateRow(labels, (_host_state(stored, host, record),), at=since, text=text)
        silence = record.libvirt_silence
        seen_at = max((seen.at for seen in record.vms.values()), default=None)
        word = "no-answer" if silence is not None else UNKNOWN if seen_at is None and record.read_at is None else UP
        at, text = (seen_at, "") if silence is None else (silence.since, silence.problem)
        yield "host_libvirt_state", StateRow(labels, (word,), at=at, text=text)
        whole = [one for one in stored.restrictions if one.host == host and one.device == WHOLE_HOST]
        yield "host_restriction", _restricted(labels, whole)
        if record.layout is not None:
            differences = "; ".join(record.layout)
            yield "host_layout_differences", StateRow(labels, value=len(record.layout), text=differences)
        if record.read_at is not None:
            yield "host_observed_timestamp_seconds", StateRow(labels, value=record.read_at)


def _host_state(stored: _Stored, host: str, record: Record) -> str:
    """The host's state. One that was up stays so while it is asked, also for readings alone."""
    seen_at = answered_at(record)
    is_old = seen_at is not None and stored.now - seen_at > FRESH_S and host not in stored.readings
    silent_since = None if record.silence is None else record.silence.since
    state = state_now(record.state, silent_since, stored.snapshots.get(host))
    return STALE if state == UP and is_old else state or UNKNOWN


def _restricted(labels: tuple[str, ...], found: Sequence[Restriction]) -> StateRow:
    at = min((one.set_at for one in found), default=None)
    return StateRow(
        labels, tuple(sorted({str(one.kind) for one in found})), at=at, text="; ".join(one.reason for one in found)
    )


def _of_gpus(stored: _Stored) -> _Rows:
    restricted: dict[tuple[str, str, str], list[Restriction]] = {}
    for host in stored.hosts:
        record = stored.record(host)
        for address, seen in sorted(record.gpus.items()):
            state = UNKNOWN if record.silence is not None else seen.state
            yield "gpu_state", StateRow((host, address), (state,), at=seen.at, text="; ".join(seen.problems))
            restricted[host, address, ""] = []
    for one in stored.restrictions:
        if one.device != WHOLE_HOST:
            gpu = stored.parents.get((one.host, one.device), one.device)
            share = "" if gpu == one.device else one.device
            restricted.setdefault((one.host, gpu, share), []).append(one)
    for labels, found in sorted(restricted.items()):
        yield "gpu_restriction", _restricted(labels, found)
        for one in found:
            if one.kind is RestrictionKind.QUARANTINE:
                row = StateRow((*labels, one.finding or ""), value=one.set_at, at=one.set_at, text=one.reason)
                yield "gpu_quarantine_timestamp_seconds", row


def _of_leases(stored: _Stored) -> _Rows:
    for lease in stored.leases:
        record, share = stored.record(lease.host), lease.share
        labels = (lease.host, share.gpu, lease.tenant, lease.vm_name, share.vfio_device, share.profile)
        yield "lease_state", StateRow(labels, (str(lease.state),), text=lease.problem or "")
        if lease.state.is_attached():
            seen = record.shares.get(lease.id)
            yield "share_state", _observed(labels, seen, is_silent=record.silence is not None)


def _observed(labels: tuple[str, ...], seen: Seen | None, *, is_silent: bool) -> StateRow:
    if seen is None:
        return StateRow(labels, (UNKNOWN,))
    return StateRow(labels, (UNKNOWN if is_silent else seen.state,), at=seen.at)


def _of_vms(stored: _Stored) -> _Rows:
    for vm in stored.vms:
        record, labels = stored.record(vm.host), (vm.host, vm.request.tenant, vm.request.name)
        yield "vm_declared_state", StateRow(labels, (str(vm.state),), text=vm.problem or "")
        is_silent = record.libvirt_silence is not None
        yield "vm_observed_state", _observed(labels, record.vms.get(vm.uuid), is_silent=is_silent)
        if vm.state is VmState.RUNNING:
            yield from _promises(stored, vm, labels)
        if vm.ends_at is not None:
            yield "vm_end_timestamp_seconds", StateRow(labels, value=vm.ends_at)
        if vm.notice is not None:
            yield "vm_preemption_timestamp_seconds", StateRow(labels, value=vm.notice.at, text=vm.notice.cause)


def _promises(stored: _Stored, vm: Vm, labels: tuple[str, ...]) -> _Rows:
    """The rows of a VM's promises, as `LastFinding.as_of` says."""
    silence = stored.record(vm.host).silence
    why = None if silence is None else silence_of(silence.since)
    verdicts = Counter[PromiseVerdict]()
    broken: dict[str, LastFinding] = {}
    for last in stored.promises.get(vm.host, {}).get(vm.uuid, ()):
        one = last.as_of(stored.now, silence=why, fault=stored.faults.get(vm.uuid))
        verdicts[one.finding.verdict] += 1
        if one.finding.is_broken:
            broken.setdefault(str(one.finding.row), one)
    if verdicts:
        for verdict in PromiseVerdict:
            yield "promise_rows", StateRow((*labels, str(verdict)), value=verdicts[verdict])
    for row, one in broken.items():
        text = f"{one.finding}: promised {one.finding.promised}, seen {one.finding.seen}"
        yield "promise_broken", StateRow((*labels, row), value=1, at=one.since, text=text)


def _of_queue(session: Session, stored: _Stored) -> _Rows:
    entries = session.queue()
    counts = Counter((one.request.tenant, str(one.kind)) for one in entries)
    oldest = {one.name: 0.0 for one in session.tenants()}
    for one in entries:
        age = max(0.0, stored.now - one.queued_at)
        oldest[one.request.tenant] = max(oldest.get(one.request.tenant, 0.0), age)
    for (tenant, kind), count in sorted(counts.items()):
        yield "queue_entries", StateRow((tenant, kind), value=count)
    for tenant, age in sorted(oldest.items()):
        yield "queue_oldest_age_seconds", StateRow((tenant,), value=age)


def _of_quotas(session: Session) -> _Rows:
    for tenant in (one.name for one in session.tenants()):
        quotas = [one for one in session.quotas(tenant) if adds_up(one.resource)]
        limited = {one.resource for one in quotas}
        for quota in quotas:
            unit, size = _UNITS.get(quota.resource, ("count", 1))
            labels = (tenant, quota.resource, unit)
            if quota.limit is not None:
                yield "tenant_quota_limit", StateRow(labels, value=quota.limit * size)
            if quota.guaranteed is not None:
                yield "tenant_quota_guaranteed", StateRow(labels, value=quota.guaranteed * size)
        for resource, amount in sorted(session.used(tenant).items()):
            if resource in RATES and resource not in limited:
                continue  # what has no limit counts as the highest one, which says nothing without a quota
            unit, size = _UNITS.get(resource, ("count", 1))
            yield "tenant_quota_used", StateRow((tenant, resource, unit), value=amount * size)


def _of_licences(session: Session) -> _Rows:
    seats = session.licence_seats()
    for pool in session.licence_pools():
        taken = [one for one in seats if one.pool == pool.name]
        counts = Counter((one.tenant, _HELD if one.released_at is None else _COMING_BACK) for one in taken)
        labels = (pool.name, str(pool.edition))
        for state in (_HELD, _COMING_BACK):
            count = sum(number for (_tenant, its), number in counts.items() if its == state)
            yield "licence_seats", StateRow((*labels, state), value=count)
        yield "licence_seats", StateRow((*labels, "free"), value=max(0, pool.seats - len(taken)))
        for (tenant, state), number in sorted(counts.items()):
            yield "tenant_licence_seats", StateRow((tenant, *labels, state), value=number)


def _of_capacity(
    session: Session, inventory: "Inventory | None", leases: Sequence[Lease], observed: Mapping[str, ObservedHost]
) -> _Rows:
    """Free and leased shares by profile, by the rules of placing, from cached facts; no row for 0 of both."""
    free: Counter[tuple[str, str]] = Counter()
    for gpu in map_gpus(with_silence(cached_capacities(session, inventory), observed), leases):
        for one in gpu.creatable if gpu.closed is None else ():
            free[gpu.host, one.profile] += one.count
    leased = Counter((one.host, one.share.profile) for one in leases)
    for host, profile in sorted({*free, *leased}):
        yield "slices", StateRow((host, profile, "free"), value=free[host, profile])
        yield "slices", StateRow((host, profile, "leased"), value=leased[host, profile])


def _of_reservations(session: Session, stored: _Stored) -> _Rows:
    for one in session.reservations():
        labels, window = (one.host, one.tenant, one.name), one.window_after(stored.now)
        if window is None:
            yield "reservation_state", StateRow(labels, ("over",))
            continue
        state = "used" if one.vm_uuid is not None else "open" if window[0] <= stored.now else "to-come"
        yield "reservation_state", StateRow(labels, (state,), at=window[0])
        yield "reservation_begin_timestamp_seconds", StateRow(labels, value=window[0])
        yield "reservation_end_timestamp_seconds", StateRow(labels, value=window[1])


def _of_networks_and_volumes(session: Session) -> _Rows:
    for network in session.networks():
        labels = (network.request.tenant, network.request.name)
        yield "network_state", StateRow(labels, (str(network.state),))
    counts = Counter((one.host, one.state) for one in session.volumes())
    for host in sorted({host for host, _state in counts}):
        for state in VolumeState:
            yield "volumes", StateRow((host, str(state)), value=counts[host, state])


def _of_store(session: Session, *, is_read_only: bool) -> _Rows:
    operations = session.open_operations()
    running = sum(may_run(one) for one in operations)
    yield "operations", StateRow(("running",), value=running)
    yield "operations", StateRow(("dead",), value=len(operations) - running)
    for one in session.controllers():
        labels = (one.id, one.hostname)
        yield "controller_beats_total", StateRow(labels, value=one.beat)
        yield "controller_hosts", StateRow(labels, value=len(one.hosts), text=", ".join(sorted(one.hosts)))
    mark = session.restore_mark()
    state = "not-reconciled" if mark is not None else "read-only" if is_read_only else "writable"
    yield "store_state", StateRow((), (state,))


def _of_truth(stored: _Stored) -> _Rows:
    found: Counter[tuple[str, TruthMismatch]] = Counter()
    about: dict[tuple[str, TruthMismatch], list[str]] = {}
    for host, kind, subject in _mismatches(stored):
        found[host, kind] += 1
        about.setdefault((host, kind), []).append(subject)
    for host in stored.hosts:
        for kind in TruthMismatch:
            text = ", ".join(about.get((host, kind), ()))
            yield "truth_mismatch", StateRow((host, str(kind)), value=found[host, kind], text=text)


def _mismatches(stored: _Stored) -> Iterator[tuple[str, TruthMismatch, str]]:
    for vm in stored.vms:
        seen = stored.record(vm.host).vms.get(vm.uuid)
        if seen is not None and not seen.as_declared:
            kind = TruthMismatch.VM_ABSENT if seen.state == ABSENT else TruthMismatch.VM_STATE
            yield vm.host, kind, vm.printed_name
    for lease in stored.leases:
        record = stored.record(lease.host)
        seen = record.shares.get(lease.id) if lease.state.is_attached() else None
        if seen is not None and not seen.as_declared and seen.state in _TRUTH_OF_SHARES:
            yield lease.host, _TRUTH_OF_SHARES[seen.state], f"{lease.vm_name} {lease.share.vfio_device}"
    leased = {(lease.host, lease.share.gpu) for lease in stored.leases}
    for host in stored.hosts:
        for address, gpu in sorted(stored.record(host).gpus.items()):
            if gpu.state == MISSING and (host, address) in leased:
                yield host, TruthMismatch.GPU_MISSING, address
    yield from _unknown_to_the_store(stored)


def _unknown_to_the_store(stored: _Stored) -> Iterator[tuple[str, TruthMismatch, str]]:
    """Domains and vGPUs of vgpuctl on a host that the store does not have there. Foreign domains are ignored."""
    vms = {(vm.host, vm.uuid) for vm in stored.vms}
    leased = {(lease.host, lease.vm_uuid, lease.share.gpu) for lease in stored.leases}
    for host, strays in stored.strays.items():
        for stray_uuid, stray in strays.items() if host not in stored.readings else ():
            if stray.is_sure and (host, stray_uuid) not in vms:
                yield host, TruthMismatch.DOMAIN_UNKNOWN, stray.name
    for host, readings in sorted(stored.readings.items()):
        ours = {one.uuid for one in readings.vms if one.tenant is not None}
        for one in readings.vms:
            if one.tenant is not None and (host, one.uuid) not in vms:
                yield host, TruthMismatch.DOMAIN_UNKNOWN, one.name
        for vgpu in readings.vgpus:
            uuid = vgpu.vm_uuid
            is_ours = uuid is not None and ((host, uuid) in vms or uuid in ours)
            if is_ours and (host, uuid, vgpu.gpu) not in leased:
                yield host, TruthMismatch.VGPU_UNKNOWN, f"{vgpu.gpu} {vgpu.profile}"
