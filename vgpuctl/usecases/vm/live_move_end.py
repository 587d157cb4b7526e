# SPDX-License-Identifier: Apache-2.0
"""How a live move ends: where the VM is, whether it came whole, and what its old host still has of it.

`settle_live_move` ends one whose run died. It starts no VM. One that libvirt halted for the move goes on where it was
once the new host has nothing of it, or on the new host if the old one has nothing of it.
"""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from vgpuctl.errors import ConcurrentChange, GuestError, VgpuctlError
from vgpuctl.guests.facts.domain_facts import DomainState
from vgpuctl.guests.libvirtd.migration import IncomingDomain, Migrated, incoming_domain
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease, LeaseState, Share
from vgpuctl.model.promise import Moment, PromiseRow
from vgpuctl.model.reservation import Reservation
from vgpuctl.model.vm import Vm, VmState, came_live_from
from vgpuctl.store.store import Session
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.domain.carried_state import (
    CarriedState,
    add_loss,
    look_at_state,
    note_lost_state,
    state_after_failure,
)
from vgpuctl.usecases.domain.promises import Findings, note_started, prove_start
from vgpuctl.usecases.found.vm_values import values_of
from vgpuctl.usecases.observed.fences import is_host_fenced
from vgpuctl.usecases.observed.observations import note_state
from vgpuctl.usecases.placement.move_reservation import replace_reservation
from vgpuctl.usecases.placement.reservations import used_by
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.share.held_shares import HeldFor, hold, release_held_for
from vgpuctl.usecases.share.release import release_leases, release_strays
from vgpuctl.usecases.vm.check_vm import check_vm
from vgpuctl.usecases.vm.move_volumes import VolumeMove, VolumeWay, drop_copies

Kept = frozenset[tuple[PromiseRow, str, str]]
"""Row, subject and promise of what was kept (known_kept)."""
_SETTLES_S = 20.0
"""Time in which libvirt ends by itself what is left of a move whose client is gone."""


class Whereabouts(StrEnum):
    """Where a VM is after a move that did not come to its end.

    halted: on its old host, as libvirt halted it for the move. arrived: halted on its new host, with all its state, and
    its old host has nothing of it any more. nowhere: it runs on neither host.
    """

    SOURCE = "source"
    TARGET = "target"
    HALTED = "halted"
    ARRIVED = "arrived"
    NOWHERE = "nowhere"


@dataclass(frozen=True)
class MovedLive:
    """A VM on its new host, and whether it is known to have come whole."""

    vm: Vm
    migrated: Migrated | None
    state: CarriedState

    @property
    def downtime_s(self) -> float | None:
        """How long libvirt halted the guest; None where it does not say."""
        return None if self.migrated is None else self.migrated.downtime_s


def note_settled(session: Session, vm: Vm, problem: str | None) -> None:
    """Note how a VM that runs is, in place of its move."""
    now = session.vm(vm.request.tenant, vm.request.name)
    if now is not None and (now.uuid, now.state) == (vm.uuid, VmState.RUNNING):
        session.set_vm_state(now.uuid, VmState.RUNNING, problem)


def find_out(services: Services, vm: Vm, target: str) -> Whereabouts:
    """Find out where a VM is, once libvirt has ended what was left of its move. A fenced host has nothing of it.

    As long as its old host has a definition of it, what the new one has never ran. After that it has moved, also if it
    has ended since. Raises the errors of both hosts, and ConcurrentChange where nobody can say.
    """
    fenced = {name for name in (vm.host, target) if is_host_fenced(services, name)}
    deadline = time.monotonic() + _SETTLES_S

    def state_on(name: str) -> DomainState | None:
        return None if name in fenced else services.host(name).hypervisor.state(vm.domain_name, uuid=vm.uuid)

    while True:
        on_target, on_source = state_on(target), state_on(vm.host)
        is_there = on_target is not None and on_target.is_active()
        where = _place(on_source, is_there=is_there)
        if vm.host in fenced and on_target is None and target not in fenced:
            return Whereabouts.NOWHERE  # the new host would have a definition of it
        if on_target is not None and (on_source is None or _runs_there_alone(on_source, on_target)):
            _require_ours(services, vm, target)
            where = Whereabouts.TARGET
            if is_there and on_target is not DomainState.RUNNING:
                found = incoming_domain(services.host(target).hypervisor, vm.uuid)
                where = {IncomingDomain.WAITS: Whereabouts.ARRIVED, IncomingDomain.SENT: None}.get(found, where)
        if where is not None and (where in (Whereabouts.TARGET, Whereabouts.ARRIVED) or not is_there):
            return where
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    if where is None or on_target is DomainState.RUNNING:
        raise ConcurrentChange(
            f"{vm.printed_name} is {on_source or 'not there'} on {vm.host} and {on_target or 'not there'} on {target}:"
            " its move has not ended",
            hint=f"see `virsh domjobinfo {vm.domain_name}` on {vm.host}. If it runs on both, end one copy with"
            f" `virsh destroy {vm.domain_name}` and check its disks. Then run `vgpuctl repair`",
        )
    return where


def _place(on_source: DomainState | None, *, is_there: bool) -> Whereabouts | None:
    """Where a VM is by its old host alone, None if that has nothing of it."""
    if on_source is None:
        return None
    if not on_source.is_active():
        return None if is_there else Whereabouts.NOWHERE
    return Whereabouts.HALTED if on_source.is_paused() else Whereabouts.SOURCE


def _runs_there_alone(on_source: DomainState, on_target: DomainState) -> bool:
    return on_target is DomainState.RUNNING and on_source is not DomainState.RUNNING


def _require_ours(services: Services, vm: Vm, target: str) -> None:
    """Raise ConcurrentChange for a domain of the VM's UUID that somebody else made: nothing is dropped for it."""
    domain = services.host(target).hypervisor.domain(vm.uuid)
    if domain is not None and domain.metadata is None:
        raise ConcurrentChange(
            f"{target} has a domain {domain.name} with the UUID of {vm.printed_name} that vgpuctl has not made",
            hint=f"remove it with `virsh undefine {domain.name}` on {target}, then run `vgpuctl repair`",
        )


def go_on(services: Services, vm: Vm, target: str, where: Whereabouts) -> None:
    """Let a VM go on where it was halted for its move. On its old host only once the new one has nothing of it."""
    if where not in (Whereabouts.TARGET, Whereabouts.ARRIVED) and not is_host_fenced(services, target):
        guest.remove_domain(services.host(target), vm, keeps_state=True)
    if where in (Whereabouts.HALTED, Whereabouts.ARRIVED):
        name = vm.host if where is Whereabouts.HALTED else target
        services.say(f"{vm.printed_name}: goes on on {name}, where it was halted for its move")
        services.host(name).hypervisor.resume(vm.domain_name, uuid=vm.uuid)


def change_host(
    services: Services,
    vm: Vm,
    moved: Vm,
    volumes: Sequence[VolumeMove],
    leases: Sequence[Lease],
    migrated: Migrated | None,
    reason: str,
) -> None:
    """Change the host of a VM that runs on its new one already, in one transaction. Its old shares stay held."""
    with services.store.transaction() as session:
        old = session.leases(vm_uuid=vm.uuid)
        release_leases(session, old)
        if old:
            hold(session, vm, HeldFor.MOVE_FROM, vm.host, [one.share for one in old])
        session.reserve(moved.host, session.generation(moved.host), leases)
        for lease in leases:
            session.set_lease_state(lease.id, LeaseState.RUNNING)
        reserved = used_by(session, vm)
        if reserved is not None and leases:
            there = replace(reserved, host=moved.host, shares=tuple(one.share for one in leases))
            replace_reservation(session, reserved, there, session.generation(moved.host))
        release_held_for(session, vm, HeldFor.MOVE)
        for one in volumes:
            one.settle(session)
        session.move_vm(vm.uuid, moved.host, moved.numa)
        session.set_vm_state(vm.uuid, VmState.RUNNING, came_live_from(vm.host))
        note_state(session, moved, DomainState.RUNNING)
        after = {**values_of(moved, leases, VmState.RUNNING), "host": moved.host, **_measured(migrated)}
        before = {**values_of(vm, old), "host": vm.host}
        session.add_vm_event(EventKind.VM_MOVED_LIVE, moved, reason, before=before, after=after)
    if not services.goes_on:
        services.say(f"{vm.printed_name}: is on {moved.host} now{_halted(migrated)}")


def _measured(migrated: Migrated | None) -> dict[str, float]:
    if migrated is None:
        return {}
    halted = {} if migrated.downtime_s is None else {"downtime_s": round(migrated.downtime_s, 3)}
    return {"took_s": round(migrated.elapsed_s, 1), "bytes_sent": migrated.bytes_sent, **halted}


def _halted(migrated: Migrated | None) -> str:
    return "" if migrated is None or migrated.downtime_s is None else f", was halted for {migrated.downtime_s:.1f} s"


def finish(
    services: Services,
    moved: Vm,
    source: str,
    leases: Sequence[Lease],
    migrated: Migrated | None,
    kept: Kept = frozenset(),
) -> MovedLive:
    """Verify a VM that has moved, and release what its old host has of it. What is left of that, `repair` does.

    kept: the promises that were known to be kept before.
    """
    done = MovedLive(moved, migrated, verify(services, moved, source, leases, kept))
    doubt = done.state.doubt
    problem = None if doubt is None else f"came from {source}: {doubt}"
    with services.store.reading() as session:
        held = session.reservation(moved.request.tenant, f"{HeldFor.MOVE_FROM}-{moved.uuid}")
    try:
        release_source(services, moved, source, held)
    except VgpuctlError as error:
        services.say(f"{moved.printed_name}: what {source} has of it is left for `repair`: {error.message}")
        return done
    with services.store.transaction() as session:
        note_settled(session, moved, problem)
    return done


def verify(services: Services, moved: Vm, source: str, leases: Sequence[Lease], kept: Kept) -> CarriedState:
    """Look at everything that says whether a VM came whole: promise rows, NVML's list, QEMU's log, and its guest.

    kept: the promises that were known to be kept before; what the guest says counts against these alone, where its
    tenant lets it be asked. Never raises for what it finds: the VM runs there, whatever is wrong with it.
    """
    there = services.host(moved.host)
    lost: list[str] = []
    unread: list[str] = []
    findings: Findings = ()
    try:
        state = there.hypervisor.state(moved.domain_name, uuid=moved.uuid)
        if state is None or not state.is_active():
            with services.store.transaction() as session:
                note_state(session, moved, state)
            return CarriedState(ended=f"libvirt of {moved.host} says that its domain is {state or 'not there'}")
        findings = prove_start(services, there, moved, leases, moment=Moment.LOOK)
    except GuestError as broken:
        unread.extend([broken.message, *broken.context])
    except VgpuctlError as silent:
        unread.append(silent.message)
    if leases:
        seen = look_at_state(there, moved)
        lost.extend(seen.lost)
        unread.extend(seen.unread)
        lost.extend(_missed_by_guest(services, moved, leases, kept))
    if findings:
        with services.store.transaction() as session:
            note_started(session, moved, findings)
    note_lost_state(services, moved, lost, source)
    return CarriedState(tuple(lost), tuple(unread))


def _missed_by_guest(services: Services, moved: Vm, leases: Sequence[Lease], kept: Kept) -> list[str]:
    """What a guest, where it may be asked, does not have any more of what it had on its old host."""
    with services.store.reading() as session:
        may_ask = session.tenant(moved.request.tenant).guest_probe
    if not may_ask or not kept:
        return []
    found = check_vm(services, moved, [replace(one, state=LeaseState.RUNNING) for one in leases]).findings
    return [
        f"{one}, by {one.witness}: promised {one.promised}, seen {one.seen}"
        for one in found
        if one.is_broken and (one.row, one.subject, one.promised) in kept
    ]


def release_source(services: Services, moved: Vm, source: str, held: Reservation | None) -> None:
    """Release the devices that a moved VM had, and remove what its old host still has of it. Raises that host's errors.

    held: what keeps its old shares from others until then. A domain that libvirt left halted there, because nobody told
    it that the move had come to its end, is ended: what it holds is older than the VM.
    """
    if is_host_fenced(services, source):
        return  # uncordon-host ends what is left there
    host = services.host(source)
    domain = host.hypervisor.domain(moved.uuid)
    if domain is not None and domain.state.is_active() and not domain.state.is_paused():
        raise GuestError(
            f"{moved.printed_name} runs on {moved.host}, and {source} still has a domain of its UUID that is"
            f" {domain.state}",
            hint=f"look at it with `virsh dominfo {domain.name}` on {source}; nothing is released before it is off",
        )
    guest.remove_domain(host, moved, keeps_state=True)
    if held is not None:
        release_strays(services, host, held.shares, moved.uuid)
    drop_copies(services, moved, [source])
    with services.store.transaction() as session:
        release_held_for(session, moved, HeldFor.MOVE_FROM)


def settle_live_move(services: Services, vm: Vm, held: Sequence[Reservation]) -> str:
    """End a live move that was cut short. Returns where the VM is, in words. Raises the errors of both hosts."""
    target = vm.live_target
    if target is None:
        return _in_words(finish(services, vm, vm.former_hosts[0], _leases_of(services, vm), None))
    where = find_out(services, vm, target)
    go_on(services, vm, target, where)
    reserved = next((one for one in held if one.host == target), None)
    if where in (Whereabouts.TARGET, Whereabouts.ARRIVED):
        moved = replace(vm, host=target, numa=None)
        leases = _leases_there(services.host(target), moved, () if reserved is None else reserved.shares)
        change_host(services, vm, moved, _volumes_there(services, vm, target), leases, None, "repaired")
        return _in_words(finish(services, moved, vm.host, leases, None))
    if not is_host_fenced(services, target):
        if reserved is not None:
            release_strays(services, services.host(target), reserved.shares, vm.uuid)
        drop_copies(services, vm, [target])
    found = f"it runs on {vm.host}"
    state = CarriedState()
    if where is Whereabouts.NOWHERE:
        found = f"it is off on {vm.host}"
    else:
        state = state_after_failure(services, services.host(vm.host), vm)
        found = "; ".join(filter(None, [found, state.doubt_of_stayed]))
    with services.store.transaction() as session:
        release_held_for(session, vm, HeldFor.MOVE)
        note_settled(session, vm, state.doubt_of_stayed)
        if where is Whereabouts.NOWHERE:
            _note_off(session, vm)
        add_loss(session, vm, state.lost)
        session.add_vm_event(EventKind.VM_MOVE_ENDED, vm, f"cut short: {found}", before={}, after={"host": vm.host})
    return found


def _note_off(session: Session, vm: Vm) -> None:
    """Note that a VM has ended on its old host."""
    for lease in session.leases(vm_uuid=vm.uuid):
        session.set_lease_state(lease.id, LeaseState.BUILT)
    session.set_vm_state(vm.uuid, VmState.STOPPED)


def _in_words(done: MovedLive) -> str:
    return f"it came to {done.vm.host}{'' if done.state.doubt is None else f', but {done.state.doubt}'}"


def _leases_of(services: Services, vm: Vm) -> list[Lease]:
    with services.store.reading() as session:
        return session.leases(vm_uuid=vm.uuid)


def _leases_there(there: HostSession, moved: Vm, shares: Sequence[Share]) -> tuple[Lease, ...]:
    """The leases of a VM on its new host by the metadata that it came with, for the shares that were held for it."""
    domain = there.hypervisor.domain(moved.uuid)
    known = {} if domain is None or domain.metadata is None else {one.device: one for one in domain.metadata.gpus}
    found = []
    for place, share in enumerate(shares):
        written = known.get(share.device)
        lease = Lease(
            str(uuid.uuid4()) if written is None else written.lease,
            moved.uuid,
            moved.request.tenant,
            moved.request.name,
            moved.host,
            place if written is None else written.index,
            share,
            LeaseState.RESERVED,
        )
        found.append(lease)
    return tuple(found)


def _volumes_there(services: Services, vm: Vm, target: str) -> list[VolumeMove]:
    """Of the VM's volumes, those that are recorded for its old host alone: both hosts share them."""
    with services.store.reading() as session:
        copied = {(one.pool, one.name) for one in session.volumes(vm_uuid=vm.uuid, host=target)}
        old = session.volumes(vm_uuid=vm.uuid, host=vm.host)
    return [VolumeMove(one, target, VolumeWay.SHARED) for one in old if (one.pool, one.name) not in copied]
