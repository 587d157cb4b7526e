# SPDX-License-Identifier: Apache-2.0
"""Building one placed VM on its host: its shares, network port, volumes and domain, proven by reading back."""

import time
from collections.abc import Sequence
from dataclasses import replace

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import ConcurrentChange, VgpuctlError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.host_constraints import HostRules
from vgpuctl.model.image import HostImages
from vgpuctl.model.interfaces import interfaces_of
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.network import Attachment
from vgpuctl.model.plural import counted
from vgpuctl.model.units import format_mib
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.model.volume import Volume, VolumeKind, wanted_volumes
from vgpuctl.sharing.kinds import kind_of
from vgpuctl.sharing.partition_rules import told_partition
from vgpuctl.usecases.disk.kept_disks import take_kept
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.found.vm_values import values_of
from vgpuctl.usecases.image.image_gate import images_on
from vgpuctl.usecases.image.licence_token import refuse_expired_token, with_licence_token
from vgpuctl.usecases.image.volumes import make_volumes, recorded_volumes
from vgpuctl.usecases.network.ports import connect, disconnect
from vgpuctl.usecases.observed.capacities import rules_of
from vgpuctl.usecases.observed.observations import note_facts
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.running.undo import Undo
from vgpuctl.usecases.share.cpu_pins import floating_on, keep_off_pinned_cpus
from vgpuctl.usecases.share.health_gate import refuse_sick
from vgpuctl.usecases.share.partitions import activate_partition, activation
from vgpuctl.usecases.share.quarantine import start_domain
from vgpuctl.usecases.share.release import release_shares
from vgpuctl.usecases.share.shares import (
    build_shares,
    check_leases,
    plan_leases,
    rehearse_steps,
    say_about_terms,
)
from vgpuctl.usecases.vm.created_vm import CreatedVm, Write, WriteKind


def _planned(
    services: Services,
    host: HostSession,
    vm: Vm,
    made: Sequence[Volume],
    leases: tuple[Lease, ...],
    facts: HostFacts,
    attachments: Sequence[Attachment],
    images: HostImages,
) -> CreatedVm:
    """The steps, undo list and domain XML of a VM that was checked. made: volumes, which only the store records."""
    with services.store.transaction() as session:
        for volume in made:
            session.intend_volume(volume)
    steps, undo = plan_leases(vm, leases, facts, rules_of(services, vm.host))
    steps += activation(vm, leases, facts)
    rehearse_steps(services, host, steps)
    floating = floating_on(services, vm.host, facts)
    volumes = recorded_volumes(services, vm)
    parts = guest.DomainParts(vm, leases, facts, attachments, images, volumes, floating)
    xml = guest.render(host, parts.of_first_run())
    writes = _writes(vm, made, attachments)
    partition, _problem = told_partition((one.share for one in leases), facts)
    return CreatedVm(vm, leases, changed=True, steps=steps, undo=undo, xml=xml, writes=writes, partition=partition)


def _writes(vm: Vm, volumes: Sequence[Volume], attachments: Sequence[Attachment]) -> tuple[Write, ...]:
    """The volumes, interfaces and the domain of a VM to create."""
    addresses = {one.port.position: ", ".join(one.port.addresses) for one in attachments}
    return (
        *(Write(WriteKind.VOLUME, f"{one.pool}/{one.name}", _size(one)) for one in volumes),
        *(
            Write(WriteKind.INTERFACE, one.network, addresses.get(one.position) or "")
            for one in interfaces_of(vm.request)
        ),
        Write(WriteKind.DOMAIN, vm.domain_name),
    )


def _size(volume: Volume) -> str:
    return "" if volume.capacity_bytes is None else format_mib(volume.capacity_bytes // 2**20)


def build_vm(
    services: Services, vm: Vm, leases: tuple[Lease, ...], attachments: Sequence[Attachment], undoing: Undo
) -> CreatedVm:
    """Build the shares, start the guest and prove that it holds them. `undoing` rolls all of it back.

    The VM's row stays `creating` and its leases `built`; the answer has both as `running`, which the caller records. A
    dry run ends before the first change of the host: the answer has its row and leases as they are, the steps and the
    domain XML.
    """
    host = services.host(vm.host)
    asked_at = time.monotonic()
    facts, health = host.agent.facts_and_health()
    rules = rules_of(services, vm.host)
    reserved, leases = leases, check_leases(leases, vm.request.gpus, facts, rules)
    refuse_sick(services, host, leases, health)
    if leases != reserved:
        with services.store.transaction() as session:
            for lease in leases:
                session.set_lease_share(lease.id, lease.share)
    guest.check_nodes(vm, facts)
    guest.check_parts(vm, facts, attachments, refusal=ConcurrentChange)
    guest.check_display(vm, leases, facts)
    images = images_on(services, host, vm, remember=True)
    seeded = with_licence_token(services, vm)
    refuse_expired_token(seeded, services.store.now())
    guest.check(host, seeded, attachments, images)
    take_kept(services, vm, undoing)
    if services.goes_on:
        _say_limits(services, host, vm, leases, facts, rules)
        return _planned(services, host, vm, wanted_volumes(seeded), leases, facts, attachments, images)
    make_volumes(services, host, seeded, attachments, images, undoing)
    if any(kind_of(lease.share.sharing).is_bound_by_libvirt for lease in leases):
        # libvirt binds these when the VM starts, so no step of the agent looks at them again.
        check_leases(leases, vm.request.gpus, host.agent.facts(), rules_of(services, vm.host))
    steps, undo = plan_leases(vm, leases, facts, rules)
    was_started = False
    # Undone last: what a guest may have used comes back like any other share.
    undoing.push("health of the GPUs", lambda: release_shares(services, host, leases) if was_started else None)
    build_shares(host, steps, undo, undoing)
    with services.store.transaction() as session:
        note_facts(session, vm.host, facts, asked_at=asked_at)
        for lease in leases:
            session.set_lease_state(lease.id, LeaseState.BUILT)
    services.say(f"{vm.printed_name}: {counted(len(leases), 'share')} built")
    _say_limits(services, host, vm, leases, facts, rules)
    if attachments:
        _connect(services, vm, attachments, undoing)
    undoing.push("domain", lambda: guest.remove_domain(host, vm))
    floating = floating_on(services, vm.host, facts)
    volumes = recorded_volumes(services, vm)
    parts = guest.DomainParts(vm, leases, facts, attachments, images, volumes, floating)
    xml = guest.define(host, parts.of_first_run())
    if vm.numa is not None and vm.numa.is_pinned:
        keep_off_pinned_cpus(services, host, facts)
    services.say(f"{vm.printed_name}: defined, starting")
    was_started = True
    activate_partition(services, host, vm, leases, facts, undoing)
    start_domain(services, host, vm, leases)
    if any(one.kind is VolumeKind.ANSWERS for one in volumes):
        # At any later start, also by virsh, its installer asks before it writes.
        guest.define(host, parts)
    findings = guest.prove_running(services, host, vm, leases, boot_id=facts.boot_id)
    leases = tuple(replace(lease, state=LeaseState.RUNNING) for lease in leases)
    running = replace(vm, state=VmState.RUNNING)
    return CreatedVm(
        running,
        leases,
        changed=True,
        steps=steps,
        undo=undo,
        xml=xml,
        findings=findings,
        partition=told_partition((one.share for one in leases), facts)[0],
    )


def _say_limits(
    services: Services, host: HostSession, vm: Vm, leases: Sequence[Lease], facts: HostFacts, rules: HostRules
) -> None:
    """Say what the guest may lack on its host, in a dry run too."""
    say_about_terms(services, vm, leases, facts, rules)
    if (left_out := guest.note_left_out(host, vm, facts)) is not None:
        services.say(f"{vm.printed_name}: {left_out}")


def _connect(services: Services, vm: Vm, attachments: Sequence[Attachment], undoing: Undo) -> None:
    """Tell the network's backend. A refused change needs no undo: the next look finds what the store does not know."""
    refused = False
    undoing.push("ports", lambda: None if refused else disconnect(services, vm))
    try:
        connect(services, [one.network for one in attachments])
    except VgpuctlError:
        refused = True
        raise


def undo_of(services: Services, vm: Vm) -> Undo:
    """Begin the undo stack of a creation. Its rows are forgotten after a complete rollback, else `repair` goes on.

    After a rollback in part the VM is `broken`; one of a gang is `deleting`, which `repair` never finishes as running.
    The run's operation ends in the same transaction.
    """

    left = VmState.BROKEN if vm.gang is None else VmState.DELETING

    def settle(undoing: Undo) -> None:
        with services.store.reading() as session:
            row = session.vm(vm.request.tenant, vm.request.name)
        if row is None or row.uuid != vm.uuid:
            return
        with services.store.transaction() as session:
            held = session.leases(vm_uuid=vm.uuid)
            for lease in held:
                state = LeaseState.BROKEN if undoing.failures else LeaseState.GONE
                session.set_lease_state(lease.id, state, undoing.problem or None)
            if undoing.failures:
                session.set_vm_state(vm.uuid, left, undoing.problem)
            else:
                session.delete_vm(vm.uuid)
            before, after = values_of(vm, held), {"state": str(left) if undoing.failures else "gone"}
            detail = "; ".join(filter(None, (undoing.cause, undoing.problem)))
            session.add_vm_event(EventKind.VM_ROLLED_BACK, vm, detail, before=before, after=after)
            session.end_own_operations(vm.uuid)

    return Undo(services.say, subject=vm.printed_name, settle=settle)
