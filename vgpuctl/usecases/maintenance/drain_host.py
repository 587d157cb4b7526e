# SPDX-License-Identifier: Apache-2.0
"""drain-host: empty a host, VM by VM in the order of their priority, and keep it empty."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from vgpuctl.errors import VgpuctlError
from vgpuctl.model.move_verdict import MoveKind
from vgpuctl.model.natural_order import natural_path
from vgpuctl.model.plural import counted
from vgpuctl.model.reservation import Reservation
from vgpuctl.model.restriction import WHOLE_HOST, RestrictionKind
from vgpuctl.model.vm import Hold, Vm, VmState, printed_name
from vgpuctl.usecases.cluster.leave_cluster import leaving_together
from vgpuctl.usecases.maintenance.restricted import lift, set_restriction
from vgpuctl.usecases.network.gateways import LEFT, MOVED, GatewayMove, leave_gateways
from vgpuctl.usecases.placement.move_reservation import move_reservation
from vgpuctl.usecases.running.operations import move_subject, subjects_at_work
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.share.held_shares import is_for_resize, kept_for_vms
from vgpuctl.usecases.vm.move_vm import (
    DoneMove,
    MoveOptions,
    MoveWay,
    choose_way,
    cut_short,
    finish_move,
    move_vm,
    settled,
    stopped_on,
)
from vgpuctl.usecases.vm.stop_vm import Stop, stop_vm

STOPPED_BY_DRAIN = "its host was drained: "
"""The beginning of the problem of a VM that a drain stopped; `uncordon-host --start` starts these."""


class Verdict(StrEnum):
    """The fate of a VM or reservation when its host is drained or evacuated. lost: its data is not elsewhere."""

    MOVE = "move"
    STOP = "stop"
    STAY = "stay"
    LOST = "lost"


class CardWay(StrEnum):
    """How a VM gets another card of the host that it is on: suspended to disk and resumed, or stopped and started."""

    SUSPEND = "suspend"
    RESTART = "restart"


@dataclass(frozen=True)
class Drained:
    """One VM or reservation of a drained host, or the gateways of tenants to one external network.

    to: the host that it goes to. way: `live` where it runs on meanwhile, `cold` where it is stopped and started; a
    CardWay of one that leaves a GPU, and not its host.
    downtime_s: how long a live move halts its guest: by estimate, and once it has moved as libvirt measured it.
    not_live: what forbids a live move of one that goes cold. reason: why it does not move.
    outcome: `planned`, `moved`, `stopped`, `left`, `lost` or `failed: why`: a VM that moved did not
    start there, one that was to be stopped did not stop.
    """

    subject: str
    verdict: Verdict
    to: str | None = None
    storage: str | None = None
    reason: str | None = None
    outcome: str = "planned"
    way: MoveKind | CardWay | None = None
    downtime_s: float | None = None
    not_live: str | None = None

    @property
    def is_left(self) -> bool:
        """True if the host is not empty because of it."""
        return self.outcome == "left" or (self.has_failed and self.verdict is not Verdict.MOVE)

    @property
    def has_failed(self) -> bool:
        """True if it is not as it was meant to be."""
        return self.outcome.startswith("failed")


@dataclass(frozen=True)
class DrainOptions:
    """stops: stop VMs that cannot move, with their shares kept, and accept that gateways stay which no other host can
    carry. takes_stopped: move stopped VMs too, for a host that
    does not come back. timeout_s: for each guest to shut down. drain_s: the longest wait for the work on each node of a
    cluster, by default its pool's. way: the ways of moving a VM that are allowed.
    """

    stops: bool = False
    takes_stopped: bool = False
    timeout_s: float = 120.0
    drain_s: float | None = None
    way: MoveWay = MoveWay.KINDEST


def plan_drain(services: Services, host: str, options: DrainOptions) -> list[Drained]:
    """Say of every VM and reservation of a host what a drain would do. Writes nothing, on no host."""
    with services.rehearsed() as rehearsed:
        return as_planned(drain_host(rehearsed, host, options, reason="dry run"))


def as_planned(done: Sequence[Drained]) -> list[Drained]:
    """Mark the results of a rehearsed drain or evacuation as planned, except VMs that are left, and failures."""
    return [one if one.outcome == "left" or one.has_failed else replace(one, outcome="planned") for one in done]


def drain_host(services: Services, host: str, options: DrainOptions, *, reason: str) -> list[Drained]:
    """Cordon a host, move tenants' gateways off it, move or stop its VMs, move its reservations, and close it once no
    VM runs there.

    A VM that fails hides none of the others; the host stays cordoned then, and the same command goes on.
    Raises InventoryError for an unknown host.
    """
    services.inventory.require(host)
    with services.store.transaction() as session:
        drained = [one for one in session.restrictions() if (one.host, one.kind) == (host, RestrictionKind.DRAIN)]
        if not drained:
            set_restriction(session, host, WHOLE_HOST, RestrictionKind.CORDON, f"draining: {reason}")
    gateways = [_of_gateways(one) for one in leave_gateways(services, host, accepts=options.stops)]
    vms, promises = vms_of(services, host), promises_on(services, host)
    services.say(f"{host}: draining {counted(len(vms), 'VM')}")
    stopping = [vm for vm in vms if _is_to_stop(services, vm, options)]
    together = leaving_together(services, stopping, "its host is drained", f"its host {host} is drained: {reason}")
    with together, services.asking_once():
        done = gateways + [_empty(services, vm, options, reason) for vm in services.in_turn(vms, "VM")]
    done += start_left(services, host, vms)
    done += move_promises(services, promises, done)
    if not any(one.is_left for one in done):
        _close(services, host, reason)
    return done


def _of_gateways(move: GatewayMove) -> Drained:
    verdict = Verdict.MOVE if move.outcome == MOVED else Verdict.STAY
    outcome = move.outcome if verdict is Verdict.MOVE or move.outcome == LEFT or move.has_failed else "stays"
    to = ", ".join(move.to) or None
    return Drained(f"gateways to {move.external_network}", verdict, to, reason=move.reason, outcome=outcome)


def vms_of(services: Services, host: str) -> list[Vm]:
    """The VMs of a host, the most important first."""
    with services.store.reading() as session:
        return sorted(session.vms(host=host), key=lambda vm: (-vm.request.priority, natural_path(vm.printed_name)))


def _left(services: Services, host: str) -> list[Vm]:
    """The VMs that an earlier run took from a host and did not start on their new one, the most important first."""
    with services.store.reading() as session:
        vms = sorted(
            (vm for vm in session.vms() if vm.left(host)),
            key=lambda vm: (-vm.request.priority, natural_path(vm.printed_name)),
        )
    return cut_short(services, vms)


def start_left(services: Services, host: str, done_with: Sequence[Vm]) -> list[Drained]:
    """Start the VMs that an earlier run took from a host and did not start on their new one.

    done_with: VMs that this run has taken from it.
    """
    done = []
    known = {vm.uuid for vm in done_with}
    for vm in _left(services, host):
        if vm.uuid in known:
            continue
        try:
            finish_move(services, vm)
        except VgpuctlError as error:
            done.append(not_started(vm, error))
        else:
            done.append(Drained(vm.printed_name, Verdict.MOVE, vm.host, outcome="moved"))
    return done


def not_started(vm: Vm, error: VgpuctlError, storage: str | None = None) -> Drained:
    """Say of a VM that is on its new host and did not start there."""
    return Drained(vm.printed_name, Verdict.MOVE, vm.host, storage, outcome=_not_started_words(vm, error))


def _not_started_words(vm: Vm, error: VgpuctlError) -> str:
    where = stopped_on(vm.host)
    return f"failed: {where}{error.said_of(vm.printed_name).removeprefix(where)}"


def _stays(vm: Vm, options: DrainOptions) -> bool:
    return not (vm.has_to_run or options.takes_stopped) and vm.state is VmState.STOPPED


def _is_to_stop(services: Services, vm: Vm, options: DrainOptions) -> bool:
    """False for a node of a cluster that moves while it runs, or stays: the work on it goes on."""
    with services.store.reading() as session:
        if session.node_of_vm(vm.uuid) is None:
            return True
    try:
        return choose_way(services, vm, MoveOptions(options.way)).kind is not MoveKind.LIVE
    except VgpuctlError:
        return options.stops or options.way is not MoveWay.LIVE


def _empty(services: Services, vm: Vm, options: DrainOptions, reason: str) -> Drained:
    """Move one VM; stop it where it cannot move and that is wanted."""
    host = vm.host
    try:
        if not _stays(vm, options):
            vm, _was_cut_short = settled(services, vm)
        if vm.host != host:
            return came_before(vm)
        if _stays(vm, options):
            why = "it is stopped, and stays so on this host"
            return Drained(vm.printed_name, Verdict.STAY, reason=why, outcome="stays stopped")
        why = f"{host} is drained: {reason}"
        wanted = MoveOptions(options.way, options.timeout_s, why, options.drain_s)
        done = move_vm(services, vm, wanted)
    except VgpuctlError as error:
        services.note_silent(host, error)
        services.say(error.line_of(vm.printed_name))
        with services.store.reading() as session:
            now = session.vm_of(vm.uuid) or vm
        if now.host != host:
            return not_started(now, error)
        if now.is_on_its_way:
            return Drained(vm.printed_name, Verdict.STAY, outcome=_not_started_words(now, error))
        if now.state is not VmState.RUNNING or not options.stops:
            why = error.reason_of(vm.printed_name)
            if now.state is not VmState.RUNNING and error.hint:
                why += f"; {error.hint}"
            return Drained(vm.printed_name, Verdict.STAY, reason=why, outcome="left")
        return _stop(services, now, options, reason, error)
    return as_moved(vm, done, not_live=done.way.against)


def came_before(vm: Vm) -> Drained:
    """Say of a VM that an earlier move, which was cut short, had brought it to the host that it is on."""
    return Drained(vm.printed_name, Verdict.MOVE, vm.host, reason="an earlier move has ended there", outcome="moved")


def as_moved(vm: Vm, done: DoneMove, *, not_live: str | None) -> Drained:
    """Say what a move did."""
    outcome = "moved"
    if done.live is not None and done.live.state.doubt is not None:
        outcome = f"failed: {done.live.state.doubt}"
    to, storage = done.plan.placement.host, done.plan.storage
    return Drained(
        vm.printed_name,
        Verdict.MOVE,
        to,
        storage,
        outcome=outcome,
        way=done.kind,
        downtime_s=done.downtime_s,
        not_live=not_live,
    )


def _stop(services: Services, vm: Vm, options: DrainOptions, reason: str, why: VgpuctlError) -> Drained:
    problem = f"{STOPPED_BY_DRAIN}{reason}"
    try:
        stop_vm(services, vm, Stop(Hold.KEEP, options.timeout_s, problem, drain_s=options.drain_s))
    except VgpuctlError as error:
        return Drained(
            vm.printed_name, Verdict.STOP, reason=why.reason_of(vm.printed_name), outcome=f"failed: {error.message}"
        )
    return Drained(vm.printed_name, Verdict.STOP, reason=why.reason_of(vm.printed_name), outcome="stopped")


def promises_on(services: Services, host: str) -> list[Reservation]:
    """The reservations of a host that are not over."""
    with services.store.reading() as session:
        return session.reservations_on(host)


def move_promises(services: Services, promises: Sequence[Reservation], vms: Sequence[Drained]) -> list[Drained]:
    """Move reservations to other hosts. One that a VM uses went or stayed with its VM; a lost VM uses none.

    What is kept for a move or a resize stays: it is of no use elsewhere.
    promises: those of the host before its VMs left it. vms: what became of these.
    """
    rows = {one.subject: one for one in vms if one.verdict is not Verdict.LOST}
    with services.store.reading() as session:
        labels = {vm.uuid: vm.printed_name for vm in session.vms()}
        kept = {(one.tenant, one.name): vm for one, vm in kept_for_vms(session).items()}
        left = {(one.tenant, one.name) for one in session.reservations()}
        at_work = subjects_at_work(session)
    done = []
    for one in promises:
        key = (one.tenant, one.name)
        if key not in left:
            continue
        if key in kept:
            done.append(_in_move(one, kept[key], at_work))
            continue
        user = rows.get(labels.get(one.vm_uuid or "", ""))
        if user is not None and user.verdict is Verdict.MOVE:
            reason = f"it goes with {user.subject}"
            done.append(Drained(_subject(one), Verdict.MOVE, user.to, reason=reason, outcome="moved"))
            continue
        if user is not None:
            done.append(replace(_with_its_vm(one, user), outcome="stays"))
            continue
        try:
            moved = move_reservation(services, one)
        except VgpuctlError as error:
            done.append(Drained(_subject(one), Verdict.STAY, reason=error.reason_of(_subject(one)), outcome="left"))
        else:
            done.append(Drained(_subject(one), Verdict.MOVE, moved.host, outcome="moved"))
    return done


def held_for_moves(services: Services, host: str, address: str) -> list[Drained]:
    """The shares of a GPU or VF that a move or resize keeps for its VM."""
    with services.store.reading() as session:
        at_work = subjects_at_work(session)
        return [
            _in_move(one, vm, at_work)
            for one, vm in kept_for_vms(session).items()
            if one.host == host and any(address in (share.gpu, share.function) for share in one.shares)
        ]


def _in_move(reservation: Reservation, vm: Vm, at_work: Collection[str]) -> Drained:
    """Say why the shares that a move or resize keeps stay: the end of that gives them back."""
    is_at_work = bool({vm.uuid, move_subject(vm)} & set(at_work))
    end = "is in progress: wait for its end" if is_at_work else "was cut short: `vgpuctl repair` finishes it"
    way = "resize" if is_for_resize(reservation) else "move"
    reason = f"a {way} of {vm.printed_name} keeps them, which {end}"
    return Drained(f"shares of {vm.printed_name}", Verdict.STAY, reason=reason, outcome="left")


def _with_its_vm(reservation: Reservation, user: Drained) -> Drained:
    return Drained(_subject(reservation), Verdict.STAY, reason=f"{user.subject} uses it")


def _subject(reservation: Reservation) -> str:
    return f"reservation {printed_name(reservation.tenant, reservation.name)}"


def _close(services: Services, host: str, reason: str) -> None:
    """Let nothing start there any more, unless a VM was started meanwhile."""
    with services.store.transaction() as session:
        if any(vm.state is not VmState.STOPPED for vm in session.vms(host=host)):
            return
        set_restriction(session, host, WHOLE_HOST, RestrictionKind.DRAIN, reason)
        for one in session.restrictions():
            if (one.host, one.device, one.kind) == (host, WHOLE_HOST, RestrictionKind.CORDON):
                lift(session, one, "it is drained")


def is_drained(services: Services, host: str) -> bool:
    """True if the host is closed for maintenance: no VM runs there, and none starts."""
    with services.store.reading() as session:
        return any((one.host, one.kind) == (host, RestrictionKind.DRAIN) for one in session.restrictions())


def stopped_by_drain(vms: Sequence[Vm]) -> list[Vm]:
    """The VMs that a drain stopped, or was about to move when it was cut short, the most important first."""
    stopped = [
        vm
        for vm in vms
        if vm.is_on_its_way or (vm.state is VmState.STOPPED and (vm.problem or "").startswith(STOPPED_BY_DRAIN))
    ]
    return sorted(stopped, key=lambda vm: (-vm.request.priority, natural_path(vm.printed_name)))
