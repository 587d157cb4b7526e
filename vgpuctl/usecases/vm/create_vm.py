# SPDX-License-Identifier: Apache-2.0
"""create-vm: from requests to running VMs that hold their GPU shares, or to nothing at all (design, section 8)."""

import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from vgpuctl.catalog.guest_os import list_warnings
from vgpuctl.errors import ConcurrentChange, HostError, NoCapacity, QuotaExceeded, UsageError, VgpuctlError
from vgpuctl.guests.facts.domain_facts import DomainState
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.network import Attachment
from vgpuctl.model.placement import Placement
from vgpuctl.model.plural import counted
from vgpuctl.model.queue import NOT_LOOKED_AT, QueueEntry
from vgpuctl.model.reservation import Reservation
from vgpuctl.model.vm import Vm, VmRequest, VmState, printed_name
from vgpuctl.scheduler.candidates import Candidate
from vgpuctl.scheduler.kept_fleet import KeptFleet
from vgpuctl.scheduler.victims import Eviction
from vgpuctl.usecases.disk.kept_disks import refuse_shared_disks, with_kept_disks
from vgpuctl.usecases.display.console import wait_for_console
from vgpuctl.usecases.domain.promises import note_started
from vgpuctl.usecases.found.known_profiles import refuse_unknown_gpus
from vgpuctl.usecases.found.node_names import refuse_names_of_nodes
from vgpuctl.usecases.found.vm_values import values_of
from vgpuctl.usecases.network.ports import Networks, networks_of, on_its_host, take_ports, with_networks
from vgpuctl.usecases.observed.failed_hosts import on_host
from vgpuctl.usecases.observed.guest_driver import with_image_driver
from vgpuctl.usecases.observed.observations import note_state
from vgpuctl.usecases.placement.queue_entries import find_waiting, wait_for_turn
from vgpuctl.usecases.placement.quota import (
    refuse_early,
    refuse_for_ever,
    refuse_over_quota,
    refuse_placed_over_quota,
)
from vgpuctl.usecases.placement.reservations import use_now
from vgpuctl.usecases.placement.usable_hosts import why_never
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.running.undo import Undo
from vgpuctl.usecases.seats.licences import take_seat
from vgpuctl.usecases.share.shares import describe_share, leases_of
from vgpuctl.usecases.vm.build_vm import build_vm, undo_of
from vgpuctl.usecases.vm.created_vm import CreatedVm, PlacementReason
from vgpuctl.usecases.vm.find_existing import find_existing
from vgpuctl.usecases.vm.place_search import PlaceSearch
from vgpuctl.usecases.vm.preempt_vms import claims_end, make_room
from vgpuctl.usecases.vm.preemption_consent import NO_CONSENT, Consent
from vgpuctl.usecases.vm.side_by_side import Turn, in_turns, only_turn
from vgpuctl.usecases.vm.unfinished_gangs import CREATE_GANG

PLACEMENTS_TRIED = 6


@dataclass(frozen=True)
class CreateOptions:
    """Everything of create-vm that is not about a VM itself.

    is_gang: all VMs or none, instead of each for itself. may_queue: have them wait for their turn when they do not fit
    now. reservation: use the shares that were promised under this name, until its present window ends. refresh: read
    every host first. waits_for_console: return when each guest has printed something. consent: to preempt other VMs.
    written: the keys of the fields that somebody wrote, the others are defaults; None for all.
    Raises UsageError for options that exclude each other.
    """

    is_gang: bool = False
    may_queue: bool = False
    refresh: bool = False
    waits_for_console: bool = False
    reservation: str | None = None
    consent: Consent = NO_CONSENT
    written: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.reservation is not None and self.is_gang:
            raise UsageError("--gang and --reservation exclude each other", hint="one VM at a time uses a reservation")
        if self.reservation is not None and self.may_queue:
            raise UsageError("--queue and --reservation exclude each other")
        if self.may_queue and self.waits_for_console:
            raise UsageError(
                "--queue and --wait exclude each other",
                hint="`vgpuctl wait NAME --for running` waits for a queued VM",
            )


USUAL = CreateOptions()


def create_vm(
    services: Services, requests: Sequence[VmRequest], options: CreateOptions = USUAL
) -> list[CreatedVm | QueueEntry]:
    """Create and start VMs, or queue those that do not fit now; the same again changes nothing.

    Each is created for itself: when one fails, those before it stay. With is_gang all are created, or none.
    Raises what create_together raises, and for a VM to queue VmDiffers when it waits with another specification,
    StateError when it waits with other VMs, and QuotaExceeded when the tenant's quota could never admit it. Raises
    StateError for the name of a wanted node.
    """
    refuse_shared_disks(requests)
    refuse_names_of_nodes(services, requests)
    answers: list[CreatedVm | QueueEntry] = []
    fleet = KeptFleet()
    for request in requests:
        for line in list_warnings(request):
            services.say(f"warning: {line}")

    def create(together: Sequence[VmRequest], turn: Turn) -> tuple[CreatedVm, ...]:
        created = create_together(services, together, options, fleet, turn)
        if options.waits_for_console and not services.goes_on:
            for one in created:
                wait_for_console(services, one.vm)
        return created

    if options.may_queue:
        for together in [requests] if options.is_gang else [[request] for request in requests]:
            answers += _create_or_queue(services, together, options, fleet)
    elif options.is_gang or options.consent.ask is not None:  # a question is one thread's
        for together in [requests] if options.is_gang else [[request] for request in requests]:
            answers += create(together, only_turn())
    else:
        made: list[tuple[CreatedVm, ...]] = []
        in_turns(services, [[request] for request in requests], create, made)
        answers += [one for created in made for one in created]
    return answers


def _create_or_queue(
    services: Services, requests: Sequence[VmRequest], options: CreateOptions, fleet: KeptFleet
) -> Sequence[CreatedVm | QueueEntry]:
    """Create the VMs now if nobody waits and they fit together, else have them wait as one."""
    existing = find_existing(services, requests, written=options.written)
    if existing is not None:
        return existing
    with services.store.reading() as session:
        refuse_unknown_gpus(session, *requests)
        refuse_for_ever(session, *requests)
        entry = find_waiting(session, requests)
        somebody_waits = bool(session.queue())
    if entry is not None:
        return [entry]
    reason = f"{NOT_LOOKED_AT}: others wait before it"
    if not somebody_waits:
        try:
            return create_together(services, requests, options, fleet)
        except (NoCapacity, QuotaExceeded) as refusal:
            reason = refusal.reason_to_wait
    never = why_never(services, [with_networks(services, one) for one in requests])
    if never is not None:
        reason = never
        name = printed_name(requests[0].tenant, requests[0].name)
        services.say(f"warning: {name} waits for a change of the fleet; `vgpuctl leave-queue {name}` takes it out")
    with services.store.transaction() as session:
        return [wait_for_turn(session, requests, reason, may_preempt=options.consent.is_given)]


@dataclass(frozen=True)
class _Member:
    """One VM on its way. wanted: the request with the host that its networks or its reservation are on."""

    request: VmRequest
    wanted: VmRequest
    networks: Networks


def create_together(
    services: Services,
    requests: Sequence[VmRequest],
    options: CreateOptions = USUAL,
    fleet: KeptFleet | None = None,
    turn: Turn | None = None,
) -> tuple[CreatedVm, ...]:
    """Create and start all of these VMs of one tenant, or none; one VM is the usual case.

    fleet: the one of the VMs that the same command created before. turn: where it creates others beside them.

    When they fit only if other VMs are preempted, they are, provided that there is consent (preempt_vms.make_room);
    the first VM of the answer names them all. A host that fails is left out, and the VMs are placed on others, unless
    something of them could not be rolled back. No VM becomes `running` in the store before all are.
    Raises NotFound (tenant), UsageError for VMs of several tenants, VmDiffers (a VM of this name with another
    specification), StateError when only some exist, QuotaExceeded, NoCapacity (PreemptionNeeded without consent),
    HostError, GuestError; after any of them nothing is left behind, or the VM is `broken` and says why (several:
    `deleting`), and `repair` rolls it back.
    """
    turn = turn or only_turn()
    if len({request.tenant for request in requests}) > 1:
        raise UsageError("VMs of several tenants cannot be created together", hint="create each tenant's on its own")
    with turn:
        reserved, requests = _with_reservation(services, requests, options.reservation)
        existing = find_existing(services, requests, is_reserved=reserved is not None, written=options.written)
        if existing is not None:
            return existing
        refuse_early(services, *requests)
        requests = with_kept_disks(services, requests)
        with services.store.reading() as session:
            decided = [session.with_usual(with_image_driver(session, request)) for request in requests]
        members = [_member(services, request, reserved) for request in decided]
        wanted = [one.wanted for one in members]
        search = PlaceSearch(services, wanted, reserved, fleet or KeptFleet(), refresh=options.refresh)
        surprise: VgpuctlError | None = None
        victims: tuple[Candidate, ...] = ()
        with claims_end(services, requests):
            for attempt in range(PLACEMENTS_TRIED):
                turn.begin()
                if attempt:
                    existing = find_existing(
                        services, requests, is_reserved=reserved is not None, written=options.written
                    )
                    if existing is not None:
                        return existing
                try:
                    placements = search.place()
                except NoCapacity as full:
                    eviction = search.find_eviction(full)
                    surprise, preempted = _preempt(services, requests, eviction, search, options.consent)
                    surprise, victims = surprise or full, (*victims, *preempted)
                    continue
                try:
                    reasons = [search.why(one.wanted) for one in members] if services.goes_on else []
                    created = _create(services, members, placements, search.generations, reserved, turn)
                    first, *others = _with_reasons(created, reasons)
                    return (replace(first, victims=victims), *others)
                except HostError as error:
                    surprise = error
                    turn.begin()
                    search.leave_out(error)
                except ConcurrentChange as error:
                    hosts = sorted({one.host for one in placements})
                    services.say(f"{', '.join(hosts)}: {error.message}; placing again")
                    surprise = error
                    turn.begin()
                    search.look_again(hosts)
    raise _not_placed(requests, surprise)


def _with_reservation(
    services: Services, requests: Sequence[VmRequest], reservation: str | None
) -> tuple[Reservation | None, Sequence[VmRequest]]:
    if reservation is None:
        return None, requests
    (request,) = requests
    reserved, request = use_now(services, request, reservation)
    return reserved, [request]


def _member(services: Services, request: VmRequest, reserved: Reservation | None) -> _Member:
    networks = networks_of(services, request)
    wanted = request if reserved is None else replace(request, host=reserved.host)
    return _Member(request, on_its_host(wanted, networks.values()), networks)


def _preempt(
    services: Services, requests: Sequence[VmRequest], eviction: Eviction, search: PlaceSearch, consent: Consent
) -> tuple[VgpuctlError | None, Sequence[Candidate]]:
    """Preempt VMs. Returns why none was, or those that were; the hosts' capacities are as afterwards."""
    surprise: VgpuctlError | None
    try:
        surprise = make_room(services, requests, eviction.placements, eviction.victims, consent)
    except HostError as error:
        surprise = error
        search.leave_out(error)
    search.look_again({one.host for one in eviction.placements})
    return surprise, () if surprise else eviction.victims


def _not_placed(requests: Sequence[VmRequest], surprise: VgpuctlError | None) -> VgpuctlError:
    """The error of a run whose every placement failed, the last one with `surprise`."""
    assert surprise is not None
    if isinstance(surprise, HostError):
        return surprise
    what = requests[0].name if len(requests) == 1 else f"{counted(len(requests), 'VM')} together"
    return ConcurrentChange(
        f"no placement for {what} held in {PLACEMENTS_TRIED} tries: {surprise.message}",
        hint="others change these hosts at the same time; try again",
    )


def _with_reasons(created: Sequence[CreatedVm], reasons: Sequence[PlacementReason]) -> Sequence[CreatedVm]:
    if not reasons:
        return created
    return [replace(one, why=why) for one, why in zip(created, reasons, strict=True)]


@dataclass(frozen=True)
class _Begun:
    """A VM with its rows in the store, and the stack that rolls it back."""

    vm: Vm
    undoing: Undo
    leases: tuple[Lease, ...] = ()
    attachments: tuple[Attachment, ...] = ()


def _create(
    services: Services,
    members: Sequence[_Member],
    placements: Sequence[Placement],
    generations: dict[str, int],
    reserved: Reservation | None,
    turn: Turn,
) -> tuple[CreatedVm, ...]:
    """Reserve for all, build one after another, and record all as running. generations: of the hosts when placed.

    turn: ends when all is reserved.
    """
    gang = str(uuid.uuid4()) if len(members) > 1 else None
    names = [one.request.name for one in members]
    with services.store.reading() as session:
        uuids = session.node_uuids(members[0].request.tenant, names)
    begun = []
    for name, member, there in zip(names, members, placements, strict=True):
        given = uuids.get(name) or str(uuid.uuid4())
        vm = Vm(given, member.request, there.host, VmState.CREATING, gang=gang, numa=there.numa)
        begun.append(_Begun(vm, undo_of(services, vm)))
    try:
        with ExitStack() as blocks:
            for one in begun:
                blocks.enter_context(one.undoing)
            begun = _reserve(services, begun, members, placements, generations, reserved)
            turn.end()
            for one in begun:
                shares = ", ".join(map(describe_share, one.leases)) or "no GPU"
                services.say(f"{one.vm.printed_name}: placed on {one.vm.host}, {shares}")
            created = []
            for one in begun:
                with on_host(one.vm.host), turn.on(one.vm.host):
                    created.append(build_vm(services, one.vm, one.leases, one.attachments, one.undoing))
            with services.store.transaction() as session:
                for made in created:
                    for lease in made.leases:
                        session.set_lease_state(lease.id, LeaseState.RUNNING)
                    session.set_vm_state(made.vm.uuid, VmState.RUNNING)
                    note_state(session, made.vm, DomainState.RUNNING)
                    note_started(session, made.vm, made.findings)
                    detail = "with its gang" if gang else ""
                    after = values_of(made.vm, made.leases)
                    session.add_vm_event(EventKind.VM_CREATED, made.vm, detail, after=after)
                    session.end_own_operations(made.vm.uuid)
            for one in begun:
                one.undoing.keep()
    except BaseException as error:
        for one in reversed(begun):
            one.undoing.finish(error)
        raise
    for made in created if not services.goes_on else ():
        services.say(f"{made.vm.printed_name}: running on {made.vm.host}")
    return tuple(created)


def _reserve(
    services: Services,
    begun: Sequence[_Begun],
    members: Sequence[_Member],
    placements: Sequence[Placement],
    generations: dict[str, int],
    reserved: Reservation | None,
) -> list[_Begun]:
    """Take quota, shares and ports of all VMs in one transaction. Raises QuotaExceeded, ConcurrentChange."""
    operation = "create-vm" if len(members) == 1 else CREATE_GANG
    taken = []
    with services.store.transaction() as session:
        if len(members) > 1:
            refuse_placed_over_quota(session, [one.request for one in members], placements, is_new=True)
        for one, member, there in zip(begun, members, placements, strict=True):
            leases = leases_of(one.vm, there)
            refuse_over_quota(session, member.request, leases)
            generations[there.host] = session.reserve(there.host, generations[there.host], leases)
            session.add_vm(_without_pin(one.vm))
            take_seat(session, one.vm, leases)
            if reserved is not None:
                session.use_reservation(reserved, one.vm.uuid)
            attachments = take_ports(services, session, one.vm, member.networks)
            session.begin_operation(operation, one.vm.uuid, one.vm.printed_name, exclusive=True)
            taken.append(replace(one, leases=leases, attachments=attachments))
    return taken


def _without_pin(vm: Vm) -> Vm:
    """The VM as it is kept: the partition that it was to be created with binds no later placement."""
    request = vm.request
    return replace(vm, request=replace(request, constraints=replace(request.constraints, partition=None)))
