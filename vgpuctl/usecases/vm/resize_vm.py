# SPDX-License-Identifier: Apache-2.0
"""resize-vm: a VM gets other vCPUs, memory, GPUs or parameters of its vGPUs, on its host or on another one.

Its longest halt in a live move is changed in the store, and parameters of VFs on the host; the VM runs on. Any other
size on its host: the new shares are held by a reservation, and the VM is stopped with its old ones. One transaction
changes request, NUMA nodes and leases; from then on a reservation holds the old shares. Their devices are released, the
new ones are made, and the VM starts. A failure changes the rows back, makes the old shares again and starts the VM as
it was. A run that is killed leaves it whole in its old or its new size, and `repair` starts it (held_shares.py).
"""

import contextlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from vgpuctl.errors import ConcurrentChange, NoCapacity, StateError, VgpuctlError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.gpu_positions import placed_gpus
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.lease import Lease, LeaseState, without_leaving
from vgpuctl.model.plural import counted
from vgpuctl.model.times import format_duration
from vgpuctl.model.vgpu_params import VgpuParams, change_while_used
from vgpuctl.model.vm import Hold, Vm, VmRequest, VmState, in_resize
from vgpuctl.sharing.params import of_vf
from vgpuctl.specs.vm import check_request, list_differences
from vgpuctl.store.store import Session
from vgpuctl.usecases.found.find_vm import find_again, refuse_suspended, refuse_unfinished
from vgpuctl.usecases.found.vm_values import sizes_of
from vgpuctl.usecases.observed.capacities import rules_of
from vgpuctl.usecases.placement.quota import refuse_growth_over_quota
from vgpuctl.usecases.placement.reservations import used_by
from vgpuctl.usecases.running.operations import move_subject, operation, refuse_while_busy
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.running.undo import Undo
from vgpuctl.usecases.seats.licences import take_seat
from vgpuctl.usecases.share.held_shares import HeldFor, hold, release_held_for
from vgpuctl.usecases.share.release import release_ended, release_leases, release_shares
from vgpuctl.usecases.share.restore_shares import restore_shares, set_params
from vgpuctl.usecases.share.shares import check_leases, describe_share, leases_of
from vgpuctl.usecases.vm.final_preemptions import refuse_while_preempted
from vgpuctl.usecases.vm.move_plan import PlannedMove, plan_move
from vgpuctl.usecases.vm.move_vm import (
    MoveOptions,
    carry_out,
    runs_on,
    settled,
    start_again,
)
from vgpuctl.usecases.vm.resize_place import NewPlace, give_numa_again, place_here
from vgpuctl.usecases.vm.start_vm import refuse_closed, start_vm
from vgpuctl.usecases.vm.stop_vm import Stop, stop_vm

TRIES = 6


@dataclass(frozen=True)
class NewSize:
    """The wanted values; None stays as it is. gpus, vgpu_params: all of the VM, empty for none.

    max_downtime_s: the longest that a live move may halt it, inf for no limit.
    """

    vcpus: int | None = None
    memory_mib: int | None = None
    gpus: tuple[GpuRequest, ...] | None = None
    vgpu_params: VgpuParams | None = None
    max_downtime_s: float | None = None

    def of(self, request: VmRequest) -> VmRequest:
        """The request in its new size. Raises UsageError for a size that no VM can have."""
        return check_request(
            replace(
                request,
                vcpus=request.vcpus if self.vcpus is None else self.vcpus,
                memory_mib=request.memory_mib if self.memory_mib is None else self.memory_mib,
                gpus=request.gpus if self.gpus is None or _texts(self.gpus) == _texts(request.gpus) else self.gpus,
                vgpu_params=request.vgpu_params if self.vgpu_params is None else tuple(sorted(set(self.vgpu_params))),
                max_downtime_s=None if self.max_downtime_s == inf else self.max_downtime_s or request.max_downtime_s,
            )
        )


def _texts(gpus: Sequence[GpuRequest]) -> list[str]:
    return [one.text for one in placed_gpus(gpus)]


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


@dataclass(frozen=True)
class PlannedResize:
    """How a VM changes. Either `here`, its place on its own host, or `move` is set, or none of them: it runs on."""

    vm: Vm
    request: VmRequest
    before: tuple[Lease, ...]
    here: NewPlace | None = None
    move: PlannedMove | None = None

    @property
    def is_change(self) -> bool:
        """True if anything differs."""
        return self.request != self.vm.request

    @property
    def is_in_place(self) -> bool:
        """True if a VM that runs goes on with what changes: its longest halt, parameters of VFs that it keeps."""
        was, now = self.vm.request, self.request
        others = replace(now, max_downtime_s=was.max_downtime_s, vgpu_params=was.vgpu_params)
        is_placed = self.here is not None and (without_leaving(self.here.ending) or self.here.beginning)
        return others == was and change_while_used(was.vgpu_params, now.vgpu_params) and not (is_placed or self.move)

    @property
    def has_other_params(self) -> bool:
        """True if the parameters of its vGPUs change."""
        return self.request.vgpu_params != self.vm.request.vgpu_params

    @property
    def differences(self) -> list[str]:
        """One line per field that differs: `vcpus: 2 there, 4 wanted`."""
        before = self.vm.request.max_downtime_s
        is_lifted = before is not None and self.request.max_downtime_s is None
        lifted = [f"max_downtime: {format_duration(before)} there, none wanted"] if before and is_lifted else []
        return [*list_differences(self.vm.request, self.request), *lifted]

    @property
    def host(self) -> str:
        """The host that the VM is on then."""
        return self.vm.host if self.move is None else self.move.placement.host

    @property
    def shares_after(self) -> list[str]:
        """The shares that it has then, each in a few words."""
        if self.move is not None:
            return [f"{share.profile} on {share.function}" for share in self.move.placement.shares]
        return [describe_share(lease) for lease in (self.before if self.here is None else self.here.after)]

    @property
    def notes(self) -> list[str]:
        """Consequences for the VM's owner, a sentence each."""
        found = []
        if self.is_in_place and self.here is not None and self.vm.has_to_run:
            found.append("it changes while it runs")
        elif not self.is_in_place and self.vm.has_to_run:
            found.append("it is shut down, and started again in its new size")
        numa = None if self.here is None else self.here.numa
        if numa is not None and self.vm.numa is not None and numa.has_vnuma != self.vm.numa.has_vnuma:
            found.append("the guest's NUMA nodes change, and with them the PCI addresses of its GPUs in the guest")
        return found


def plan_resize(services: Services, vm: Vm, size: NewSize, *, may_move: bool = False) -> PlannedResize:
    """Find a place for the VM in its new size, on its own host first. Nothing is written, on no host.

    Raises UsageError for a size that no VM can have, StateError for a VM that cannot be resized, QuotaExceeded, and
    NoCapacity that says what keeps each GPU from it.
    """
    request = size.of(vm.request)
    with services.store.reading() as session:
        own = tuple(session.leases(vm_uuid=vm.uuid))
    if request == vm.request:
        return PlannedResize(vm, request, own)
    if replace(request, max_downtime_s=vm.request.max_downtime_s) == vm.request:
        refuse_unfinished(vm)
        return PlannedResize(vm, request, own)
    refuse_resize(services, vm, request)
    try:
        here = place_here(services, vm, request)
    except NoCapacity as full:
        if not may_move:
            raise NoCapacity(
                f"{vm.printed_name} cannot be resized on {vm.host}: {full.message}",
                context=full.context,
                hint=f"{full.hint}; or add --move to look for another host" if full.hint else "add --move to move it",
                brief=full.brief,
            ) from full
        services.say(f"{vm.host} has no room for the new size: looking for another host")
        move = plan_move(services, vm, request=request)
        with services.store.reading() as session:
            refuse_growth_over_quota(session, vm.request, request, own, leases_of(vm, move.placement))
        return PlannedResize(vm, request, own, move=move)
    with services.store.reading() as session:
        refuse_growth_over_quota(session, vm.request, request, here.ending, here.beginning)
    return PlannedResize(vm, request, own, here)


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
            if (
                vm.has_to_run
                and of_vf(vm.request.vgpu_params)
                and set_params(services, vm, without_leaving(plan.before))
            ):
                services.say_done(vm.printed_name, "its VFs set as they are to be: they were otherwise")
            return plan
        if vm.has_to_run and not plan.is_in_place and not options.may_restart:
            raise StateError(
                f"{vm.printed_name} runs, and is resized only while it is off",
                context=plan.differences,
                hint="add --restart to have it shut down and started again, or stop it first",
            )
        if plan.move is not None:
            wanted = MoveOptions(timeout_s=options.timeout_s, reason=options.reason, drain_s=options.drain_s)
            carry_out(services, plan.move, wanted)
        elif plan.here is None or (plan.is_in_place and vm.has_to_run):
            _change_in_place(services, plan, options.reason)
        else:
            _resize_here(services, plan, plan.here, options)
        services.say_done(vm.printed_name, f"resized: {', '.join(plan.differences)}")
    return plan


def refuse_resize(services: Services, vm: Vm, request: VmRequest, what: str = "be resized") -> None:
    """Raise StateError for a VM that cannot get another size or other GPUs, with the reason. what: for the message."""
    refuse_unfinished(vm)
    refuse_suspended(vm, "change")
    if vm.is_adopted:
        raise StateError(
            f"{vm.printed_name}: cannot {what}: its domain {vm.domain_name} is adopted, and vgpuctl never writes its"
            " definition",
            hint="change it with `virsh edit` while it is off, or delete it and create it again",
        )
    if vm.gang is not None:
        raise StateError(
            f"{vm.printed_name}: cannot {what}: it is one of a gang, whose VMs fit together and start together",
            hint="delete the gang, and create it again with --gang",
        )
    refuse_while_preempted(services, vm)
    refuse_closed(services, vm)
    with services.store.reading() as session:
        waiting = session.queued(vm.request.tenant, vm.request.name)
        reserved = used_by(session, vm)
    if waiting is not None:
        raise StateError(
            f"{vm.printed_name}: cannot {what}: it waits in the queue as it is",
            hint=f"vgpuctl leave-queue {vm.printed_name}",
        )
    if reserved is not None and request.gpus != vm.request.gpus:
        raise StateError(
            f"{vm.printed_name}: its GPUs cannot change: it uses reservation {reserved.name}, which keeps them",
            hint=f"vgpuctl cancel-reservation {vm.request.tenant}/{reserved.name}",
        )


def _change_in_place(services: Services, plan: PlannedResize, reason: str) -> None:
    """Change what the store has, and parameters of devices that a running VM keeps. Where that fails, all is as before.

    The host comes first: a run that is killed is done again.
    """
    vm, now = plan.vm, replace(plan.vm, request=plan.request)
    with operation(services, "resize-vm", vm), Undo(services.say, subject=vm.printed_name) as undoing:
        with services.store.reading() as session:
            _refuse_changed(session, plan)
        if plan.here is not None:
            undoing.push("parameters of its VFs", lambda: set_params(services, vm, plan.before))
            set_params(services, now, without_leaving(plan.before))
        with services.store.transaction() as session:
            _refuse_changed(session, plan)
            session.set_vm_request(vm.uuid, now.request)
            before, after = sizes_of(vm, plan.before), sizes_of(now, plan.before)
            session.add_vm_event(EventKind.VM_RESIZED, now, reason, before=before, after=after)
        undoing.keep()


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
