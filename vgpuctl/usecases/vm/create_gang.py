# SPDX-License-Identifier: Apache-2.0
"""create-vm --gang: several VMs together or not at all, also when a host fails or the run is killed."""

import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from vgpuctl.errors import ConcurrentChange, HostError, NoCapacity, StateError, UsageError, VgpuctlError
from vgpuctl.guests.domain_facts import DomainState
from vgpuctl.model.lease import Lease
from vgpuctl.model.network import Attachment, Network
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.plural import counted
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.gang import place_together
from vgpuctl.scheduler.gang_victims import GangEviction
from vgpuctl.scheduler.place import place
from vgpuctl.scheduler.victims import Candidate
from vgpuctl.store.records import Operation
from vgpuctl.usecases.network.ports import network_of, on_its_host, take_port
from vgpuctl.usecases.placement.preemption import as_one, find_eviction_together
from vgpuctl.usecases.placement.quota import refuse_early, refuse_over_quota
from vgpuctl.usecases.placement.usable_hosts import usable_hosts
from vgpuctl.usecases.support.failed_hosts import FailedHosts, on_host
from vgpuctl.usecases.support.observations import note_state
from vgpuctl.usecases.support.operations import may_run
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.vm.create_vm import (
    PLACEMENTS_TRIED,
    CreatedVm,
    build,
    find_existing,
    not_placed,
    plan,
    read_leases,
    undo_of,
)
from vgpuctl.usecases.vm.preempt_vms import NO_CONSENT, Consent, claims_end, make_room
from vgpuctl.usecases.vm.shares import describe_share, leases_of

OPERATION = "create-gang"
"""The intent of each member. A member that is still `creating` when its run is dead is rolled back with the others."""


@dataclass(frozen=True)
class _Member:
    """One VM of the gang on its way. wanted: the request with the host that its network is on."""

    request: VmRequest
    wanted: VmRequest
    network: Network | None


def create_gang(
    services: Services,
    requests: Sequence[VmRequest],
    *,
    dry_run: bool = False,
    refresh: bool = False,
    consent: Consent = NO_CONSENT,
) -> tuple[CreatedVm, ...]:
    """Create and start all of these VMs, or none; the same again changes nothing.

    No VM becomes `running` in the store before all are. When they fit only if other VMs are preempted, they are,
    provided that there is consent (preempt_vms.make_room); in a dry run the first VM of the answer names them all.
    Raises UsageError for VMs of several tenants, StateError when only some of them are there, and what create_vm
    raises; after any of them nothing is left behind, or the VMs are `deleting` and `repair` rolls them back.
    """
    existing = find_existing_gang(services, requests)
    if existing is not None:
        return existing
    refuse_early(services, *requests)
    members = []
    for request in requests:
        network = network_of(services, request)
        members.append(_Member(request, on_its_host(request, network), network))
    surprise: VgpuctlError | None = None
    victims: tuple[Candidate, ...] = ()
    hosts = usable_hosts(services, members[0].wanted)
    failed = FailedHosts(services, remember=not dry_run)
    with claims_end(services, requests):
        for _attempt in range(PLACEMENTS_TRIED):
            capacities = failed.read_others(hosts, refresh=refresh)
            placements = _place(services, members, capacities)
            if placements is None:
                surprise = full = _no_room(services, members, capacities)
                if not refresh and not full.stays:
                    refresh = True
                    continue
                wanted = [one.wanted for one in members]
                eviction = find_eviction_together(services, wanted, capacities, failed=failed.names)
                if eviction is None:
                    raise failed.explain(full)
                if dry_run:
                    return _plan_after(members, eviction)
                try:
                    changed = make_room(services, requests, eviction.placements, eviction.victims, consent)
                except HostError as error:
                    surprise = error
                    failed.after(error, wanted, capacities)
                    continue
                surprise, victims = changed or full, victims if changed else (*victims, *eviction.victims)
                continue
            try:
                if dry_run:
                    return _plan(services, members, placements)
                first, *others = _create(services, members, placements, capacities)
                return (replace(first, victims=victims), *others)
            except HostError as error:
                surprise = error
                failed.after(error, [one.wanted for one in members], capacities)
            except ConcurrentChange as error:
                services.say(f"{error.message}; placing again")
                surprise = error
                refresh = True
    raise not_placed(f"{counted(len(members), 'VM')} together", surprise)


def find_existing_gang(services: Services, requests: Sequence[VmRequest]) -> tuple[CreatedVm, ...] | None:
    """All of these VMs when they are there with the same specifications; None when none is.

    Raises UsageError for VMs of several tenants, StateError when only some are there, and what find_existing raises.
    """
    if len({request.tenant for request in requests}) > 1:
        raise UsageError("VMs of several tenants cannot be created together", hint="create each tenant's on its own")
    there = [find_existing(services, request) for request in requests]
    existing = tuple(one for one in there if one is not None)
    if len(existing) == len(requests):
        return existing
    if existing:
        names = ", ".join(one.vm.request.name for one in existing)
        missing = ", ".join(request.name for request, one in zip(requests, there, strict=True) if one is None)
        raise StateError(
            f"of the VMs to create together {names} {'is' if len(existing) == 1 else 'are'} there already",
            hint=f"delete them, or create the rest ({missing}) without --gang",
        )
    return None


def given_up(operations: Sequence[Operation], vms: Sequence[Vm]) -> list[Vm]:
    """Members of gangs whose run died before all of them ran."""
    dead = {one.subject for one in operations if one.kind == OPERATION and not may_run(one)}
    return [vm for vm in vms if vm.uuid in dead and vm.state is VmState.CREATING]


def give_up_gangs(services: Services) -> None:
    """Note that such members are to be rolled back, also those that run already."""
    with services.store.transaction() as session:
        for vm in given_up(session.open_operations(), session.vms()):
            session.set_vm_state(vm.uuid, VmState.DELETING, "the VMs it was to be created with are not all there")


def _place(
    services: Services, members: Sequence[_Member], capacities: Sequence[HostCapacity]
) -> list[Placement] | None:
    requests = [one.wanted for one in members]
    leases, view = read_leases(services, as_one(requests), capacities)
    return place_together(Fleet(capacities, leases, view=view), requests)


def _no_room(services: Services, members: Sequence[_Member], capacities: Sequence[HostCapacity]) -> NoCapacity:
    """The refusal of the gang, with the reasons of its first member that fits nowhere even alone."""
    alone: NoCapacity | None = None
    for one in members:
        try:
            leases, view = read_leases(services, one.wanted, capacities)
            place(one.wanted, capacities, leases, view=view)
        except NoCapacity as refused:
            alone = refused
            break
    names = ", ".join(one.request.name for one in members)
    tenant = members[0].request.tenant
    return NoCapacity(
        f"the {counted(len(members), 'VM')} {names} of tenant {tenant} do not fit together; none was created",
        context=() if alone is None else alone.context,
        hint="ask for fewer, or see what each alone is refused for with `vgpuctl explain-vm`",
        brief=None if alone is None else alone.brief,
        stays=alone is not None and alone.stays,
    )


def _plan(services: Services, members: Sequence[_Member], placements: Sequence[Placement]) -> tuple[CreatedVm, ...]:
    planned = []
    for member, placement in zip(members, placements, strict=True):
        vm = Vm(str(uuid.uuid4()), member.request, placement.host, VmState.CREATING, nodes=placement.nodes)
        with on_host(placement.host):
            planned.append(plan(services, vm, member.network, placement))
    return tuple(planned)


def _plan_after(members: Sequence[_Member], eviction: GangEviction) -> tuple[CreatedVm, ...]:
    """What would be created when VMs gave way; without steps, since the hosts are not free yet."""
    planned: list[CreatedVm] = []
    for member, placement in zip(members, eviction.placements, strict=True):
        vm = Vm(str(uuid.uuid4()), member.request, placement.host, VmState.CREATING, nodes=placement.nodes)
        victims = () if planned else eviction.victims
        planned.append(CreatedVm(vm, leases_of(vm, placement), changed=True, victims=victims))
    return tuple(planned)


def _create(
    services: Services,
    members: Sequence[_Member],
    placements: Sequence[Placement],
    capacities: Sequence[HostCapacity],
) -> tuple[CreatedVm, ...]:
    generations = {capacity.name: capacity.generation for capacity in capacities}
    begun: list[tuple[tuple[Lease, ...], Attachment | None]] = []
    gang = str(uuid.uuid4())
    vms = [
        Vm(str(uuid.uuid4()), member.request, there.host, VmState.CREATING, gang=gang, nodes=there.nodes)
        for member, there in zip(members, placements, strict=True)
    ]
    # What cannot be rolled back is left `deleting`, not `broken`: `repair` rolls that back and never finishes it.
    undos = [undo_of(services, vm, VmState.DELETING) for vm in vms]
    try:
        with ExitStack() as blocks:
            for undoing in undos:
                blocks.enter_context(undoing)
            with services.store.transaction() as session:
                for vm, member, placement in zip(vms, members, placements, strict=True):
                    leases = leases_of(vm, placement)
                    refuse_over_quota(session, member.request, leases)
                    generations[vm.host] = session.reserve(vm.host, generations[vm.host], leases)
                    session.add_vm(vm)
                    begun.append((leases, take_port(session, vm, member.network)))
                    session.begin_operation(OPERATION, vm.uuid, vm.domain_name, exclusive=True)
            for vm, (leases, _) in zip(vms, begun, strict=True):
                shares = ", ".join(map(describe_share, leases)) or "no GPU"
                services.say(f"{vm.domain_name}: placed on {vm.host}, {shares}")
            created = []
            for vm, (leases, attachment), undoing in zip(vms, begun, undos, strict=True):
                with on_host(vm.host):
                    created.append(build(services, vm, leases, attachment, undoing))
            with services.store.transaction() as session:
                for one in created:
                    session.set_vm_state(one.vm.uuid, VmState.RUNNING)
                    note_state(session, one.vm, DomainState.RUNNING)
                    session.add_event("vm-created", one.vm.domain_name, f"on {one.vm.host}, with its gang")
                    session.end_own_operations(one.vm.uuid)
            for undoing in undos:
                undoing.keep()
    except BaseException as error:
        for undoing in reversed(undos):
            undoing.finish(error)
        raise
    for one in created:
        services.say(f"{one.vm.domain_name}: running on {one.vm.host}")
    return tuple(created)
