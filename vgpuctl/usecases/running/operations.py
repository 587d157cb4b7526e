# SPDX-License-Identifier: Apache-2.0
"""The run that works on a VM now: an intent in the store, by which `repair` tells dead runs from live ones."""

import contextlib
import time
from collections.abc import Collection, Iterator, Sequence

from vgpuctl.errors import ConcurrentChange
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.store.liveness import is_running
from vgpuctl.store.records import Operation
from vgpuctl.store.store import Session
from vgpuctl.usecases.running.services import Services

_POLL_S = 0.2
_SETTLING = ("move-vm", "repair")
"""Commands that find out where a VM is whose live move was cut short; no other may touch it before."""


@contextlib.contextmanager
def operation(services: Services, kind: str, vm: Vm) -> Iterator[None]:
    """Tell the store that this process works on `vm`, and when it ends well, that nothing of dead runs is left to do.

    Raises ConcurrentChange when another living run works on it, or when nobody knows yet on which of two hosts it is.
    """
    with services.store.operation(kind, vm.uuid, vm.printed_name, exclusive=True, takes_over=True):
        if vm.live_target is not None and kind not in _SETTLING:
            raise _cut_short(vm)
        yield


def refuse_unsettled(services: Services, vm: Vm) -> None:
    """Raise ConcurrentChange for a VM whose live move was cut short: nobody knows yet on which of two hosts it is."""
    if vm.live_target is not None:
        with services.store.reading() as session:
            is_at_work = {vm.uuid, move_subject(vm)} & subjects_at_work(session)
        if not is_at_work:
            raise _cut_short(vm)


def _cut_short(vm: Vm) -> ConcurrentChange:
    return ConcurrentChange(
        f"{vm.printed_name} was moved live from {vm.host} to {vm.live_target}, and that did not end: it may run on"
        " either",
        hint="`vgpuctl repair` finds out and finishes it",
    )


@contextlib.contextmanager
def in_turn_with_others(services: Services, kind: str, subject: str, *, limit_s: float) -> Iterator[None]:
    """Begin an operation as soon as no other run is at one of the same subject, and end it with the block.

    A killed run is waited for no longer. Raises ConcurrentChange after limit_s seconds.
    """
    deadline = time.monotonic() + limit_s
    with contextlib.ExitStack() as held:
        while True:
            try:
                held.enter_context(services.store.operation(kind, subject, exclusive=True))
                break
            except ConcurrentChange:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_S)
        yield


@contextlib.contextmanager
def ending(services: Services, operation_id: int) -> Iterator[None]:
    """End an operation, begun in an earlier transaction, with the block."""
    try:
        yield
    finally:
        with services.store.transaction() as session:
            session.end_operation(operation_id)


def refuse_while_busy(services: Services, vm: Vm) -> None:
    """Raise ConcurrentChange while another living run works on `vm`, or preempts it."""
    subjects = (vm.uuid, preempt_subject(vm.uuid))
    with services.store.reading() as session:
        busy = [open_ for open_ in session.open_operations() if open_.subject in subjects and may_run(open_)]
    if busy:
        machine = busy[0].hostname
        gone = "" if is_running(busy[0]) else f"; if {machine} never comes back: `vgpuctl repair --gone {machine}`"
        raise ConcurrentChange(
            f"{busy[0].kind} is at work on VM {vm.request.name} of tenant {vm.request.tenant}"
            f" (process {busy[0].pid} on {machine})",
            hint=f"wait for it to end{gone}",
        )


def subjects_at_work(session: Session) -> frozenset[str]:
    """The subjects of the operations whose runs may be alive."""
    return frozenset(one.subject for one in session.open_operations() if may_run(one))


def move_subject(vm: Vm) -> str:
    """Name in the journal of a VM's move or resize, which stopping and starting it do not share."""
    return f"move:{vm.uuid}"


def part_of_move(vm: Vm, host: str, at_work: Collection[str]) -> str | None:
    """Say that what another host than its own has of a VM belongs to its move, and what ends that; None if it does not.

    at_work: as of `subjects_at_work`. What a cold move that was cut short has left belongs to none: the VM has all of
    its own on its host. Nobody knows that of a live one.
    """
    if host not in vm.former_hosts:
        return None
    move = f"it belongs to the move of {vm.printed_name} between {vm.host} and {host}, which"
    if {vm.uuid, move_subject(vm)} & set(at_work):
        return f"{move} is in progress: the command that moves it finishes it"
    return f"{move} was cut short: `vgpuctl repair` finishes it" if vm.state is VmState.RUNNING else None


def preempt_subject(vm_uuid: str) -> str:
    """Name in the journal of a VM's preemption, from its notice to its stop; its owner may use it meanwhile."""
    return f"preempt:{vm_uuid}"


def leave_subject(vm_uuid: str) -> str:
    """Name in the journal of a VM whose node is cordoned because the run is about to end the VM."""
    return f"leave:{vm_uuid}"


def reclaim_subject(requests: Sequence[VmRequest]) -> str:
    """Name in the journal of quota that is reclaimed for VMs of one tenant, until they hold their shares."""
    return f"reclaim:{requests[0].tenant}/{','.join(one.name for one in requests)}"


def may_run(operation: Operation) -> bool:
    """True if the run behind an intent may be alive; one on another machine counts as alive, its machine must say."""
    return is_running(operation) is not False
