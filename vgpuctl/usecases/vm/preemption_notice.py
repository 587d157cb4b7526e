# SPDX-License-Identifier: Apache-2.0
"""The notice of VMs that are to be preempted: given, waited for, withdrawn."""

import contextlib
import time
from collections.abc import Iterator, Sequence

from vgpuctl.errors import GuestError, VgpuctlError
from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.times import format_duration, format_time_to_second
from vgpuctl.model.vm import PreemptionNotice, Vm, VmState
from vgpuctl.scheduler.candidates import Candidate
from vgpuctl.usecases.cluster.leave_cluster import PREEMPTED, TELL_S, find_leaving, note_drained
from vgpuctl.usecases.running.operations import may_run, preempt_subject
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.running.undo import Undo
from vgpuctl.usecases.vm.preemption_consent import Consent

_POLL_S = 2.0


@contextlib.contextmanager
def notice_to(services: Services, victims: Sequence[Candidate], cause: str, consent: Consent) -> Iterator[None]:
    """Announce the preemption and wait for the grace period; on an exception in the block the notices are withdrawn."""
    with services.store.reading() as session:
        there = {vm.uuid: vm for vm in session.vms() if vm.state is VmState.RUNNING}
    running = [(there[one.vm_uuid], one) for one in victims if one.vm_uuid in there]
    grace_s = max((one.grace_s if consent.grace_s is None else consent.grace_s for _, one in running), default=0.0)
    vms = [vm for vm, _ in running]
    if not grace_s:
        yield
        return
    notice = PreemptionNotice(services.store.now() + grace_s, cause)
    with Undo(services.say) as undoing:
        undoing.push(f"notice to {', '.join(vm.printed_name for vm in vms)}", lambda: withdraw(services, vms))
        with services.store.transaction() as session:
            for vm in vms:
                session.set_vm_notice(vm.uuid, notice)
                after = {"preempted at": format_time_to_second(notice.at), "by": cause}
                session.add_vm_event(EventKind.VM_PREEMPTION_NOTICE, vm, after=after)
        for vm in vms:
            services.say(f"{vm.printed_name}: is preempted by {cause} in {format_duration(grace_s)}")
            if not services.goes_on:
                _tell_domain(services, vm, notice.at)
        if not services.goes_on:
            _wait(services, vms, grace_s, cause)
        yield
        undoing.keep()


def _wait(services: Services, vms: Sequence[Vm], grace_s: float, cause: str) -> None:
    """Wait for the grace period, or until all of these VMs have stopped. Nodes of clusters are drained meanwhile."""
    deadline = time.monotonic() + grace_s
    uuids = {vm.uuid for vm in vms}
    nodes = [
        node for vm in vms if (node := find_leaving(services, vm, PREEMPTED, f"{PREEMPTED} by {cause}")) is not None
    ]
    left: dict[str, Sequence[str]] = {node.node.printed_name: ("unknown work",) for node in nodes}
    for node in nodes:  # all of them first: what leaves one is not to come to the next
        if (left_s := deadline - time.monotonic()) > 0:
            node.within(min(TELL_S, left_s)).tell()
    while deadline - time.monotonic() > 0:
        for node in nodes:
            if left[node.node.printed_name] and (left_s := deadline - time.monotonic()) > 0:
                left[node.node.printed_name] = node.within(min(TELL_S, left_s)).ask()
        time.sleep(max(0.0, min(_POLL_S, deadline - time.monotonic())))
        with services.store.reading() as session:
            if not any(vm.uuid in uuids and vm.state is VmState.RUNNING for vm in session.vms()):
                break
    if nodes:
        with services.store.transaction() as session:
            for node in nodes:
                note_drained(session, node.node, grace_s, left[node.node.printed_name])


def withdraw_dead_notices(services: Services, *, dry_run: bool = False) -> list[Vm]:
    """Withdraw notices of runs that died in the grace period. Returns the VMs that had one."""
    with services.store.reading() as session:
        living = {one.subject for one in session.open_operations() if may_run(one)}
        announced = [vm for vm in session.vms_with_notice() if vm.notice is not None and not vm.notice.is_final]
        found = [vm for vm in announced if preempt_subject(vm.uuid) not in living]
    if found and not dry_run:
        withdraw(services, found)
    return found


def drop_notices(services: Services, vms: Sequence[Vm], *, event: EventKind | None = None) -> None:
    """Clear the notices that these VMs have. event: recorded for each that had one."""
    with services.store.transaction() as session:
        there = {vm.uuid: vm for vm in session.vms() if vm.notice is not None}
        for vm in vms:
            if vm.uuid in there:
                session.set_vm_notice(vm.uuid, None)
                if event is not None:
                    notice = there[vm.uuid].notice
                    before: Values = {} if notice is None else {"by": notice.cause, "is_final": notice.is_final}
                    session.add_vm_event(event, vm, before=before)


def withdraw(services: Services, vms: Sequence[Vm]) -> None:
    """Clear the notices of VMs that are not preempted after all, also in their domains."""
    drop_notices(services, vms, event=EventKind.VM_PREEMPTION_WITHDRAWN)
    for vm in vms:
        services.say(f"{vm.printed_name}: is not preempted")
        with contextlib.suppress(VgpuctlError):  # the notice in the domain ends with the domain's run
            services.host(vm.host).hypervisor.set_preemption_notice(vm.domain_name, None, uuid=vm.uuid)


def _tell_domain(services: Services, vm: Vm, at: float) -> None:
    """Write the notice into the running domain's metadata. The store has it already, so a refusal ends nothing."""
    try:
        services.host(vm.host).hypervisor.set_preemption_notice(vm.domain_name, at, uuid=vm.uuid)
    except GuestError as error:
        services.say(f"{vm.printed_name}: its domain has no notice: {error.message}")
