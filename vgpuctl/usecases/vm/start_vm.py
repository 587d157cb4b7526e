# SPDX-License-Identifier: Apache-2.0
"""start-vm: start stopped VMs on their hosts, with the shares they kept or with new ones; a gang as a whole."""

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import ConcurrentChange, HostError, NoCapacity, StateError
from vgpuctl.guests.domain.moved import moved_xml
from vgpuctl.guests.facts.domain_facts import DomainState
from vgpuctl.guests.libvirtd.saved_state import SavedState
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease, LeaseState, without_leaving
from vgpuctl.model.network import Attachment
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.vm import Hold, Vm, VmRequest, VmState
from vgpuctl.model.volume import VolumeKind
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.gang import as_one, place_together
from vgpuctl.scheduler.place import place_again
from vgpuctl.sharing.gate import refuse_closed_host
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.domain.carried_state import look_at_state, note_lost_state
from vgpuctl.usecases.domain.guest_state import find_variables, refuse_other_build
from vgpuctl.usecases.domain.promises import Findings, note_started
from vgpuctl.usecases.found.find_vm import refuse_unfinished
from vgpuctl.usecases.found.vm_values import values_of
from vgpuctl.usecases.image.answers import drop_answers
from vgpuctl.usecases.image.image_gate import images_again
from vgpuctl.usecases.image.volumes import recorded_volumes
from vgpuctl.usecases.network.detached_ports import free_detached_ports
from vgpuctl.usecases.network.ports import attachments_of, connect, with_attachments
from vgpuctl.usecases.observed.capacities import (
    cached_capacities,
    capacity_of,
    open_to_its_own,
    read_promises,
    rules_of,
)
from vgpuctl.usecases.observed.observations import note_facts, note_state
from vgpuctl.usecases.observed.strays import refuse_second_start
from vgpuctl.usecases.placement.preemption import find_eviction
from vgpuctl.usecases.placement.quota import refuse_over_quota
from vgpuctl.usecases.placement.reservations import with_promises
from vgpuctl.usecases.placement.usable_hosts import usable_hosts
from vgpuctl.usecases.running.operations import operation, refuse_unsettled
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.running.undo import Undo
from vgpuctl.usecases.seats.licences import refuse_without_seats, take_seat
from vgpuctl.usecases.share.cpu_pins import floating_on, keep_off_pinned_cpus, record_numa
from vgpuctl.usecases.share.health_gate import refuse_sick
from vgpuctl.usecases.share.partitions import activate_partition, activation
from vgpuctl.usecases.share.quarantine import start_domain
from vgpuctl.usecases.share.release import release_shares
from vgpuctl.usecases.share.restore_shares import lost_shares, noting_refusals, say_made_again
from vgpuctl.usecases.share.shares import (
    build_shares,
    check_leases,
    leases_of,
    plan_leases,
    refuse_unsuitable,
    rehearse_steps,
)
from vgpuctl.usecases.vm.final_preemptions import refuse_while_preempted
from vgpuctl.usecases.vm.move_place import refuse_staying
from vgpuctl.usecases.vm.preempt_vms import claims_end, make_room
from vgpuctl.usecases.vm.preemption_consent import SHUTDOWN_TIMEOUT_S, Consent
from vgpuctl.usecases.vm.stop_vm import Stop, stop_vm


def start_vm(
    services: Services,
    vms: Sequence[Vm],
    *,
    consent: Consent | None = None,
    shutdown_timeout_s: float = SHUTDOWN_TIMEOUT_S,
    reason: str | None = None,
    still: VmState | None = None,
    discards: bool = False,
) -> list[tuple[Vm, bool]]:
    """Start VMs, all or none: build the shares that a host lost (a reboot) or that were released, then the domains.

    consent: on what terms it may preempt other VMs; None for never, as for VMs that were preempted themselves.
    When one of several cannot start, those that this run started are stopped again, within shutdown_timeout_s each;
    reason: for their stop. still: raise ConcurrentChange for a VM that is in another state by now. discards: boot a
    suspended VM from its disk, without what it had in memory.
    Returns each VM as it is now, and whether anything changed. Raises NoCapacity when a host is full, QuotaExceeded
    when released shares no longer fit into the tenant's quota.
    """
    if len(vms) > 1:
        _refuse_without_room(services, vms)
        for vm in vms:
            guest.check_parts_now(services, vm)
    started = []
    with Undo(services.say) as undoing:
        for number, vm in enumerate(vms, 1):
            running, changed = _start_one(services, vm, consent, still, discards=discards)
            started.append((running, changed))
            if changed and number < len(vms):
                why = reason or "its gang did not start"
                stop = partial(stop_vm, services, running, Stop(Hold.RELEASE, shutdown_timeout_s, why, drain_s=0))
                undoing.push(f"start of {vm.printed_name}", stop)
        undoing.keep()
    return started


def _start_one(
    services: Services, vm: Vm, consent: Consent | None, still: VmState | None, *, discards: bool
) -> tuple[Vm, bool]:
    refuse_unfinished(vm)
    refuse_unsettled(services, vm)
    refuse_closed(services, vm)
    host = services.host(vm.host)
    state = host.hypervisor.state(vm.domain_name, uuid=vm.uuid)
    if vm.state is VmState.RUNNING and state is DomainState.RUNNING:
        return vm, False
    refuse_while_preempted(services, vm)
    refuse_second_start(services, vm, state)
    with operation(services, "start-vm", vm), claims_end(services, [vm.request]):
        guest.refuse_other_domain(host, vm)
        if state is not None and state.is_paused():
            return _resume(services, host, vm), True
        with services.store.reading() as session:
            before = frozenset(lease.id for lease in session.leases(vm_uuid=vm.uuid))
            stored = session.vm(vm.request.tenant, vm.request.name)
        if still is not None and (stored is None or (stored.uuid, stored.state) != (vm.uuid, still)):
            raise ConcurrentChange(f"another run has just changed {vm.printed_name}")
        undoing = Undo(
            services.say, subject=f"start of {vm.printed_name}", settle=partial(_settle, services, vm, before)
        )
        saved = SavedState(host.hypervisor, vm.domain_name, vm.uuid)
        is_resumed = not vm.is_adopted and saved.xml() is not None
        if vm.is_suspended and not (is_resumed or discards or services.goes_on):
            raise StateError(
                f"{vm.printed_name} cannot go on: {vm.host} has its saved memory no more",
                hint="`vgpuctl start-vm --discard-state` boots it without what it had in memory",
            )
        if is_resumed and discards and not services.goes_on:
            saved.drop()
            is_resumed = False
        try:
            with undoing:
                vm = _start(services, host, vm, before, consent, undoing)
                undoing.keep()
        except BaseException as error:
            undoing.finish(error)
            raise
        services.say(f"{vm.printed_name}: running on {vm.host}")
        if is_resumed and not services.goes_on:
            _check_resumed(services, host, vm)
    return replace(vm, state=VmState.RUNNING, problem=None), True


def _check_resumed(services: Services, host: HostSession, vm: Vm) -> None:
    """Find out whether the state of its vGPUs came back with a VM that was suspended. Raises GuestError."""
    if vm.request.gpus:
        found = look_at_state(host, vm)
        note_lost_state(services, vm, found.lost)
        if vm.lost_state is not None:  # what was saved is a vGPU that was reset before
            found = replace(found, lost=(*found.lost, vm.lost_state))
        if found.doubt is not None:
            with services.store.transaction() as session:
                session.set_vm_state(vm.uuid, VmState.RUNNING, f"was resumed: {found.doubt}")
        found.require(vm)


def refuse_closed(services: Services, vm: Vm) -> None:
    """Raise StateError, before its host is contacted, where not even the host's own VMs start."""
    refusal = refuse_closed_host(rules_of(services, vm.host))
    if refusal is not None and not refusal.code.admits_residents():
        raise StateError(f"{vm.printed_name} cannot start on {vm.host}: {refusal.reason}", hint=refusal.remedy)


def _refuse_without_room(services: Services, vms: Sequence[Vm]) -> None:
    """Raise NoCapacity when VMs do not fit together on their hosts as far as the store knows. No host is contacted."""
    requests = [replace(vm.request, host=vm.host) for vm in vms]
    with services.store.reading() as session:
        hosts = {vm.host for vm in vms}
        capacities = [one for one in cached_capacities(session, services.inventory) if one.name in hosts]
        leases = with_promises(session, session.leases(), as_one(requests))
        refuse_without_seats(session, requests, uuids={vm.uuid for vm in vms})
    if place_together(Fleet([open_to_its_own(one) for one in capacities], leases), requests) is None:
        raise NoCapacity(
            f"the {len(vms)} VMs of the gang do not fit together on their hosts now",
            hint="stop or delete other VMs there, or wait",
        )


class _MadeRoom(Exception):
    """Other VMs of the host were preempted: its facts are to be read again."""


def _start(
    services: Services,
    host: HostSession,
    vm: Vm,
    before: Collection[str],
    consent: Consent | None,
    undoing: Undo,
) -> Vm:
    """Start a VM. before: the leases that it has kept."""
    asked_at = time.monotonic()
    facts = host.agent.facts()
    with services.store.transaction() as session:
        note_facts(session, vm.host, facts, asked_at=asked_at)
        leases: Sequence[Lease] = session.leases(vm_uuid=vm.uuid)
    leases, facts = _without_leaving(services, host, vm, leases, facts)
    wanted = sum(gpu.count for gpu in vm.request.gpus)
    if len(leases) != wanted or (vm.state is VmState.STOPPED and not leases):
        try:
            vm, leases = _reserve_again(services, vm, facts, consent)
        except _MadeRoom:
            facts = host.agent.facts()
            vm, leases = _reserve_again(services, vm, facts, None)
    else:
        refuse_unsuitable(vm, leases, facts, rules_of(services, vm.host))
        with services.store.transaction() as session:
            take_seat(session, vm, leases)
        if vm.numa is None:
            vm = record_numa(services, vm, leases, facts)
    refuse_sick(services, host, leases, host.agent.health())
    guest.check_nodes(vm, facts)
    if not vm.is_adopted:
        guest.check_parts(vm, facts, attachments_of(services, vm))
    guest.check_display(vm, leases, facts)
    steps, undo = plan_leases(vm, leases, facts, rules_of(services, vm.host))
    if services.rehearsal is not None and services.goes_on:
        rehearse_steps(services, host, (*steps, *activation(vm, leases, facts)))
        services.rehearsal.would(vm.host, f"start domain {vm.domain_name}")
        _note_running(services, vm, leases, (), has_started=True)
        return vm
    taken, was_started = [lease for lease in leases if lease.id not in before], False
    # Undone last: what a guest may have used comes back like any other share.
    undoing.push("health of the GPUs", lambda: release_shares(services, host, taken) if was_started else None)
    lost = lost_shares(vm, [lease for lease in leases if lease.id in before], facts)
    with noting_refusals(services, lost):
        build_shares(host, steps, undo, undoing)
    say_made_again(services, vm, lost)
    attachments = _connected(services, vm)
    if not vm.is_adopted:
        _define(services, host, vm, leases, facts, attachments)
    if host.hypervisor.clear_autostart(vm.domain_name, uuid=vm.uuid):
        services.say(f"{vm.printed_name}: libvirt no longer starts it with its host")
    keep_off_pinned_cpus(services, host, facts)
    services.say(f"{vm.printed_name}: starting")
    was_started = _may_start(services, host, vm, leases, facts, undoing)
    start_domain(services, host, vm, leases)
    findings = guest.prove_running(services, host, vm, leases, boot_id=facts.boot_id)
    _note_running(services, vm, leases, findings, has_started=True)
    return vm


def _may_start(
    services: Services, host: HostSession, vm: Vm, leases: Sequence[Lease], facts: HostFacts, undoing: Undo
) -> bool:
    """Activate the partition of the VM's GPUs, and have its guest ended by a rollback. Returns True."""
    activate_partition(services, host, vm, leases, facts, undoing)
    state = host.hypervisor.state(vm.domain_name, uuid=vm.uuid)
    if state is None or not state.is_active():
        undoing.push("start", lambda: host.hypervisor.destroy(vm.domain_name, uuid=vm.uuid))
    return True


def _note_running(
    services: Services, vm: Vm, leases: Sequence[Lease], findings: Findings, *, has_started: bool
) -> None:
    """Record a VM as running. has_started: with a new QEMU; False for one that was paused."""
    with services.store.transaction() as session:
        for lease in leases:
            session.set_lease_state(lease.id, LeaseState.RUNNING)
        session.set_vm_state(vm.uuid, VmState.RUNNING, has_started=has_started)
        note_state(session, vm, DomainState.RUNNING)
        note_started(session, vm, findings)
        after = values_of(vm, leases, VmState.RUNNING)
        session.add_vm_event(EventKind.VM_STARTED, vm, before={"state": str(vm.state)}, after=after)


def _resume(services: Services, host: HostSession, vm: Vm) -> Vm:
    """Let the guest of a paused VM go on. Its QEMU has its GPUs still, whatever the store says of the VM."""
    with services.store.reading() as session:
        leases = [lease for lease in session.leases(vm_uuid=vm.uuid) if lease.state.is_attached()]
    if vm.request.gpus and not leases:
        raise StateError(
            f"cannot start {vm.printed_name}: it gave up its GPU shares, and its domain is paused with them",
            hint=f"take its power with `virsh destroy {vm.domain_name}` on {vm.host}, then start it",
        )
    services.say(f"{vm.printed_name}: was paused, and goes on")
    boot_id = host.agent.health().boot_id
    host.hypervisor.resume(vm.domain_name, uuid=vm.uuid)
    findings = guest.prove_running(services, host, vm, leases, boot_id=boot_id)
    _note_running(services, vm, leases, findings, has_started=False)
    return vm


def _define(
    services: Services,
    host: HostSession,
    vm: Vm,
    leases: Sequence[Lease],
    facts: HostFacts,
    attachments: Sequence[Attachment],
) -> None:
    """Define the domain of a VM as it is to start, without the answers that its first run had."""
    images, volumes = images_again(services, host, vm), recorded_volumes(services, vm)
    floating = floating_on(services, vm.host, facts)
    host.hypervisor.take_name(vm.domain_name, uuid=vm.uuid)
    variables = find_variables(services, host, vm)
    refuse_other_build(host, facts, vm, variables)
    parts = guest.DomainParts(vm, leases, facts, attachments, images, volumes, floating, variables=variables)
    xml = guest.define(host, parts)
    saved = SavedState(host.hypervisor, vm.domain_name, vm.uuid)
    restored = saved.xml()
    if restored is not None:  # it goes on with the devices that it has now
        services.say(f"{vm.printed_name}: goes on from its saved state")
        saved.change(moved_xml(restored, xml))
    if drop_answers(services, vm):
        services.say(f"{vm.printed_name}: starts without the answers of its installation, which asks from now on")


def _connected(services: Services, vm: Vm) -> Sequence[Attachment]:
    """Its ports, which their networks' backends know. Those that were detached while it ran are free now."""
    free_detached_ports(services, vm)
    attachments = attachments_of(services, vm)
    connect(services, [one.network for one in attachments])
    return attachments


def _without_leaving(
    services: Services, host: HostSession, vm: Vm, leases: Sequence[Lease], facts: HostFacts
) -> tuple[Sequence[Lease], HostFacts]:
    """Release the GPUs that were to be detached when the VM stopped. Returns its other leases and the facts then.

    A domain that is only paused keeps them.
    """
    staying = without_leaving(leases)
    state = host.hypervisor.state(vm.domain_name, uuid=vm.uuid)
    if len(staying) == len(leases) or (state is not None and state.is_active()):
        return staying, facts
    release_shares(services, host, [one for one in leases if one not in staying])
    return staying, host.agent.facts()


def _reserve_again(services: Services, vm: Vm, facts: HostFacts, consent: Consent | None) -> tuple[Vm, Sequence[Lease]]:
    """Give the VM new leases and NUMA nodes: another VM may hold its former ones, memory too, by now.

    Raises _MadeRoom when VMs were preempted for it, on the terms of `consent`.
    """
    with services.store.reading() as session:
        generation = session.generation(vm.host)
        leases = with_promises(session, session.leases(), vm.request, vm)
        promises = read_promises(session)
    capacity = capacity_of(vm.host, facts, generation, promises, services.inventory)
    capacity = open_to_its_own(capacity)
    pinned = with_attachments(replace(vm.as_known, host=vm.host), attachments_of(services, vm))
    try:
        placement = place_again(pinned, capacity, leases, vm.numa)
    except NoCapacity as full:
        if consent is not None and _make_room(services, pinned, capacity, consent):
            raise _MadeRoom from full
        raise NoCapacity(
            f"{vm.printed_name} cannot start: {vm.host}, {_why_there(services, vm)}, has no room for it now",
            context=full.context,
            hint=(full.hint or "stop or delete another VM there, or wait") + _way_out(services, vm, pinned),
            brief=full.brief,
            short=full.short,
        ) from full
    again = check_leases(leases_of(vm, placement), vm.request.gpus, facts, capacity.rules)
    with services.store.transaction() as session:
        if not (session.vm_of(vm.uuid) or vm).is_on_its_way:  # one that is had its shares until now
            refuse_over_quota(session, vm.request, again, is_new=False)
        session.reserve(vm.host, generation, again)
        take_seat(session, vm, again)
        session.set_vm_numa(vm.uuid, placement.numa)
    return replace(vm, numa=placement.numa), again


def _why_there(services: Services, vm: Vm) -> str:
    """Why a VM starts on its host and on no other."""
    if vm.request.host is not None:
        return "for which it was created"
    if vm.is_adopted:
        return "where its domain was adopted"
    has_disk = any(one.kind is not VolumeKind.ANSWERS for one in recorded_volumes(services, vm))
    return "where its disk is" if has_disk else "where it ran last, and which has no disk of it"


def _way_out(services: Services, vm: Vm, pinned: VmRequest) -> str:
    """The command that takes a VM to a host with room, where it may leave its own; empty without such a host."""
    try:
        refuse_staying(services, vm)
        hosts = {*usable_hosts(services, vm.request)} - {vm.host}
    except (StateError, NoCapacity):
        return ""
    with services.store.reading() as session:
        capacities = [one for one in cached_capacities(session, services.inventory) if one.name in hosts]
        leases = with_promises(session, session.leases(), vm.request)
    placement = Fleet(capacities, leases).place(replace(pinned, host=None))
    if placement is None:
        return ""
    name = f"{vm.request.name} --tenant {vm.request.tenant}"
    return f"; or `vgpuctl move-vm {name} --to {placement.host}`, which has room"


def _make_room(services: Services, request: VmRequest, capacity: HostCapacity, consent: Consent) -> bool:
    """Preempt other VMs of the host, without gangs that have a VM on a host that fails. Returns False without any."""
    failed: set[str] = set()
    while True:
        eviction = find_eviction(services, [request], [capacity], failed=failed)
        if eviction is None:
            return False
        try:
            make_room(services, [request], eviction.placements, eviction.victims, consent, is_new=False)
        except HostError as error:
            if error.host is None or error.host in (capacity.name, *failed):
                raise
            services.forget_host(error.host)
            services.say(f"{error.host} failed, its VMs are not preempted: {error.said_of(error.host)}")
            failed.add(error.host)
        else:
            return True


def _settle(services: Services, vm: Vm, before: Collection[str], undoing: Undo) -> None:
    """Release the leases that this run took, or leave them to `repair`. The VM stays as it was: it has its disk."""
    state = LeaseState.BROKEN if undoing.failures else LeaseState.GONE
    with services.store.transaction() as session:
        if vm.state is VmState.STOPPED and not vm.is_on_its_way:
            session.release_licence_seat(vm.uuid)
        for lease in session.leases(vm_uuid=vm.uuid):
            if lease.id not in before:
                session.set_lease_state(lease.id, state, undoing.problem or None)
        if undoing.failures:
            session.set_vm_state(vm.uuid, vm.state, undoing.problem, kept_until=vm.ends_at)
