# SPDX-License-Identifier: Apache-2.0
"""move-vm: a VM goes to another host, with equal shares and its disk, addresses, name and UUID.

While it runs where the two hosts can do that (live_move.py), else cold. Cold: its shares are held on the new host
first. Then it is stopped and its old shares are released, its volumes follow, its row changes the host, and it starts.
A run that is killed leaves a stopped VM that is whole on one of the two hosts, with a problem that names the move;
`finish_move` starts it there.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from vgpuctl.errors import ConcurrentChange, HostError, NoCapacity, StateError, VgpuctlError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease
from vgpuctl.model.move_verdict import MoveKind, MoveVerdict
from vgpuctl.model.reservation import Reservation
from vgpuctl.model.times import format_duration
from vgpuctl.model.vm import Hold, Vm, VmState, has_moved, moves_to, on_its_way
from vgpuctl.planner.moves.judge import OVER_CEILING
from vgpuctl.scheduler.guest_place import give_numa
from vgpuctl.store.store import Session
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.domain.guest_state import carry_state
from vgpuctl.usecases.found.find_vm import find_again
from vgpuctl.usecases.found.vm_values import sizes_of
from vgpuctl.usecases.network.ports import attachments_of
from vgpuctl.usecases.observed.capacities import capacity_of, read_promises
from vgpuctl.usecases.observed.observations import read_facts
from vgpuctl.usecases.placement.move_reservation import replace_reservation
from vgpuctl.usecases.placement.quota import refuse_growth_over_quota
from vgpuctl.usecases.placement.reservations import used_by
from vgpuctl.usecases.running.operations import move_subject, operation, subjects_at_work
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.share.held_shares import HeldFor, held_shares, hold, release_held, release_held_for
from vgpuctl.usecases.share.release import release_leases
from vgpuctl.usecases.share.restore_shares import restore_shares
from vgpuctl.usecases.share.shares import check_leases, leases_of
from vgpuctl.usecases.vm.live_move import carry_out_live
from vgpuctl.usecases.vm.live_move_end import MovedLive, settle_live_move
from vgpuctl.usecases.vm.move_check import check_move
from vgpuctl.usecases.vm.move_plan import PlannedMove, plan_move
from vgpuctl.usecases.vm.move_volumes import VolumeWay, carry_volumes, drop_copies
from vgpuctl.usecases.vm.start_vm import start_vm
from vgpuctl.usecases.vm.stop_vm import Stop, stop_vm

TRIES = 6


class MoveWay(StrEnum):
    """Which ways of a move are allowed. kindest: live where that can be, else cold."""

    KINDEST = "kindest"
    LIVE = "live"
    COLD = "cold"


@dataclass(frozen=True)
class MoveOptions:
    """way: what is allowed. timeout_s: for the guest of a cold move to shut down. reason: for the event.

    drain_s: the longest wait for the work on a node of a cluster before a cold move, by default its pool's.
    max_downtime_s: the longest that a live move may halt the guest, instead of the VM's own. trusts_hosts: live also
    between hosts where a move has lost the state of a vGPU before.
    """

    way: MoveWay = MoveWay.KINDEST
    timeout_s: float = 120.0
    reason: str = ""
    drain_s: float | None = None
    max_downtime_s: float | None = None
    trusts_hosts: bool = False


@dataclass(frozen=True)
class ChosenWay:
    """The kindest allowed way of a move. to: the host for it, None where the scheduler chooses.

    against: what forbids a live move, in short; None where none does, or nobody asked for one. downtime_s: how long a
    live move would halt the guest by estimate. verdict: of the host, None where none was asked.
    """

    kind: MoveKind
    to: str | None = None
    against: str | None = None
    downtime_s: float | None = None
    verdict: MoveVerdict | None = None


@dataclass(frozen=True)
class DoneMove:
    """A move, as planned and as it ended. live: None for a cold one, and in a dry run."""

    plan: PlannedMove
    way: ChosenWay
    live: MovedLive | None = None

    @property
    def kind(self) -> MoveKind:
        """`live` or `cold`."""
        return self.way.kind

    @property
    def downtime_s(self) -> float | None:
        """Seconds that a live move halts the guest: by estimate, and once it has moved as libvirt measured them."""
        return self.way.downtime_s if self.live is None else self.live.downtime_s


def move_vm(
    services: Services, vm: Vm, options: MoveOptions, *, to: str | None = None, gpus: Sequence[str] = ()
) -> DoneMove:
    """Move a VM. One that ran runs again, on the new host, or on its old one when the move fails.

    to: the host it must go to. gpus: the addresses of the GPUs there, () for any.
    Raises what `plan_move` raises, with nothing changed, the errors of the hosts, and ConcurrentChange for a VM that an
    earlier move has brought to another host than `vm` says.
    """
    seen_on = vm.host
    vm, _was_cut_short = settled(services, vm)
    if vm.host != seen_on:
        raise ConcurrentChange(
            f"{vm.printed_name} has come from {seen_on} to {vm.host} by another move",
            hint=f"run the same command again if it is to leave {vm.host} too",
        )
    with operation(services, "move-vm", replace(vm, uuid=move_subject(vm))):
        way = choose_way(services, vm, options, to, gpus)
        plan = plan_move(services, vm, to=way.to, gpus=gpus)
        if way.against is not None and services.inventory.move_link(vm.host).network is not None:
            services.say(f"{vm.printed_name}: moves cold: {way.against}")
        if way.kind is MoveKind.LIVE:
            limit_s = options.max_downtime_s or vm.request.max_downtime_s
            moved = carry_out_live(services, plan, reason=options.reason, max_downtime_s=limit_s)
            return DoneMove(plan, way, moved)
        carry_out(services, plan, options)
    return DoneMove(plan, way)


def choose_way(
    services: Services, vm: Vm, options: MoveOptions, to: str | None = None, gpus: Sequence[str] = ()
) -> ChosenWay:
    """Choose the kindest allowed way of a move. The hosts are asked only where a live move can be at all.

    Raises StateError, which names what forbids it, where only a live move is allowed and none can be.
    """
    if options.way is MoveWay.COLD or vm.state is not VmState.RUNNING:
        return ChosenWay(MoveKind.COLD, to)
    if options.way is MoveWay.KINDEST and services.inventory.move_link(vm.host).network is None:
        return ChosenWay(MoveKind.COLD, to, f"the inventory names no network for moves of {vm.host}")
    verdicts = check_move(
        services, vm, to, gpus=gpus, max_downtime_s=options.max_downtime_s, trusts_hosts=options.trusts_hosts
    )
    for name, verdict in verdicts:
        if verdict.kind is MoveKind.LIVE:
            return ChosenWay(MoveKind.LIVE, name, downtime_s=verdict.downtime_s, verdict=verdict)
    against = [f"{name}: {one.limit}" for name, verdict in verdicts for one in verdict.limits[:3]]
    is_too_long = options.max_downtime_s is not None and any(
        [one.code for one in verdict.limits] == [OVER_CEILING] for _name, verdict in verdicts
    )
    if is_too_long and options.max_downtime_s is not None and options.way is MoveWay.KINDEST:
        raise StateError(
            f"{vm.printed_name} cannot move with a halt of {format_duration(options.max_downtime_s)} at most",
            context=against,
            hint="allow a longer --max-downtime; --cold stops it for its move",
        )
    if options.way is MoveWay.LIVE:
        hint = f"`vgpuctl move-vm {vm.printed_name} --check` says what helps"
        if is_too_long:
            hint += "; so does a longer --max-downtime"
        elif any(verdict.kind is MoveKind.COLD for _name, verdict in verdicts):
            hint += "; without --live-only it is stopped for its move"
        raise StateError(f"{vm.printed_name} cannot move while it runs", context=against, hint=hint)
    verdict_there = verdicts[0][1] if to is not None and verdicts else None
    return ChosenWay(MoveKind.COLD, to, against[0] if against else "there is no other host", verdict=verdict_there)


def carry_out(services: Services, plan: PlannedMove, options: MoveOptions) -> Vm:
    """Move a VM cold as planned, within the operation that planned it. Returns it as it was before it started there."""
    vm, target = plan.vm, plan.placement.host
    services.say(f"{vm.printed_name}: moves from {vm.host} to {target}")
    problem = on_its_way(vm.host, target) if vm.has_to_run else moves_to(target)
    with services.store.reading() as session:
        had = session.leases(vm_uuid=vm.uuid)
    with _held(services, plan):
        try:
            stopped, _ = stop_vm(services, vm, Stop(Hold.RELEASE, options.timeout_s, problem, drain_s=options.drain_s))
        except BaseException:
            runs_on(services, vm)
            ended = _as_left(services, vm)[0]
            start_again(services, ended, was_running=ended.is_on_its_way)
            raise
        try:
            moved = _relocate(services, stopped, plan, had, options.reason)
        except BaseException:
            start_again(services, stopped, was_running=vm.has_to_run)
            raise
    drop_copies(services, moved, [vm.host])
    if vm.has_to_run:
        _start_there(services, moved)
    else:
        _forget_move(services, moved)
        restore_kept(services, moved)
    services.say(f"{vm.printed_name}: moved to {target}")
    return moved


def stopped_on(host: str) -> str:
    """Say where a VM is that was stopped and did not start again."""
    return f"it is stopped on {host}: "


def _start_there(services: Services, moved: Vm) -> None:
    """Start a VM on its new host. An error says that it is there."""
    try:
        start_vm(services, [moved])
    except VgpuctlError as error:
        error.message = f"{moved.printed_name}: {stopped_on(moved.host)}{error.said_of(moved.printed_name)}"
        error.hint = "; ".join(filter(None, (error.hint, "`vgpuctl repair` starts it there")))
        raise


def cut_short(services: Services, vms: Sequence[Vm]) -> list[Vm]:
    """Those of these VMs that no run moves or resizes now, but one that died did, as the store has them now.

    They are on their way, or have shares held for them, or copies on another host.
    """
    with services.store.reading() as session:
        alive = subjects_at_work(session)
        stored = [now for vm in vms if (now := session.vm_of(vm.uuid)) is not None]
        left = [vm for vm in stored if vm.is_on_its_way or vm.former_hosts or held_shares(session, vm)]
    return [vm for vm in left if not {vm.uuid, move_subject(vm)} & alive]


def finish_move(services: Services, vm: Vm) -> str:
    """End a move or resize that was cut short: the VM is whole where it is, and starts there if it ran.

    Shares that are held for it are given back, and its copies on the other host are removed. Returns where it is, in
    words.
    """
    if vm.state is VmState.RUNNING and vm.former_hosts:
        with operation(services, "move-vm", vm):
            vm, held = _as_left(services, vm)  # another run may have ended it since it was seen
            if vm.state is VmState.RUNNING and vm.former_hosts:
                return settle_live_move(services, vm, held)
        return f"it is on {vm.host}"
    vm, held = _as_left(services, vm)
    release_held(services, vm, held)
    drop_copies(services, vm, vm.former_hosts)
    if vm.is_on_its_way:
        start_vm(services, [vm])
    elif vm.former_hosts and vm.state is VmState.STOPPED:
        _forget_move(services, vm)
    return f"it is on {vm.host}"


def settled(services: Services, vm: Vm) -> tuple[Vm, bool]:
    """Finish what a dead run has left of a VM's move or resize. Returns the VM as it is then, and whether any was left.

    Every command goes on with that row, never with the one before: the VM may be on another host, with other leases.
    Raises what `finish_move` raises.
    """
    left = cut_short(services, [vm])
    for one in left:
        try:
            finish_move(services, one)
        except HostError as error:
            if one.unfinished is not None:
                error.message = f"{one.printed_name}: {one.unfinished}, which comes first: {error.message}"
            raise
    return _as_left(services, vm)[0], bool(left)


def _as_left(services: Services, vm: Vm) -> tuple[Vm, tuple[Reservation, ...]]:
    """A VM as the store has it now, and the shares that are held for it. Raises NotFound for one that is gone."""
    now = find_again(services, vm)
    with services.store.reading() as session:
        return now, held_shares(session, now)


def _forget_move(services: Services, vm: Vm) -> None:
    """Note that nothing of a stopped VM's move is left to do."""
    with services.store.transaction() as session:
        now = session.vm(vm.request.tenant, vm.request.name)
        if now is not None and (now.uuid, now.state) == (vm.uuid, VmState.STOPPED) and now.former_hosts:
            session.set_vm_state(now.uuid, VmState.STOPPED, None, kept_until=now.ends_at)


def _relocate(services: Services, vm: Vm, plan: PlannedMove, had: Sequence[Lease], reason: str) -> Vm:
    """Bring the volumes of a stopped VM to the new host and change its rows. Returns the VM as it is then."""
    with operation(services, "move-vm", vm):
        with services.store.reading() as session:
            now = session.vm(vm.request.tenant, vm.request.name)
            left = session.leases(vm_uuid=vm.uuid)
        if now is None or (now.uuid, now.host, now.state) != (vm.uuid, vm.host, VmState.STOPPED) or left:
            raise ConcurrentChange(f"another run changed {vm.printed_name} while it was moved", hint="move it again")
        if services.goes_on:  # as if all its volumes were there already
            there = tuple(replace(one, way=VolumeWay.SHARED) for one in plan.volumes)
            return settle_on(services, replace(plan, volumes=there), reason, had=had)
        source, target = services.host(vm.host), services.host(plan.placement.host)
        guest.remove_domain(source, vm, keeps_state=True)
        try:
            carry_state(services, source, target, vm)
            carry_volumes(services, source, target, plan.volumes)
            return settle_on(services, plan, reason, had=had, leaves_copies=True)
        except BaseException:
            if drop_copies(services, vm, [target.name]) and not vm.has_to_run:
                _forget_move(services, vm)
            raise


def settle_on(
    services: Services,
    plan: PlannedMove,
    reason: str,
    *,
    ending: Sequence[Lease] = (),
    had: Sequence[Lease] = (),
    leaves_copies: bool = False,
) -> Vm:
    """Change the host of a VM that runs nowhere, and promise it its shares there, in one transaction.

    Those of a VM that was stopped before are kept for it; `restore_kept` makes them. The reservation that it uses
    comes along. Shares that are held for the move are held no longer. ending: leases of a dead host, which end too.
    had: the leases that it had until it was stopped for this. leaves_copies: its old host has files of it that are
    to be removed.
    Raises NoCapacity when the new host has no room for its CPUs and memory any more, and ConcurrentChange.
    """
    vm, placement = plan.vm, plan.placement
    facts = read_facts(services, placement.host)
    on_target = replace(vm, request=plan.wanted, host=placement.host)
    guest.check_parts(on_target, facts, attachments_of(services, vm))
    for _try in range(TRIES):
        with services.store.reading() as session:
            generation = session.generation(placement.host)
            promises = read_promises(session, without=[vm.uuid])
        capacity = capacity_of(placement.host, facts, generation, promises, services.inventory)
        numa, fits = give_numa(plan.wanted, capacity, [one.numa_node for one in placement.shares])
        if not fits:
            raise NoCapacity(f"{placement.host} has no room for the CPUs and memory of {vm.printed_name} any more")
        problem = has_moved(vm.host) if leaves_copies else None
        if vm.has_to_run:
            problem = on_its_way(vm.host, placement.host)
        moved = replace(on_target, numa=numa, state=VmState.STOPPED, problem=problem)
        leases = check_leases(
            leases_of(moved, replace(placement, numa=numa)), moved.request.gpus, facts, capacity.rules
        )
        with contextlib.suppress(ConcurrentChange), services.store.transaction() as session:
            release_leases(session, ending)
            if plan.request is not None:  # else it gets what it had, and its tenant uses no more
                refuse_growth_over_quota(session, vm.request, plan.request, had, leases, have_ended=True)
            generation = session.reserve(placement.host, generation, leases)
            reserved = used_by(session, vm)
            if reserved is not None and placement.shares:
                there = replace(reserved, host=placement.host, shares=placement.shares)
                replace_reservation(session, reserved, there, generation)
            release_held_for(session, vm, HeldFor.MOVE)
            for one in plan.volumes:
                one.settle(session)
            session.move_vm(vm.uuid, placement.host, numa)
            session.set_vm_state(vm.uuid, VmState.STOPPED, problem, kept_until=vm.ends_at)
            _tell(session, vm, moved, leases, reason)
            if plan.request is not None:
                session.set_vm_request(vm.uuid, plan.request)
                before, after = sizes_of(vm, ()), sizes_of(moved, leases)
                session.add_vm_event(EventKind.VM_RESIZED, moved, reason, before=before, after=after)
            return moved
    raise ConcurrentChange(f"{placement.host} changed {TRIES} times while {vm.printed_name} was moved there")


def restore_kept(services: Services, moved: Vm) -> None:
    """Make the shares that a stopped VM keeps on its new host. Where that fails, its next start makes them."""
    try:
        restore_shares(services, moved, dry_run=services.goes_on)
    except VgpuctlError as error:
        services.say(f"{moved.printed_name}: its shares on {moved.host} are made at its next start: {error.message}")


def _tell(session: Session, vm: Vm, moved: Vm, leases: Sequence[Lease], reason: str) -> None:
    shares = [f"{lease.share.profile} on {lease.share.function}" for lease in leases]
    session.add_vm_event(
        EventKind.VM_MOVED, moved, reason, before={"host": vm.host}, after={"host": moved.host, "shares": shares}
    )


@contextlib.contextmanager
def _held(services: Services, plan: PlannedMove) -> Iterator[None]:
    """Keep the shares on the new host from others until the VM has them. A VM without GPUs needs none."""
    if not plan.placement.shares:
        yield
        return
    with services.store.transaction() as session:
        hold(session, plan.vm, HeldFor.MOVE, plan.placement.host, plan.placement.shares)
    try:
        yield
    finally:
        with services.store.transaction() as session:
            release_held_for(session, plan.vm, HeldFor.MOVE)


def runs_on(services: Services, vm: Vm) -> None:
    """Forget that a VM was to be stopped, where that failed before anything was done to it."""
    with services.store.transaction() as session:
        now = session.vm(vm.request.tenant, vm.request.name)
        if now is not None and (now.uuid, now.state) == (vm.uuid, VmState.RUNNING) and now.is_to_come_back:
            session.set_vm_state(now.uuid, VmState.RUNNING, vm.problem)


def start_again(services: Services, vm: Vm, *, was_running: bool) -> None:
    """Start a VM whose move or resize failed where it was. Where that fails too, report it and leave the VM as it is.

    vm: as the store has it; whether one that is not recorded as stopped still runs is then not known.
    """
    if not was_running:
        return
    try:
        start_vm(services, [vm])
    except VgpuctlError as error:
        found = f"stays stopped on {vm.host}"
        if vm.state is not VmState.STOPPED:
            found = f"whether it still runs on {vm.host} is not known"
        services.say(f"{vm.printed_name}: {found}: {error.said_of(vm.host)}")
