# SPDX-License-Identifier: Apache-2.0
"""start-vm: start a stopped VM on its host, with the shares it kept or with new ones."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import HostError, NoCapacity, StateError
from vgpuctl.guests.domain_facts import DomainState
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.numa import FLAT
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.scheduler.guest_place import give_nodes
from vgpuctl.scheduler.place import place_again
from vgpuctl.usecases.network.ports import attachment_of, connect
from vgpuctl.usecases.placement.preemption import find_eviction
from vgpuctl.usecases.placement.quota import refuse_over_quota
from vgpuctl.usecases.placement.reservations import with_promises
from vgpuctl.usecases.support.capacities import capacity_of, declared_gpus, read_promises
from vgpuctl.usecases.support.observations import note_state
from vgpuctl.usecases.support.operations import operation
from vgpuctl.usecases.support.services import HostSession, Services
from vgpuctl.usecases.support.undo import Undo
from vgpuctl.usecases.vm import guest
from vgpuctl.usecases.vm.cpu_pins import floating_on, keep_off_pinned_cpus
from vgpuctl.usecases.vm.image_gate import images_again
from vgpuctl.usecases.vm.preempt_vms import Consent, claims_end, make_room, refuse_while_preempted
from vgpuctl.usecases.vm.quarantine import start_domain
from vgpuctl.usecases.vm.shares import build_shares, check_leases, leases_of, plan_leases, refuse_kept
from vgpuctl.usecases.vm.volumes import recorded_volumes


def start_vm(services: Services, vm: Vm, *, consent: Consent | None = None) -> tuple[Vm, bool]:
    """Start `vm`: build the shares that the host lost (a reboot) or that were released, then the domain.

    consent: on what terms it may preempt other VMs on its host; None for never, as for a VM that was preempted itself.

    Returns the VM as it is now, and whether anything changed. Raises NoCapacity when its host is full, QuotaExceeded
    when released shares no longer fit into the tenant's quota.
    """
    if vm.state not in (VmState.RUNNING, VmState.STOPPED):
        raise StateError(f"VM {vm.request.name} is {vm.state}: {vm.problem or ''}", hint="run `vgpuctl repair`")
    host = services.host(vm.host)
    if vm.state is VmState.RUNNING and host.hypervisor.state(vm.domain_name, uuid=vm.uuid) is DomainState.RUNNING:
        return vm, False
    refuse_while_preempted(services, vm)
    with operation(services, "start-vm", vm), claims_end(services, [vm.request]):
        guest.refuse_other_domain(host, vm)
        with services.store.reading() as session:
            before = frozenset(lease.id for lease in session.leases(vm_uuid=vm.uuid))
        undoing = Undo(services.say, subject=vm.domain_name, settle=lambda undo: _settle(services, vm, before, undo))
        try:
            with undoing:
                vm = _start(services, host, vm, consent, undoing)
                undoing.keep()
        except BaseException as error:
            undoing.finish(error)
            raise
        services.say(f"{vm.domain_name}: running on {vm.host}")
    return replace(vm, state=VmState.RUNNING), True


class _MadeRoom(Exception):
    """Other VMs of the host were preempted: its facts are to be read again."""


def _start(services: Services, host: HostSession, vm: Vm, consent: Consent | None, undoing: Undo) -> Vm:
    facts = host.agent.facts()
    with services.store.transaction() as session:
        session.save_facts(vm.host, facts, at=facts.read_at)
        leases: Sequence[Lease] = session.leases(vm_uuid=vm.uuid)
    wanted = sum(gpu.count for gpu in vm.request.gpus)
    if len(leases) != wanted or (vm.state is VmState.STOPPED and not leases):
        try:
            vm, leases = _reserve_again(services, vm, facts, consent)
        except _MadeRoom:
            facts = host.agent.facts()
            vm, leases = _reserve_again(services, vm, facts, None)
    else:
        refuse_kept(leases, facts, vm.host, declared_gpus(services.inventory, vm.host))
        if vm.nodes is None:
            vm = _record_nodes(services, vm, leases, facts)
    guest.check_nodes(vm, facts)
    steps, undo = plan_leases(leases, facts)
    build_shares(host, steps, undo, undoing)
    attachment = attachment_of(services, vm)
    if attachment is not None:
        connect(services, attachment.network)
    if not vm.is_adopted:
        images, volumes = images_again(services, host, vm), recorded_volumes(services, vm)
        floating = floating_on(services, vm.host, facts)
        guest.define(host, guest.DomainParts(vm, leases, facts, attachment, images, volumes, floating))
    keep_off_pinned_cpus(services, host, facts)
    services.say(f"{vm.domain_name}: starting")
    state = host.hypervisor.state(vm.domain_name, uuid=vm.uuid)
    if state is None or not state.is_active():
        undoing.push("start", lambda: host.hypervisor.destroy(vm.domain_name, uuid=vm.uuid))
    start_domain(host, vm, leases)
    guest.prove_running(host, vm, leases)
    with services.store.transaction() as session:
        for lease in leases:
            session.set_lease_state(lease.id, LeaseState.RUNNING)
        session.set_vm_state(vm.uuid, VmState.RUNNING)
        note_state(session, vm, DomainState.RUNNING)
        session.add_event("vm-started", vm.domain_name, f"on {vm.host}")
    return vm


def _reserve_again(services: Services, vm: Vm, facts: HostFacts, consent: Consent | None) -> tuple[Vm, Sequence[Lease]]:
    """The VM with leases and NUMA nodes anew: what it had, memory too, may be another VM's by now.

    Raises _MadeRoom when VMs were preempted for it, on the terms of `consent`.
    """
    with services.store.reading() as session:
        generation = session.generation(vm.host)
        leases = with_promises(session, session.leases(), vm.request, vm)
        promises = read_promises(session)
    capacity = capacity_of(vm.host, facts, generation, promises, services.inventory)
    constraints = replace(capacity.constraints, maintenance=None)  # it takes no new VM, and this one is not
    capacity = replace(capacity, constraints=constraints, groups=frozenset())
    pinned = replace(vm.request, host=vm.host)
    try:
        placement = place_again(pinned, capacity, leases, vm.nodes)
    except NoCapacity as full:
        if consent is not None and _make_room(services, pinned, capacity, consent):
            raise _MadeRoom from full
        raise NoCapacity(
            f"{vm.domain_name} cannot start: {vm.host}, where its disk is, has no room for it now",
            context=full.context,
            hint="stop or delete another VM there, or wait",
            brief=full.brief,
        ) from full
    again = check_leases(leases_of(vm, placement), facts, vm.host, capacity.declared)
    with services.store.transaction() as session:
        refuse_over_quota(session, vm.request, again, is_new=False)
        session.reserve(vm.host, generation, again)
        session.set_vm_nodes(vm.uuid, placement.nodes)
    return replace(vm, nodes=placement.nodes), again


def _make_room(services: Services, request: VmRequest, capacity: HostCapacity, consent: Consent) -> bool:
    """Preempt other VMs of the host, without gangs that have a VM on a host that fails. Returns False without any."""
    failed: set[str] = set()
    while True:
        eviction = find_eviction(services, request, [capacity], failed=failed)
        if eviction is None:
            return False
        try:
            make_room(services, [request], [eviction.placement], eviction.victims, consent, is_new=False)
        except HostError as error:
            if error.host is None or error.host in (capacity.name, *failed):
                raise
            services.forget_host(error.host)
            services.say(f"{error.host} failed, its VMs are not preempted: {error.said_of(error.host)}")
            failed.add(error.host)
        else:
            return True


def _record_nodes(services: Services, vm: Vm, leases: Sequence[Lease], facts: HostFacts) -> Vm:
    """Give a VM that kept its shares its part of the NUMA nodes, where an older vgpuctl recorded none.

    Its guest stays without NUMA nodes and its vCPUs float. Where the host was oversold before, it stays unrecorded.
    """
    with services.store.reading() as session:
        promises = read_promises(session, without=[vm.uuid])
        generation = session.generation(vm.host)
    capacity = capacity_of(vm.host, facts, generation, promises, services.inventory)
    nodes, _ = give_nodes(vm.request, capacity, [lease.share.numa_node for lease in leases], FLAT)
    if nodes is None or vm.is_adopted:
        return vm
    with services.store.transaction() as session:
        session.bump_generation(vm.host, generation)
        session.set_vm_nodes(vm.uuid, nodes)
    return replace(vm, nodes=nodes)


def _settle(services: Services, vm: Vm, before: Collection[str], undoing: Undo) -> None:
    """Release the leases that this run took, or leave them to `repair`. The VM stays as it was: it has its disk."""
    state = LeaseState.BROKEN if undoing.failures else LeaseState.GONE
    with services.store.transaction() as session:
        for lease in session.leases(vm_uuid=vm.uuid):
            if lease.id not in before:
                session.set_lease_state(lease.id, state, undoing.problem or None)
        if undoing.failures:
            session.set_vm_state(vm.uuid, vm.state, undoing.problem, kept_until=vm.ends_at)
