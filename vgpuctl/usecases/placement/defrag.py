# SPDX-License-Identifier: Apache-2.0
"""defrag: plan moves of VMs that make room for others. Nothing is written and no VM is touched.

usecases/maintenance/planned_moves.py asks the hosts about the steps, and carries them out.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.errors import NoCapacity, UsageError, VgpuctlError
from vgpuctl.model.lease import Lease, without_leaving
from vgpuctl.model.numa import NO_FOOTPRINT
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.quota.host_pools import closed_hosts
from vgpuctl.scheduler.calendar import Booking
from vgpuctl.scheduler.capacity import PlacedVm
from vgpuctl.scheduler.defrag.plan import DefragPlan, Goal, MovableVm, VmWay, WayKind, plan_defrag
from vgpuctl.scheduler.defrag.search import Limits
from vgpuctl.scheduler.guest_place import footprint_of_vm
from vgpuctl.scheduler.place import refuse_unknown
from vgpuctl.scheduler.promised import promised_leases
from vgpuctl.scheduler.request_class import share_requests_of
from vgpuctl.usecases.observed.survey import survey
from vgpuctl.usecases.placement.reservations import promises_to_others
from vgpuctl.usecases.placement.usable_hosts import silent_hosts
from vgpuctl.usecases.running.services import Services

Ways = Callable[[Vm], VmWay]
"""How a VM may move."""

Asked = Callable[[Vm, Sequence[Lease]], VmRequest]
"""The request for a VM on another host. The leases are its own."""


@dataclass(frozen=True)
class StayingVm:
    """A VM that no plan moves, and why."""

    vm: str
    host: str
    reason: str


@dataclass(frozen=True)
class Defrag:
    """A plan, the VMs that stay whatever the plan is, and the hosts that do not answer."""

    plan: DefragPlan
    staying: tuple[StayingVm, ...]
    failures: tuple[tuple[str, VgpuctlError], ...]


def defrag(
    services: Services,
    request: VmRequest | None,
    count: int | None,
    limits: Limits,
    *,
    ways: Ways,
    asked: Asked,
    barred: Mapping[str, Collection[str]] | None = None,
    room_on: Collection[str] | None = None,
    tenant: str | None = None,
    refresh: bool = False,
) -> Defrag:
    """Plan moves until `count` VMs of a request fit, or as many GPUs as can be are unused where it is None.

    ways, asked: of VMs that are left where they are for no other reason. barred: hosts that a VM may not go to, by
    its UUID. room_on: the hosts on which room counts, None for all. tenant: whose VMs may move, None for all.
    Raises NotFound for the tenant, InventoryError without any host, NoCapacity where no host answers, and UsageError
    for an unknown type and a request for GPUs of several kinds.
    """
    if request is not None and len(set(share_requests_of(request))) != 1:
        raise UsageError(
            "room is made for GPUs of one kind at a time", hint="ask for each kind: --for A40-48Q, --for 2*A40-24Q"
        )
    if tenant is not None:
        with services.store.reading() as session:
            session.tenant(tenant)
    seen = survey(services, services.hosts(), refresh=refresh)
    if request is not None:
        refuse_unknown(request, [one.facts for one in seen.capacities])
    silent = silent_hosts(services, seen)
    usable = [one for one in seen.capacities if one.name not in silent]
    if not usable:
        raise NoCapacity("no host answers, so no move can be planned", hint="see `vgpuctl list-hosts`")
    with services.store.reading() as session:
        leases, at, pools = session.leases(), session.now(), session.host_pools()
        promises = promises_to_others(session, at)
        vms = [vm for vm in session.vms() if vm.host in {one.name for one in usable}]
        reserved = {one.vm_uuid: one.name for one in session.reservations() if not one.is_over(at)}
        nodes = {vm.uuid for vm in vms if session.node_of_vm(vm.uuid) is not None}
    movable, staying = [], []
    for vm in vms:
        own = without_leaving(one for one in leases if one.vm_uuid == vm.uuid)
        if not own:
            continue
        why = _why_staying(vm, own, promises, tenant, reserved.get(vm.uuid), is_node=vm.uuid in nodes)
        way = ways(vm) if why is None else VmWay(WayKind.PINNED, reason=why)
        if way.kind is WayKind.PINNED:
            staying.append(StayingVm(vm.printed_name, vm.host, way.reason))
            continue
        is_running = vm.state is VmState.RUNNING
        placed = PlacedVm(
            vm_uuid=vm.uuid,
            name=vm.printed_name,
            request=asked(vm, own),
            host=vm.host,
            footprint=footprint_of_vm(vm, own) if is_running else NO_FOOTPRINT,
            leases=tuple(sorted(own, key=lambda one: one.index)),
        )
        closed = frozenset((*closed_hosts(vm.request.tenant, pools), *(barred or {}).get(vm.uuid, ())))
        movable.append(MovableVm(placed, way, closed))
    goal = Goal(request, count, frozenset(one.name for one in usable if room_on is None or one.name in room_on))
    plan = plan_defrag(goal, usable, promised_leases(leases, promises, at, None), movable, limits)
    return Defrag(plan, tuple(staying), seen.failures)


def _why_staying(
    vm: Vm,
    own: Sequence[Lease],
    promises: Sequence[Booking],
    tenant: str | None,
    reservation: str | None,
    *,
    is_node: bool,
) -> str | None:
    """Why a plan leaves a VM where it is that could move; None when it may move."""
    if tenant is not None and vm.request.tenant != tenant:
        return f"only VMs of tenant {tenant} may move"
    if is_node:
        return "it is a node of a cluster"
    if vm.gang is not None:
        return "it was created together with others"
    if reservation is not None:
        return f"it uses reservation {reservation}"
    kept = {(one.host, held.function) for one in promises for held in one.shares}
    if any((lease.host, lease.share.function) in kept for lease in own):
        return "its GPU share is reserved for another VM later"
    return None
