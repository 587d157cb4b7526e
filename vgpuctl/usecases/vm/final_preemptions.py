# SPDX-License-Identifier: Apache-2.0
"""VMs whose notice is final: stopped or suspended, by the run that decided it or, if it cannot, by a later one."""

from collections.abc import Sequence
from dataclasses import replace

from vgpuctl.errors import ConcurrentChange, DomainRejected, HostError, StateError, VgpuctlError
from vgpuctl.model.vm import Hold, Preemption, Vm, VmState
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.failed_hosts import on_host
from vgpuctl.usecases.placement.preemption import action_on
from vgpuctl.usecases.running.operations import may_run, preempt_subject
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.vm.preemption_notice import drop_notices, withdraw
from vgpuctl.usecases.vm.stop_vm import Stop, stop_vm
from vgpuctl.usecases.vm.suspend_vm import suspend_vm

_PREEMPTED = "preempted by "


def stop_all(services: Services, vms: Sequence[Vm], timeout_s: float) -> None:
    """Stop VMs whose notices are final. Raises the first error after all were tried: no gang is to stay in part."""
    failures = []
    for vm in vms:
        services.say(f"{vm.printed_name}: is preempted by {vm.notice.cause if vm.notice else 'another VM'}")
        try:
            _stop(services, vm, timeout_s)
        except VgpuctlError as error:
            services.say(f"{vm.printed_name}: {error.message}")
            failures.append(error)
            _after_failed_stop(services, vm)
    if failures:
        raise failures[0]


def finish_preemptions(
    services: Services, *, timeout_s: float, dry_run: bool = False
) -> list[tuple[Vm, VgpuctlError | None]]:
    """Stop VMs whose notice is final and whose run died or failed, so that no gang stays stopped in part.

    timeout_s: for each guest to shut down. Returns each VM with the error that kept it from being stopped.
    """
    with services.store.reading() as session:
        living = {one.subject for one in session.open_operations() if may_run(one)}
        found = [vm for vm in _decided(session) if preempt_subject(vm.uuid) not in living]
    done: list[tuple[Vm, VgpuctlError | None]] = []
    silent: dict[str, HostError] = {}
    for vm in found:
        error: VgpuctlError | None = silent.get(vm.host)  # one time-out per host, not one per VM
        try:
            if error is None and dry_run:
                services.require_libvirt(vm.host)
            elif error is None:
                _finish(services, vm, timeout_s)
        except VgpuctlError as caught:
            services.forget_host(vm.host)
            error = caught
            if isinstance(caught, HostError):
                silent[vm.host] = caught
        done.append((vm, error))
    return done


def refuse_while_preempted(services: Services, vm: Vm) -> None:
    """Raise ConcurrentChange while a stopped VM, or another of its gang, has a final notice: the gang stops first."""
    with services.store.reading() as session:
        others = [one for one in _decided(session) if one.uuid == vm.uuid or (vm.gang and one.gang == vm.gang)]
    if others:
        raise ConcurrentChange(
            f"{others[0].printed_name} on {others[0].host} is being preempted"
            + ("" if others[0].uuid == vm.uuid else f", and {vm.printed_name} is of its gang"),
            hint="wait for it; when its host answers again, `vgpuctl repair` or the controller finishes it",
        )


def is_preempted(vm: Vm) -> bool:
    """True if a VM is stopped because another needed its shares."""
    return vm.state is VmState.STOPPED and (vm.problem or "").startswith(_PREEMPTED)


def _decided(session: Session) -> list[Vm]:
    stoppable = (VmState.RUNNING, VmState.STOPPED)
    noticed = session.vms_with_notice()
    return [vm for vm in noticed if vm.notice is not None and vm.notice.is_final and vm.state in stoppable]


def _finish(services: Services, vm: Vm, timeout_s: float) -> None:
    with services.store.operation("preempt-vm", preempt_subject(vm.uuid), vm.printed_name, exclusive=True):
        with services.store.reading() as session:
            now = next((one for one in _decided(session) if one.uuid == vm.uuid), None)
        if now is not None:
            _stop(services, now, timeout_s)


def _stop(services: Services, vm: Vm, timeout_s: float) -> None:
    """Stop or suspend a VM whose notice is final; repeatable."""
    problem = None if vm.notice is None else f"{_PREEMPTED}{vm.notice.cause}"
    # The grace period was the time to drain.
    how = Stop(Hold.RELEASE, timeout_s, problem, drain_s=0)
    with on_host(vm.host):
        refused = _suspend(services, vm, how)
        if refused:
            how = replace(how, problem=f"{problem}, and not suspended: {refused}")
        if refused is not None:
            stop_vm(services, vm, how)
    drop_notices(services, [vm])


def _suspend(services: Services, vm: Vm, how: Stop) -> str | None:
    """Suspend a VM whose owner wants that. Returns None if it is, else why its state cannot be saved, or ""."""
    with services.store.reading() as session:
        wants = action_on(session, vm) is Preemption.SUSPEND
    if not wants or vm.state is not VmState.RUNNING:
        return ""
    try:
        suspend_vm(services, vm, how)
    except (StateError, DomainRejected) as error:
        services.say(error.line_of(vm.printed_name))
        return error.said_of(vm.printed_name)
    return None


def _after_failed_stop(services: Services, vm: Vm) -> None:
    """Withdraw the final notice of a VM that could not be stopped, unless it runs and others of its gang do not."""
    with services.store.reading() as session:
        now = session.vm(vm.request.tenant, vm.request.name)
    if now is None or now.uuid != vm.uuid or now.state is not VmState.RUNNING:
        drop_notices(services, [vm])  # its owner has just stopped or deleted it, or only its shares are left
    elif vm.gang is None:
        withdraw(services, [vm])
    else:
        services.say(f"{vm.printed_name}: `vgpuctl repair` or the controller stops it as soon as {vm.host} answers")
