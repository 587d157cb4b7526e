# SPDX-License-Identifier: Apache-2.0
"""resize-vm: a VM gets other vCPUs, memory, GPUs, limits or parameters of its vGPUs, on its host or on another one.

Its longest halt in a live move is changed in the store, parameters of VFs on the host, and limits of its vCPUs, disks
and interfaces by libvirt and OVN; the VM runs on. Any other size on its host: the new shares are held by a reservation,
and the VM is stopped with its old ones. One transaction changes request, NUMA nodes and leases; from then on a
reservation holds the old shares. Their devices are released, the new ones are made, and the VM starts. A failure
changes the rows back, makes the old shares again and starts the VM as it was. A run that is killed leaves it whole in
its old or its new size, and `repair` starts it (held_shares.py).
"""

import contextlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpuctl.errors import ConcurrentChange, StateError, VgpuctlError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease, LeaseState, without_leaving
from vgpuctl.model.network import Backend
from vgpuctl.model.plural import counted
from vgpuctl.model.vm import Hold, Vm, VmState, in_resize
from vgpuctl.quota.vm_limits import show_limits
from vgpuctl.sharing.params import of_vf
from vgpuctl.store.store import Session
from vgpuctl.usecases.domain.definition import define_again
from vgpuctl.usecases.domain.limits import RESIZE, FixedLimits, set_limits, try_limits
from vgpuctl.usecases.found.find_vm import find_again
from vgpuctl.usecases.found.vm_values import sizes_of
from vgpuctl.usecases.network.ports import attachments_of, connect
from vgpuctl.usecases.observed.capacities import rules_of
from vgpuctl.usecases.placement.quota import refuse_growth_over_quota
from vgpuctl.usecases.running.operations import move_subject, operation, refuse_while_busy
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.running.undo import Undo
from vgpuctl.usecases.seats.licences import take_seat
from vgpuctl.usecases.share.held_shares import HeldFor, hold, release_held_for
from vgpuctl.usecases.share.release import release_ended, release_leases, release_shares
from vgpuctl.usecases.share.restore_shares import restore_shares, set_params
from vgpuctl.usecases.share.shares import check_leases
from vgpuctl.usecases.vm.move_vm import (
    MoveOptions,
    carry_out,
    runs_on,
    settled,
    start_again,
)
from vgpuctl.usecases.vm.resize_place import NewPlace, give_numa_again, place_here
from vgpuctl.usecases.vm.resize_plan import NewSize, PlannedResize, plan_resize
from vgpuctl.usecases.vm.start_vm import start_vm
from vgpuctl.usecases.vm.stop_vm import Stop, stop_vm

TRIES = 6


@dataclass(frozen=True)
class ResizeOptions:
    """may_move: look for another host when its own has no room. may_restart: stop a VM that runs, and start it again.

    timeout_s: for its guest to shut down. reason: for the event. drain_s: the longest wait for the work on a node of a
    cluster, by default its pool's.
    """

    may_move: bool = False
    may_restart: bool = False
    timeout_s: float = 120.0
    reason: str = ""
    drain_s: float | None = None


def resize_vm(services: Services, vm: Vm, size: NewSize, options: ResizeOptions) -> PlannedResize:
    """Give a VM its new size. The same size again changes nothing.

    A VM that ran runs again; when anything fails on its own host, it runs as it was. Raises what `plan_resize` raises,
    StateError for a VM that runs without `may_restart`, and the errors of the hosts.
    """
    refuse_while_busy(services, vm)
    vm, _was_cut = settled(services, vm)
    with operation(services, "resize-vm", replace(vm, uuid=move_subject(vm))):
        vm = find_again(services, vm)
        plan = plan_resize(services, vm, size, may_move=options.may_move)
        if not plan.is_change:
            _set_again(services, plan)
            return plan
        if vm.has_to_run and not plan.is_in_place and not options.may_restart:
            raise _runs(plan)
        if plan.move is not None:
            wanted = MoveOptions(timeout_s=options.timeout_s, reason=options.reason, drain_s=options.drain_s)
            carry_out(services, plan.move, wanted)
        elif plan.here is None or (plan.is_in_place and vm.has_to_run):
            try:
                _change_in_place(services, plan, options.reason)
            except FixedLimits as fixed:
                plan = replace(plan, fixed=str(fixed))
                if not options.may_restart:
                    raise _runs(plan) from fixed
                here = place_here(services, vm, plan.request)
                plan = replace(plan, here=here)
                _resize_here(services, plan, here, options)
        else:
            _resize_here(services, plan, plan.here, options)
        services.say_done(vm.printed_name, f"resized: {', '.join(plan.differences)}")
    return plan


def _runs(plan: PlannedResize) -> StateError:
    return StateError(
        f"{plan.vm.printed_name} runs, and is resized only while it is off",
        context=[*plan.differences, *([] if plan.fixed is None else [plan.fixed])],
        hint="add --restart to have it shut down and started again, or stop it first",
    )


def _set_again(services: Services, plan: PlannedResize) -> None:
    """Set what somebody else changed of a VM that runs in its size: parameters of its VFs, its limits."""
    vm = plan.vm
    if not vm.has_to_run:
        return
    if of_vf(vm.request.vgpu_params) and set_params(services, vm, without_leaving(plan.before)):
        services.say_done(vm.printed_name, "its VFs set as they are to be: they were otherwise")
    if show_limits(vm.request) and set_limits(services, vm):
        services.say_done(vm.printed_name, "its limits set as they are to be: they were otherwise")


def _change_in_place(services: Services, plan: PlannedResize, reason: str) -> None:
    """Change what the store has, limits, and parameters of devices that a running VM keeps.

    Where that fails, all is as before. The host comes first: a run that is killed is done again, or `repair` sets what
    the store says.
    """
    vm, now = plan.vm, replace(plan.vm, request=plan.request)
    with operation(services, RESIZE, vm), Undo(services.say, subject=vm.printed_name) as undoing:
        with services.store.reading() as session:
            _refuse_changed(session, plan)
        if plan.here is not None:
            undoing.push("parameters of its VFs", lambda: set_params(services, vm, plan.before))
            set_params(services, now, without_leaving(plan.before))
        if plan.has_other_limits:
            _limit(services, plan, reason, undoing)
        else:
            _set_request(services, plan, now, reason)
        undoing.keep()


def _limit(services: Services, plan: PlannedResize, reason: str, undoing: Undo) -> None:
    """Limit the running domain, its definition and its ports in OVN, with the request in the store before the last."""
    vm, now = plan.vm, replace(plan.vm, request=plan.request)
    undoing.push("limits of the running domain", lambda: set_limits(services, vm))
    try_limits(services, now)
    undoing.push("definition", lambda: define_again(services, services.host(vm.host), vm))
    define_again(services, services.host(vm.host), now)
    networks = [one.network for one in attachments_of(services, vm) if one.network.request.backend is Backend.OVN]
    undoing.push("ports", lambda: connect(services, networks))
    _set_request(services, plan, now, reason)
    undoing.push("request of the VM", lambda: _request_back(services, plan))
    connect(services, networks)


def _set_request(services: Services, plan: PlannedResize, now: Vm, reason: str) -> None:
    with services.store.transaction() as session:
        _refuse_changed(session, plan)
        refuse_growth_over_quota(session, plan.vm.request, now.request, (), ())
        session.set_vm_request(now.uuid, now.request)
        before, after = sizes_of(plan.vm, plan.before), sizes_of(now, plan.before)
        session.add_vm_event(EventKind.VM_RESIZED, now, reason, before=before, after=after)


def _request_back(services: Services, plan: PlannedResize) -> None:
    with services.store.transaction() as session:
        session.set_vm_request(plan.vm.uuid, plan.vm.request)
        now, was = (sizes_of(replace(plan.vm, request=one), plan.before) for one in (plan.request, plan.vm.request))
        session.add_vm_event(EventKind.VM_RESIZED, plan.vm, "rolled back", before=now, after=was)


def _resize_here(services: Services, plan: PlannedResize, here: NewPlace, options: ResizeOptions) -> None:
    vm = plan.vm
    problem = in_resize(vm.host) if vm.has_to_run else None
    if here.beginning:
        with services.store.transaction() as session:
            _refuse_changed(session, plan)
            hold(session, vm, HeldFor.RESIZE_TO, vm.host, [one.share for one in here.beginning])
    try:
        if vm.has_to_run:
            stop_vm(services, vm, Stop(Hold.KEEP, options.timeout_s, problem, drain_s=options.drain_s))
        else:
            _release_leaving(services, plan)
        plan = replace(plan, before=without_leaving(plan.before))
        here = replace(here, before=without_leaving(here.before), ending=without_leaving(here.ending))
        now = _change_rows(services, plan, here, problem, options.reason)
    except BaseException:
        with services.store.transaction() as session:
            release_held_for(session, vm, HeldFor.RESIZE_TO)
        start_again(services, _as_stored(services, vm), was_running=vm.has_to_run)
        runs_on(services, vm)
        raise
    try:
        _make(services, now, here, has_other_params=plan.has_other_params)
    except BaseException as error:
        _change_back(services, plan, here, problem, error)
        raise
    with services.store.transaction() as session:
        release_held_for(session, vm, HeldFor.RESIZE_FROM)


def _release_leaving(services: Services, plan: PlannedResize) -> None:
    """Release the GPUs that were to be detached when the VM stopped; the stop of one that runs does it by itself."""
    leaving = [one for one in plan.before if one.state is LeaseState.RELEASING]
    if leaving:
        with operation(services, "resize-vm", plan.vm):
            release_shares(services, services.host(plan.vm.host), leaving)


def _as_stored(services: Services, vm: Vm) -> Vm:
    with services.store.reading() as session:
        return session.vm(vm.request.tenant, vm.request.name) or vm


def _change_rows(services: Services, plan: PlannedResize, here: NewPlace, problem: str | None, reason: str) -> Vm:
    """Change request, NUMA nodes and leases of a VM that is off, in one transaction. Its old shares stay held.

    Raises NoCapacity when others took the host's CPUs or memory meanwhile, QuotaExceeded and ConcurrentChange.
    """
    vm = plan.vm
    for _try in range(TRIES):
        numa, generation = give_numa_again(services, vm, plan.request, here.facts, here.after)
        now = replace(vm, request=plan.request, numa=numa, state=VmState.STOPPED, problem=problem)
        with contextlib.suppress(ConcurrentChange), services.store.transaction() as session:
            _refuse_changed(session, plan)
            refuse_growth_over_quota(session, vm.request, plan.request, here.ending, here.beginning)
            release_leases(session, here.ending)
            session.reserve(vm.host, generation, here.beginning)
            release_held_for(session, vm, HeldFor.RESIZE_TO)
            if here.ending:
                hold(session, vm, HeldFor.RESIZE_FROM, vm.host, [one.share for one in here.ending])
            _set(session, now, problem)
            if problem is not None:  # one that stays off takes its licence when it starts
                take_seat(session, now, session.leases(vm_uuid=vm.uuid))
            before, after = sizes_of(vm, plan.before), sizes_of(now, here.after)
            session.add_vm_event(EventKind.VM_RESIZED, now, reason, before=before, after=after)
            return now
    raise ConcurrentChange(
        f"{vm.host} or {vm.printed_name} changed {TRIES} times while it was resized", hint="try again"
    )


def _set(session: Session, vm: Vm, problem: str | None) -> None:
    session.set_vm_request(vm.uuid, vm.request)
    session.set_vm_numa(vm.uuid, vm.numa)
    if problem is not None:
        session.set_vm_state(vm.uuid, VmState.STOPPED, problem, kept_until=vm.ends_at)


def _refuse_changed(session: Session, plan: PlannedResize) -> None:
    """Raise StateError when the VM is not as it was planned."""
    vm = plan.vm
    now = session.vm(vm.request.tenant, vm.request.name)
    held = {one.id for one in without_leaving(session.leases(vm_uuid=vm.uuid))}
    if now is None or (now.uuid, now.host, now.request) != (vm.uuid, vm.host, vm.request):
        raise StateError(f"another run changed {vm.printed_name} while it was resized", hint="resize it again")
    if held != {one.id for one in without_leaving(plan.before)}:
        raise StateError(f"the leases of {vm.printed_name} changed while it was resized", hint="resize it again")


def _make(services: Services, now: Vm, here: NewPlace, *, has_other_params: bool) -> None:
    """Release the devices of the old shares, make the new ones, and start the VM if it ran."""
    host = services.host(now.host)
    with operation(services, "resize-vm", now):
        if here.ending:
            services.say(f"{now.printed_name}: {counted(len(here.ending), 'share')} given up")
            release_ended(services, host, here.ending)
        if here.beginning:
            checked = check_leases(here.beginning, now.request.gpus, host.agent.facts(), rules_of(services, now.host))
            with services.store.transaction() as session:
                for lease in checked:
                    session.set_lease_share(lease.id, lease.share)
    if now.is_on_its_way:
        start_vm(services, [now])
    elif here.beginning or has_other_params:
        restore_shares(services, now, dry_run=services.goes_on)


def _change_back(
    services: Services, plan: PlannedResize, here: NewPlace, problem: str | None, error: BaseException
) -> None:
    """Undo a resize whose rows are changed: the old shares are made again, and the VM starts as it was.

    A failure here is reported and left to `repair`.
    """
    vm = plan.vm
    services.say(f"{vm.printed_name}: rolling back to its size before")
    try:
        with operation(services, "resize-vm", vm):
            _release_new(services, vm, here.beginning)
            _rows_back(services, plan, here, problem, error)
        stored = _as_stored(services, vm)
        if problem is not None:
            start_vm(services, [stored])
        else:
            restore_shares(services, stored)
    except VgpuctlError as second:
        services.say(
            f"{vm.printed_name}: not rolled back completely: {second.message}; `vgpuctl repair` goes on from there"
        )
    else:
        services.say(f"{vm.printed_name}: rolled back, it is as it was")


def _release_new(services: Services, vm: Vm, leases: Sequence[Lease]) -> None:
    with services.store.reading() as session:
        live = {one.id: one for one in session.leases(vm_uuid=vm.uuid)}
    release_shares(services, services.host(vm.host), [live[one.id] for one in leases if one.id in live])


def _rows_back(
    services: Services, plan: PlannedResize, here: NewPlace, problem: str | None, error: BaseException
) -> None:
    vm = plan.vm
    again = [replace(one, id=str(uuid.uuid4()), state=LeaseState.RESERVED, problem=None) for one in here.ending]
    was = replace(vm, state=VmState.STOPPED, problem=problem)
    why = error.message if isinstance(error, VgpuctlError) else "interrupted"
    with services.store.transaction() as session:
        release_held_for(session, vm, HeldFor.RESIZE_FROM)
        session.reserve(vm.host, session.generation(vm.host), again)
        _set(session, was, problem)
        before, after = sizes_of(replace(vm, request=plan.request), here.after), sizes_of(vm, plan.before)
        session.add_vm_event(EventKind.VM_RESIZED, was, f"rolled back: {why}", before=before, after=after)
