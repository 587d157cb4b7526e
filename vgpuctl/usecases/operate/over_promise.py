# SPDX-License-Identifier: Apache-2.0
"""controller: limit, move or stop a VM that takes time of a GPU which its neighbours were promised.

Its tenant's policy says so. Each finding (scheduler/advice/contention.py) is answered once, with an event that has its
evidence.
"""

from collections.abc import Callable, Mapping

from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.agent.wire.sharing import StopFunction
from vgpuctl.errors import ConcurrentChange, StateError, VgpuctlError
from vgpuctl.model.event import Event, EventFilter
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.over_promise import OverPromise, is_work_stopped, stopped_work
from vgpuctl.model.qualified_name import split_name
from vgpuctl.model.vgpu_params import VfParam, merge_params
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.sharing.function_time import shorter_slice
from vgpuctl.sharing.kinds import takes_function
from vgpuctl.sharing.occupancy import gpu_at
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.observations import read_facts
from vgpuctl.usecases.operate.serve_queue import Served
from vgpuctl.usecases.running.operations import operation
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.vm.move_vm import MoveOptions, MoveWay, move_vm
from vgpuctl.usecases.vm.resize_vm import NewSize, ResizeOptions, resize_vm

_SINCE_S = 86_400.0
"""A finding that began longer ago was answered, or nobody was there to answer it: the next one counts."""
_REASON = "it takes time of its GPU that its neighbours were promised"


def answer_over_promise(services: Services) -> list[Served]:
    """Answer each finding that lasts and that nobody has answered. A failure is an event too, and the answer."""
    with services.store.reading() as session:
        policies = {tenant: one for tenant, one in session.over_promise().items() if one.is_answered}
        open_ones = [(one, policies[tenant]) for tenant in sorted(policies) for one in _unanswered(session, tenant)]
    done = []
    for finding, policy in open_ones:
        try:
            with services.store.operation("over-promise", f"over-promise:{finding.subject}", exclusive=True):
                with services.store.reading() as session:
                    if all(one.id != finding.id for one in _unanswered(session, finding.tenant or "")):
                        continue
                done.append(_answer(services, finding, policy))
        except ConcurrentChange:
            continue  # another controller is at it
    return done


def _unanswered(session: Session, tenant: str) -> list[Event]:
    """The last finding of each VM and GPU, where it lasts and has no answer."""
    kinds = (EventKind.CONTENTION_OBSERVED.value, EventKind.OVER_PROMISE_ANSWERED.value)
    last: dict[tuple[str, object], Event] = {}
    for one in session.events(None, EventFilter(kinds=kinds, tenant=tenant, since=session.now() - _SINCE_S)):
        last[one.subject, one.evidence.get("gpu")] = one
    lasting = (one for one in last.values() if one.kind == EventKind.CONTENTION_OBSERVED)
    return [one for one in lasting if one.after.get("state") == "begun"]


def _answer(services: Services, finding: Event, policy: OverPromise) -> Served:
    tenant, name = split_name(finding.subject)
    with services.store.reading() as session:
        vm = session.vm(tenant or finding.tenant or "", name)
    if vm is None or vm.state is not VmState.RUNNING or vm.host != finding.host:
        outcome, words = "gone", f"it does not run on {finding.host} any more"
    else:
        try:
            outcome, words = _ANSWERS[policy](services, vm, finding)
        except VgpuctlError as error:
            outcome, words = "failed", error.reason_of(finding.subject)
    with services.store.transaction() as session:
        session.add_event(
            EventKind.OVER_PROMISE_ANSWERED,
            finding.subject,
            words,
            tenant=finding.tenant,
            host=finding.host,
            after={"policy": str(policy), "outcome": outcome},
            evidence={**finding.evidence, "finding_event": finding.id},
        )
    return Served(finding.subject, f"{outcome}: {words}")


def _vfs(services: Services, vm: Vm, finding: Event) -> tuple[list[str], Gpu]:
    """The VM's VFs of the GPU, and the GPU as its host shows it now.

    Raises StateError for another share, since no driver limits a single vGPU, and what reading the host raises.
    """
    with services.store.reading() as session:
        leases = [one for one in session.leases(vm_uuid=vm.uuid) if one.share.gpu == finding.evidence.get("gpu")]
    shares = [one.share for one in leases if takes_function(one.share)]
    gpu = gpu_at(read_facts(services, vm.host), shares[0].gpu) if shares else None
    if gpu is None:
        raise StateError(
            f"{vm.printed_name} cannot be limited: no driver limits the time of a single vGPU",
            hint="declare the scheduler equal-share or fixed-share for the GPU (docs/layout.md), or the policy move",
        )
    return sorted(one.function for one in shares), gpu


def _limit(services: Services, vm: Vm, finding: Event) -> tuple[str, str]:
    """Give the VFs a slice no longer than their neighbours'. Raises StateError where nothing can be limited."""
    found = shorter_slice(*_vfs(services, vm, finding))
    if isinstance(found, str):
        raise StateError(f"{vm.printed_name} cannot be limited: {found}")
    slower = merge_params(vm.request.vgpu_params, ((VfParam.EXEC_QUANTUM_MS.value, str(found)),))
    resize_vm(services, vm, NewSize(vgpu_params=slower), ResizeOptions(reason=_REASON))
    return "limited", f"its VF has {VfParam.EXEC_QUANTUM_MS}={found}"


def _move(services: Services, vm: Vm, _finding: Event) -> tuple[str, str]:
    """Move the VM live, to a host that the scheduler chooses. Raises StateError where no live move can be."""
    done = move_vm(services, vm, MoveOptions(MoveWay.LIVE, reason=_REASON))
    return "moved", f"from {vm.host} to {done.plan.placement.host}"


def _stop(services: Services, vm: Vm, finding: Event) -> tuple[str, str]:
    """Stop the work of the VM's VFs of the GPU. The VM runs on without them until it is started again, and says so."""
    functions, _gpu = _vfs(services, vm, finding)
    with services.store.reading() as session:
        every = [one.share.function for one in session.leases(vm_uuid=vm.uuid)]
    stopped = [one for one in every if is_work_stopped(vm, one)]
    with operation(services, "over-promise", vm):
        for function in functions:
            services.host(vm.host).agent.apply([StopFunction(function)])
            stopped = sorted({*stopped, function})
            with services.store.transaction() as session:
                session.set_vm_state(vm.uuid, VmState.RUNNING, stopped_work(stopped, _REASON))
    return "stopped", f"the work of its VF {', '.join(functions)}, until the VM is started again"


_ANSWERS: Mapping[OverPromise, Callable[[Services, Vm, Event], tuple[str, str]]] = {
    OverPromise.LIMIT: _limit,
    OverPromise.MOVE: _move,
    OverPromise.STOP: _stop,
}
