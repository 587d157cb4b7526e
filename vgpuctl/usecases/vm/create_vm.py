# SPDX-License-Identifier: Apache-2.0
"""create-vm: from a request to a running VM that holds its GPU shares, or to nothing at all (design, section 8)."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpuctl.agent.wire.steps import Step
from vgpuctl.errors import ConcurrentChange, HostError, NoCapacity, StateError, VgpuctlError, VmDiffers
from vgpuctl.guests.domain_facts import DomainState
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.network import Attachment, Network
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.plural import counted
from vgpuctl.model.reservation import Reservation
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.model.volume import wanted_volumes
from vgpuctl.scheduler.place import place
from vgpuctl.scheduler.scorer import FleetView, view_of
from vgpuctl.scheduler.victims import Candidate, Eviction
from vgpuctl.usecases.network.ports import connect, disconnect, free_port, network_of, on_its_host, take_port
from vgpuctl.usecases.placement.preemption import find_eviction
from vgpuctl.usecases.placement.quota import refuse_early, refuse_over_quota
from vgpuctl.usecases.placement.reservations import (
    placement_of,
    refuse_for_reservation,
    refuse_redeclared,
    use_now,
    with_promises,
)
from vgpuctl.usecases.placement.usable_hosts import usable_hosts
from vgpuctl.usecases.support.capacities import declared_gpus
from vgpuctl.usecases.support.differences import difference
from vgpuctl.usecases.support.failed_hosts import FailedHosts, on_host
from vgpuctl.usecases.support.observations import note_state
from vgpuctl.usecases.support.operations import refuse_while_busy
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.support.survey import survey
from vgpuctl.usecases.support.undo import Undo
from vgpuctl.usecases.vm import guest
from vgpuctl.usecases.vm.cpu_pins import floating_on, keep_off_pinned_cpus
from vgpuctl.usecases.vm.image_gate import images_on, refuse_unregistered
from vgpuctl.usecases.vm.preempt_vms import NO_CONSENT, Consent, claims_end, make_room
from vgpuctl.usecases.vm.quarantine import start_domain
from vgpuctl.usecases.vm.shares import apply, build_shares, check_leases, describe_share, leases_of, plan_leases
from vgpuctl.usecases.vm.volumes import make_volumes, recorded_volumes

PLACEMENTS_TRIED = 6


@dataclass(frozen=True)
class CreatedVm:
    """The answer of create-vm.

    changed: False when the VM was there already. steps, undo, xml: what was or would be done. victims: VMs that were
    or would be preempted; a dry run that needs some has no steps, since the host is not free yet.
    """

    vm: Vm
    leases: tuple[Lease, ...]
    changed: bool
    steps: tuple[Step, ...] = ()
    undo: tuple[Step, ...] = ()
    xml: str | None = None
    victims: tuple[Candidate, ...] = ()


def create_vm(
    services: Services,
    request: VmRequest,
    *,
    dry_run: bool = False,
    refresh: bool = False,
    consent: Consent = NO_CONSENT,
    reservation: str | None = None,
) -> CreatedVm:
    """Create and start one VM, or find that it is there already.

    When it fits only if other VMs are preempted, they are, provided that there is consent (preempt_vms.make_room).
    reservation: take the shares that were promised under this name, until the present window ends.

    A host that fails is left out, and the VM is placed on another, unless something of it could not be rolled back.
    Raises NotFound (tenant), VmDiffers (a VM of this name with another specification), QuotaExceeded, NoCapacity
    (PreemptionNeeded without consent), HostError, GuestError; after any of them nothing is left behind, or the lease
    is `broken` and says why.
    """
    used, request = (None, request) if reservation is None else use_now(services, request, reservation)
    existing = find_existing(services, request, is_reserved=used is not None)
    if existing is not None:
        return existing
    refuse_early(services, request)
    network = network_of(services, request)
    wanted = on_its_host(request, network)
    hosts = usable_hosts(services, wanted)
    failed = FailedHosts(services, remember=not dry_run)
    capacities = refuse_redeclared(used, failed.read_others(hosts, refresh=refresh))
    surprise: VgpuctlError | None = None
    victims: tuple[Candidate, ...] = ()
    with claims_end(services, [request]):
        for _attempt in range(PLACEMENTS_TRIED):
            existing = find_existing(services, request, is_reserved=used is not None)
            if existing is not None:
                return existing
            try:
                placement = _place(services, wanted, capacities, used)
            except NoCapacity as full:
                if not refresh and not full.stays:
                    refresh = True
                    services.say("nothing fits what was read of the hosts before: reading them again")
                    capacities = failed.read_others(hosts, refresh=True)
                    continue
                eviction = find_eviction(services, wanted, capacities, failed=failed.names)
                if eviction is None:
                    refuse_for_reservation(services, wanted, capacities, full)
                    raise failed.explain(full) from full
                if dry_run:
                    return _plan_after(request, eviction)
                changed: VgpuctlError | None
                try:
                    changed = make_room(services, [request], [eviction.placement], eviction.victims, consent)
                except HostError as error:
                    changed, capacities = error, failed.after(error, [wanted], capacities)
                surprise, victims = changed or full, victims if changed else (*victims, *eviction.victims)
                capacities = _look_again(services, eviction.placement.host, capacities, remember=True)
                continue
            try:
                with on_host(placement.host):
                    created = _create_on(services, request, network, placement, capacities, used, dry_run=dry_run)
                    return replace(created, victims=victims)
            except HostError as error:
                surprise, capacities = error, failed.after(error, [wanted], capacities)
            except ConcurrentChange as error:
                services.say(f"{placement.host}: {error.message}; placing again")
                surprise = error
                capacities = _look_again(services, placement.host, capacities, remember=not dry_run)
    raise not_placed(request.name, surprise)


def not_placed(what: str, surprise: VgpuctlError | None) -> VgpuctlError:
    """The error of a run whose every placement failed, the last one with `surprise`."""
    if surprise is None or isinstance(surprise, HostError):
        return surprise or ConcurrentChange(f"no placement for {what} was tried")
    return ConcurrentChange(
        f"no placement for {what} held in {PLACEMENTS_TRIED} tries: {surprise.message}",
        hint="others change these hosts at the same time; try again",
    )


def find_existing(services: Services, request: VmRequest, *, is_reserved: bool = False) -> CreatedVm | None:
    """The VM of this name when it is there with the same specification; None when there is none.

    is_reserved: its time and host follow from a reservation, and are not compared.
    Raises NotFound for the tenant, ImageUnregistered, VmDiffers, or StateError when an earlier run did not finish.
    """
    with services.store.reading() as session:
        session.tenant(request.tenant)
        refuse_unregistered(session, request)
        vm = session.vm(request.tenant, request.name)
        if vm is None:
            return None
        leases = session.leases(vm_uuid=vm.uuid)
    if is_reserved:
        request = replace(request, duration_s=vm.request.duration_s, host=vm.request.host)
    differences = list_differences(vm.request, request)
    if differences:
        raise VmDiffers(
            f"VM {request.name} of tenant {request.tenant} exists on {vm.host} with another specification",
            context=differences,
            hint="a VM keeps its shape: delete it first, or choose another name",
        )
    if vm.state not in (VmState.RUNNING, VmState.STOPPED):
        refuse_while_busy(services, vm)
        reason = vm.problem or "an earlier run did not finish"
        raise StateError(
            f"VM {request.name} of tenant {request.tenant} is {vm.state}: {reason}",
            hint="run `vgpuctl repair`, then this command again",
        )
    return CreatedVm(vm, tuple(leases), changed=False)


def read_leases(
    services: Services, request: VmRequest, capacities: Sequence[HostCapacity]
) -> tuple[Sequence[Lease], FleetView]:
    """Every live lease and what is promised while the request would run, and what policies look at beside."""
    with services.store.reading() as session:
        view = view_of(request, capacities, session.last_placed_host())
        return with_promises(session, session.leases(), request), view


def list_differences(there: VmRequest, wanted: VmRequest) -> list[str]:
    """One line per field that differs: `memory_mib: 2048 there, 4096 wanted`."""
    there = replace(there, cloud_init=there.cloud_init.with_known_digests(wanted.cloud_init))
    lines: list[str] = []
    for field in (
        "gpus",
        "vcpus",
        "memory_mib",
        "hugepages_kib",
        "disk",
        "network",
        "firmware",
        "cloud_init",
        "direct_kernel",
        "autostart",
        "priority",
        "preemptible",
        "security_groups",
        "bandwidth_mbps",
        "duration_s",
    ):
        before, after = getattr(there, field), getattr(wanted, field)
        if field == "gpus":
            before, after = (tuple(gpu.text for gpu in gpus) for gpus in (before, after))
        lines += difference(field, before, after)
    if wanted.host is not None and there.host != wanted.host:
        lines += difference("host", there.host, wanted.host)
    return lines


def _place(
    services: Services, request: VmRequest, capacities: Sequence[HostCapacity], reservation: Reservation | None
) -> Placement:
    leases, view = read_leases(services, request, capacities)
    if reservation is not None:
        return placement_of(reservation, request, capacities, leases)
    return place(request, capacities, leases, view=view)


def _plan_after(request: VmRequest, eviction: Eviction) -> CreatedVm:
    """The VM that would be created after others were preempted; without steps, since the host is not free yet."""
    there = eviction.placement
    vm = Vm(str(uuid.uuid4()), request, there.host, VmState.CREATING, nodes=there.nodes)
    return CreatedVm(vm, leases_of(vm, there), changed=True, victims=eviction.victims)


def _look_again(
    services: Services, host: str, capacities: Sequence[HostCapacity], *, remember: bool
) -> list[HostCapacity]:
    fresh = survey(services, [one.name for one in capacities if one.name == host], refresh=True, remember=remember)
    with services.store.reading() as session:
        generations = {capacity.name: session.generation(capacity.name) for capacity in capacities}
    read = {capacity.name: capacity for capacity in fresh.capacities}
    return [
        replace(read.get(capacity.name, capacity), generation=generations[capacity.name])
        for capacity in capacities
        if capacity.name != host or capacity.name in read
    ]


def _create_on(
    services: Services,
    request: VmRequest,
    network: Network | None,
    placement: Placement,
    capacities: Sequence[HostCapacity],
    reservation: Reservation | None,
    *,
    dry_run: bool,
) -> CreatedVm:
    generation = next(capacity.generation for capacity in capacities if capacity.name == placement.host)
    vm = Vm(str(uuid.uuid4()), request, placement.host, VmState.CREATING, nodes=placement.nodes)
    if dry_run:
        return plan(services, vm, network, placement)
    leases = leases_of(vm, placement)
    undoing = undo_of(services, vm, VmState.BROKEN)
    try:
        with undoing:
            with services.store.transaction() as session:
                refuse_over_quota(session, request, leases)
                session.reserve(placement.host, generation, leases)
                session.add_vm(vm)
                if reservation is not None:
                    session.use_reservation(reservation, vm.uuid)
                attachment = take_port(session, vm, network)
                session.begin_operation("create-vm", vm.uuid, vm.domain_name, exclusive=True)
            shares = ", ".join(map(describe_share, leases)) or "no GPU"
            services.say(f"{vm.domain_name}: placed on {placement.host}, {shares}")
            created = build(services, vm, leases, attachment, undoing)
            with services.store.transaction() as session:
                session.set_vm_state(vm.uuid, VmState.RUNNING)
                note_state(session, vm, DomainState.RUNNING)
                session.add_event("vm-created", vm.domain_name, f"on {vm.host}")
                session.end_own_operations(vm.uuid)
            undoing.keep()
    except BaseException as error:
        undoing.finish(error)
        raise
    services.say(f"{vm.domain_name}: running on {vm.host}")
    return created


def plan(services: Services, vm: Vm, network: Network | None, placement: Placement) -> CreatedVm:
    """What creating the VM there would do. Writes nothing."""
    host = services.host(placement.host)
    leases = leases_of(vm, placement)
    with services.store.reading() as session:
        refuse_over_quota(session, vm.request, leases)
    facts = host.agent.facts()
    leases = check_leases(leases, facts, placement.host, declared_gpus(services.inventory, placement.host))
    steps, undo = plan_leases(leases, facts)
    attachment = free_port(services, vm, network)
    guest.check_nodes(vm, facts)
    images = images_on(services, host, vm, remember=False)
    guest.check(host, vm, attachment, images)
    apply(host, steps, dry_run=True)
    floating = floating_on(services, vm.host, facts)
    parts = guest.DomainParts(vm, leases, facts, attachment, images, wanted_volumes(vm), floating)
    xml = guest.render(host, parts)
    return CreatedVm(vm, leases, changed=True, steps=steps, undo=undo, xml=xml)


def build(
    services: Services, vm: Vm, leases: tuple[Lease, ...], attachment: Attachment | None, undoing: Undo
) -> CreatedVm:
    """Build the shares and start the guest. The VM's row stays `creating`, and `undoing` rolls all of it back."""
    host = services.host(vm.host)
    facts = host.agent.facts()
    with services.store.transaction() as session:
        session.save_facts(vm.host, facts, at=facts.read_at)
    leases = check_leases(leases, facts, vm.host, declared_gpus(services.inventory, vm.host))
    with services.store.transaction() as session:
        for lease in leases:
            session.set_lease_share(lease.id, lease.share)
    guest.check_nodes(vm, facts)
    images = images_on(services, host, vm, remember=True)
    guest.check(host, vm, attachment, images)
    make_volumes(services, host, vm, attachment, images, undoing)
    if any(lease.share.sharing.is_managed() for lease in leases):
        # libvirt binds these when the VM starts, so no step of the agent looks at them again.
        check_leases(leases, host.agent.facts(), vm.host, declared_gpus(services.inventory, vm.host))
    steps, undo = plan_leases(leases, facts)
    build_shares(host, steps, undo, undoing)
    leases = _advance(services, leases, LeaseState.BUILT)
    services.say(f"{vm.domain_name}: {counted(len(leases), 'share')} built")
    if attachment is not None:
        _connect(services, vm, attachment, undoing)
    undoing.push("domain", lambda: guest.remove_domain(host, vm))
    floating = floating_on(services, vm.host, facts)
    volumes = recorded_volumes(services, vm)
    xml = guest.define(host, guest.DomainParts(vm, leases, facts, attachment, images, volumes, floating))
    keep_off_pinned_cpus(services, host, facts)
    services.say(f"{vm.domain_name}: defined, starting")
    start_domain(host, vm, leases)
    guest.prove_running(host, vm, leases)
    leases = _advance(services, leases, LeaseState.RUNNING)
    return CreatedVm(replace(vm, state=VmState.RUNNING), leases, changed=True, steps=steps, undo=undo, xml=xml)


def _connect(services: Services, vm: Vm, attachment: Attachment, undoing: Undo) -> None:
    """Tell the network's backend. A refused change needs no undo: the next look finds what the store does not know."""
    refused = False
    undoing.push("port", lambda: None if refused else disconnect(services, vm))
    try:
        connect(services, attachment.network)
    except VgpuctlError:
        refused = True
        raise


def _advance(services: Services, leases: Sequence[Lease], state: LeaseState) -> tuple[Lease, ...]:
    with services.store.transaction() as session:
        for lease in leases:
            session.set_lease_state(lease.id, state)
    return tuple(replace(lease, state=state) for lease in leases)


def undo_of(services: Services, vm: Vm, left: VmState) -> Undo:
    """Begin the undo stack of a creation. Its rows are forgotten after a complete rollback, else `repair` goes on.

    left: the VM's state after a rollback in part. The run's operation ends in the same transaction.
    """

    def settle(undoing: Undo) -> None:
        with services.store.reading() as session:
            row = session.vm(vm.request.tenant, vm.request.name)
        if row is None or row.uuid != vm.uuid:
            return
        with services.store.transaction() as session:
            for lease in session.leases(vm_uuid=vm.uuid):
                state = LeaseState.BROKEN if undoing.failures else LeaseState.GONE
                session.set_lease_state(lease.id, state, undoing.problem or None)
            if undoing.failures:
                session.set_vm_state(vm.uuid, left, undoing.problem)
            else:
                session.delete_vm(vm.uuid)
            session.end_own_operations(vm.uuid)

    return Undo(services.say, subject=vm.domain_name, settle=settle)
