# SPDX-License-Identifier: Apache-2.0
"""capacity: how many more VMs of one kind fit, by host, now and after VMs moved."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vgpuctl.errors import VgpuctlError
from vgpuctl.model.network import Backend
from vgpuctl.model.numa import NO_FOOTPRINT
from vgpuctl.model.placement import Rejection
from vgpuctl.model.vm import OvnVmRequest, VmRequest, VmState
from vgpuctl.quota.host_pools import closed_hosts
from vgpuctl.scheduler.calendar import Booking
from vgpuctl.scheduler.capacity import Move, PlacedVm, count_more, defragment
from vgpuctl.scheduler.explain import rejections_of
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.guest_place import footprint_of_vm
from vgpuctl.scheduler.host_rules import CellLeft, left_on
from vgpuctl.scheduler.place import refuse_unknown
from vgpuctl.scheduler.promised import promised_leases
from vgpuctl.usecases.observed.guest_driver import with_image_driver
from vgpuctl.usecases.observed.observations import readings_in_words
from vgpuctl.usecases.observed.survey import survey
from vgpuctl.usecases.placement.named_things import look_up
from vgpuctl.usecases.placement.quota import quota_room
from vgpuctl.usecases.placement.reservations import promises_to_others
from vgpuctl.usecases.placement.usable_hosts import refuse_unknown_host, silent_hosts
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.seats.licences import free_seats


@dataclass(frozen=True)
class HostCount:
    """How many more fit on one host.

    backfill: how many more fit beside those, of VMs that end before the first reservation there (`backfill_until`).
    cells: what each of its NUMA nodes has left for one such VM; one entry for a host with one node. seen: the host's
    last answer in words, with its age.
    """

    host: str
    now: int
    after_defrag: int | None = None
    backfill: int = 0
    backfill_until: float | None = None
    cells: tuple[CellLeft, ...] = ()
    seen: str = ""


@dataclass(frozen=True)
class Capacity:
    """now: without what is reserved for a time in which they would run; backfill: what such VMs may use until then.

    after_defrag: None when it was not asked. moves: what would have to move for it. refusals: why no host takes one,
    where none does, and the hosts that do not answer.
    free_licences: for such VMs; None where licences are not counted. quota: how many more each quota of the tenant
    allows, of those that limit such VMs. Both limit the sums, not the hosts'
    numbers, whose sum is hosts_take. not_looked_at: what only the host that gets a VM is asked for.
    """

    now: int
    backfill: int
    after_defrag: int | None
    hosts: tuple[HostCount, ...]
    moves: tuple[Move, ...]
    failures: tuple[tuple[str, VgpuctlError], ...]
    refusals: tuple[Rejection, ...] = ()
    free_licences: int | None = None
    quota: Mapping[str, int] = field(default_factory=dict)
    hosts_take: int = 0
    not_looked_at: tuple[str, ...] = ()


def capacity(
    services: Services,
    request: VmRequest,
    *,
    after_defrag: bool = False,
    refresh: bool = False,
    may_contact: bool = True,
) -> Capacity:
    """Count with the rules that place VMs. request.tenant: whose pools and quotas count, empty for every host.

    may_contact: whether hosts that the store has no facts of are read.

    Raises NotFound for the tenant and for what the request names, InventoryError without any host, UsageError for an
    unknown type.
    """
    closed: dict[str, str] = {}
    if request.tenant:
        with services.store.reading() as session:
            session.tenant(request.tenant)
            closed = dict(closed_hosts(request.tenant, session.host_pools()))
    with services.store.reading() as session:
        request = with_image_driver(session, request)
        carried = session.vms_in(Backend.OVN) if after_defrag else frozenset()
    request, not_looked_at = look_up(services, request)
    names = services.hosts()
    refuse_unknown_host(services, request.host, names)
    seen = survey(services, names, refresh=refresh, may_contact=may_contact)
    refuse_unknown(request, [one.facts for one in seen.capacities])
    silent = [one for name, one in silent_hosts(services, seen).items() if name not in closed]
    usable = [one for one in seen.capacities if one.name not in {*closed, *(no.host for no in silent)}]
    with services.store.reading() as session:
        leases = session.leases()
        vms = [vm for vm in session.vms() if vm.state in (VmState.RUNNING, VmState.STOPPED)]
        at = session.now()
        promises = promises_to_others(session, at)
        seats = free_seats(session, request)
        ages = readings_in_words(session, [one.name for one in usable])
    taken = promised_leases(leases, promises, at, request.duration_s)
    now = count_more(request, usable, taken)
    until = _first_begins(promises, at, request.duration_s)
    backfill: Counter[str] = Counter()
    if until:
        kept = [one for one in promises if one.begin <= at]
        backfill = count_more(request, usable, promised_leases(leases, kept, at, None))
        backfill.subtract(now)
    then: Counter[str] | None = None
    moves: tuple[Move, ...] = ()
    if after_defrag:
        placed = [
            PlacedVm(
                vm_uuid=vm.uuid,
                name=vm.printed_name,
                request=OvnVmRequest.of(vm.as_known) if vm.uuid in carried else vm.as_known,
                host=vm.host,
                footprint=footprint_of_vm(vm, own) if vm.state is VmState.RUNNING else NO_FOOTPRINT,
                leases=own,
            )
            for vm in vms
            for own in [tuple(lease for lease in leases if lease.vm_uuid == vm.uuid)]
            if vm.host in {one.name for one in usable}
        ]
        found = defragment(request, usable, taken, _movable(placed, promises))
        then, moves = found.counts, found.moves
    hosts = tuple(
        HostCount(
            one.name,
            now[one.name],
            None if then is None else then[one.name],
            max(0, backfill[one.name]),
            until.get(one.name) if backfill[one.name] > 0 else None,
            left_on(request, one),
            ages[one.name],
        )
        for one in usable
    )
    total = sum(one.backfill for one in hosts)
    fleet = Fleet(usable, taken)
    refusals = (*(() if now.total() else rejections_of(fleet, request)), *silent)
    quota: Mapping[str, int] = {}
    if request.tenant:
        with services.store.reading() as session:
            quota = quota_room(session, request, fleet.place(request))
    most = min([*quota.values(), *([] if seats is None else [seats])], default=math.inf)
    fit, after = now.total(), None if then is None else then.total()
    if most < math.inf:
        fit, total = min(fit, int(most)), min(total, max(0, int(most) - fit))
        after = None if after is None else min(after, int(most))
    return Capacity(fit, total, after, hosts, moves, seen.failures, refusals, seats, quota, now.total(), not_looked_at)


def _first_begins(promises: Sequence[Booking], now: float, duration_s: float | None) -> dict[str, float]:
    """By host, when the first reservation begins while a VM of this duration would run."""
    end = math.inf if duration_s is None else now + duration_s
    found: dict[str, float] = {}
    for one in sorted(promises, key=lambda one: one.begin):
        if now < one.begin < end:
            found.setdefault(one.host, one.begin)
    return found


def _movable(placed: Sequence[PlacedVm], promises: Sequence[Booking]) -> list[PlacedVm]:
    """The VMs that may move: VMs on a reserved share (backfill) stay, because the share counts as theirs."""
    reserved = {(one.host, held.function) for one in promises for held in one.shares}
    return [vm for vm in placed if not any((lease.host, lease.share.function) in reserved for lease in vm.leases)]
