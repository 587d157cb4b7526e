# SPDX-License-Identifier: Apache-2.0
"""controller: limit, move or stop a VM that takes time of a GPU which its neighbours were promised.

Its tenant's policy decides. Each finding (scheduler/advice/contention.py) is answered once, with an event that has its
evidence. A limit is undone when its finding is over, unless somebody changed the time slice meanwhile.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.agent.wire.measures import VGPU
from vgpuctl.agent.wire.sharing import StopFunction
from vgpuctl.errors import ConcurrentChange, StateError, VgpuctlError
from vgpuctl.model.event import Event, EventFilter, Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.over_promise import OverPromise, is_work_stopped, stopped_work
from vgpuctl.model.qualified_name import split_name
from vgpuctl.model.times import format_time
from vgpuctl.model.vgpu_params import VfParam, merge_params, split_params
from vgpuctl.model.vm import Vm, VmState, printed_name
from vgpuctl.scheduler.advice.contention import WINDOW_S
from vgpuctl.sharing.function_time import shorter_slice
from vgpuctl.sharing.kinds import takes_function
from vgpuctl.sharing.occupancy import gpu_at
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.observations import read_facts
from vgpuctl.usecases.operate.serve_queue import Served
from vgpuctl.usecases.running.history import PAST_PROBLEMS, open_past
from vgpuctl.usecases.running.operations import operation
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.vm.move_vm import MoveOptions, MoveWay, move_vm
from vgpuctl.usecases.vm.resize_plan import NewSize
from vgpuctl.usecases.vm.resize_vm import ResizeOptions, resize_vm

_SINCE_S = 86_400.0
"""A finding that began longer ago was answered, or nobody was there to answer it: the next one counts."""
_REASON = "it takes time of its GPU that its neighbours were promised"
"""Also the mark of a limit, in the event of the resize: that one is written with the change itself."""

_UNDO_REASON = "its neighbours do not lose time of their GPU any more"
_UNDONE, _NOT_UNDONE = "undone", "not-undone"
_UNDO_EVERY_S = 86_400.0
"""Under a limit nobody can tell if the VM would take the time without it, so it is tried once a day at most."""

_USE = "utilization_ratio"
_QUANTUM = VfParam.EXEC_QUANTUM_MS.value
_FATES = (EventKind.VM_CREATED, EventKind.VM_RESTORED, EventKind.VM_DELETED)
"""Events after which a VM of the same name is another one."""


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
                stale = _not_known_now(services, finding)
                done.append(_answer(services, finding, policy) if stale is None else Served(finding.subject, stale))
        except ConcurrentChange:
            continue  # another controller is at it
    return done + _undo_limits(services)


def _not_known_now(services: Services, finding: Event) -> str | None:
    """Why nobody knows that a finding still holds: it lasts also while its VM is not measured. None where it is known.

    One that has just begun is known. Later the VM's use must have been measured within the same time: then the process
    that keeps the readings has looked too, and has not said that it is over.
    """
    now = services.store.now()
    if 0 <= now - finding.at <= WINDOW_S:
        return None
    tenant, name = split_name(finding.subject)
    since, host = now - WINDOW_S, finding.host or ""
    of_vm = {"tenant": tenant or finding.tenant or "", "vm": name}
    with open_past(services.past()) as opened:
        past, problem, found = opened.past, opened.problem, set[str]()
        try:
            if past is not None:
                series = past.series(VGPU, _USE, since=since, until=now, step_s=60, host=host, **of_vm)
                found = {subject.gpu for subject in series}
        except PAST_PROBLEMS as error:
            problem = error.message
    if finding.evidence.get("gpu") in found:
        return None
    return f"waits: its use of the GPU was not measured since {format_time(since)} UTC: {problem or 'no reading'}"


def _unanswered(session: Session, tenant: str) -> list[Event]:
    """The last finding of each VM and GPU, where it lasts and has no answer."""
    kinds = (EventKind.CONTENTION_OBSERVED.value, EventKind.OVER_PROMISE_ANSWERED.value)
    last: dict[tuple[str, object], Event] = {}
    for one in session.events(None, EventFilter(kinds=kinds, tenant=tenant, since=session.now() - _SINCE_S)):
        if one.after.get("outcome") not in (_UNDONE, _NOT_UNDONE):
            last[one.subject, one.evidence.get("gpu")] = one
    lasting = (one for one in last.values() if one.kind == EventKind.CONTENTION_OBSERVED)
    return [one for one in lasting if one.after.get("state") == "begun"]


@dataclass(frozen=True)
class LimitToUndo:
    """Limits whose findings are over. over: the event of that. quantum: the time slice before, None for none."""

    vm: Vm
    over: Event
    quantum: str | None


def _undo_limits(services: Services) -> list[Served]:
    """Give the time slices back that a limit shortened, where the finding is over. A failure is an event too."""
    with services.store.reading() as session:
        names = [one.vm.printed_name for one in _limits_to_undo(session)]
    done = []
    for name in names:
        try:
            with services.store.operation("over-promise", f"over-promise:{name}", exclusive=True):
                with services.store.reading() as session:
                    still = [one for one in _limits_to_undo(session) if one.vm.printed_name == name]
                done += [_undo(services, one) for one in still]
        except ConcurrentChange:
            continue  # another controller is at it
    return done


def _limits_to_undo(session: Session) -> list[LimitToUndo]:
    """The limits to undo now."""
    vms = {one.printed_name: one for one in session.vms() if _QUANTUM in dict(one.request.vgpu_params)}
    if not vms:
        return []
    renames = session.events(None, EventFilter(kinds=(EventKind.VM_RENAMED.value,)))
    spans = {name: names_of(name, renames) for name in vms}
    subjects = tuple(sorted({span.name for of_vm in spans.values() for span in of_vm}))
    kinds = (EventKind.CONTENTION_OBSERVED, EventKind.OVER_PROMISE_ANSWERED, EventKind.VM_RESIZED, *_FATES)
    events = session.events(None, EventFilter(subjects=subjects, kinds=tuple(one.value for one in kinds)))
    found = (limit_to_undo(vms[name], own_events(of_vm, events), session.now()) for name, of_vm in spans.items())
    return [one for one in found if one is not None]


@dataclass(frozen=True)
class NameSpan:
    """A name that a VM has or had. after, before: the numbers of the events between which it had that name."""

    name: str
    after: int
    before: float


def names_of(name: str, renames: Sequence[Event]) -> list[NameSpan]:
    """The names of a VM from now on backwards. renames: every renaming of the store, noted under both of its names."""
    given = [one for one in renames if _renamed(one, "after") == one.subject]
    spans, before = list[NameSpan](), math.inf
    while True:
        last = max(
            (one for one in given if one.id < before and name in _names(one)), key=lambda one: one.id, default=None
        )
        spans.append(NameSpan(name, 0 if last is None else last.id, before))
        if last is None or _renamed(last, "after") != name:
            return spans  # what had the name before that was another VM, which was renamed
        name, before = _renamed(last, "before"), last.id


def _names(renaming: Event) -> tuple[str, str]:
    return _renamed(renaming, "before"), _renamed(renaming, "after")


def _renamed(renaming: Event, when: str) -> str:
    name = (renaming.before if when == "before" else renaming.after).get("name")
    return printed_name(renaming.tenant or "", str(name))


def own_events(spans: Sequence[NameSpan], events: Sequence[Event]) -> list[Event]:
    """The events of one VM under all of its names, the oldest first.

    A finding that began under an earlier name ends under it too, since the VM was renamed while it lasted.
    """
    own = [one for one in events for span in spans if one.subject == span.name and span.after < one.id < span.before]
    begun = {(one.subject, one.evidence.get("gpu")) for one in own if one.kind == EventKind.CONTENTION_OBSERVED}
    for span in spans[1:]:
        for one in sorted(events, key=lambda one: one.id):
            finding = (one.subject, one.evidence.get("gpu"))
            if one.kind != EventKind.CONTENTION_OBSERVED or one.id < span.before or finding not in begun:
                continue
            if one.subject == span.name:
                begun.discard(finding)  # the next one is of the VM that has the name by then
                if one.after.get("state") == "over":
                    own.append(one)
    return sorted(own, key=lambda one: one.id)


def limit_to_undo(vm: Vm, events: Sequence[Event], now: float) -> LimitToUndo | None:
    """The limit of a VM by its events, the oldest first; None where it has none, or keeps it for now.

    The last change of the time slice must be a limit: what somebody else set since is that one's wish.
    """
    limit: Event | None = None
    quantum: str | None = None
    findings: dict[object, Event] = {}
    for one in events:
        if one.kind in _FATES:
            limit, findings = None, {}
        elif one.kind == EventKind.CONTENTION_OBSERVED:
            findings[one.evidence.get("gpu")] = one
        elif one.kind == EventKind.VM_RESIZED and _quantum_of(one.before) != _quantum_of(one.after):
            quantum = quantum if limit is not None else _quantum_of(one.before)
            limit = one if one.detail == _REASON else None
        elif one.after.get("outcome") in (_UNDONE, _NOT_UNDONE) and one.at > now - _UNDO_EVERY_S:
            return None
    if limit is None or _quantum_of(limit.after) != dict(vm.request.vgpu_params).get(_QUANTUM):
        return None
    if not findings or any(one.after.get("state") != "over" for one in findings.values()):
        return None
    return LimitToUndo(vm, max(findings.values(), key=lambda one: one.id), quantum)


def _quantum_of(values: Values) -> str | None:
    params = values.get("vgpu_params")
    return dict(split_params(",".join(params))).get(_QUANTUM) if isinstance(params, list) else None


def _undo(services: Services, limit: LimitToUndo) -> Served:
    vm = limit.vm
    others = tuple(one for one in vm.request.vgpu_params if one[0] != _QUANTUM)
    before = others if limit.quantum is None else merge_params(others, ((_QUANTUM, limit.quantum),))
    try:
        resize_vm(services, vm, NewSize(vgpu_params=before), ResizeOptions(reason=_UNDO_REASON))
        slice_now = "no time slice of its own" if limit.quantum is None else f"{_QUANTUM}={limit.quantum}"
        outcome, words = _UNDONE, f"its VF has {slice_now} again: {_UNDO_REASON}"
    except VgpuctlError as error:
        outcome, words = _NOT_UNDONE, error.reason_of(vm.printed_name)
    with services.store.transaction() as session:
        session.add_vm_event(
            EventKind.OVER_PROMISE_ANSWERED,
            vm,
            words,
            after={"policy": str(OverPromise.LIMIT), "outcome": outcome},
            evidence={**limit.over.evidence, "finding_event": limit.over.id},
        )
    return Served(vm.printed_name, f"{outcome}: {words}")


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
    slower = merge_params(vm.request.vgpu_params, ((_QUANTUM, str(found)),))
    resize_vm(services, vm, NewSize(vgpu_params=slower), ResizeOptions(reason=_REASON))
    return "limited", f"its VF has {_QUANTUM}={found}"


def _move(services: Services, vm: Vm, _finding: Event) -> tuple[str, str]:
    """Move the VM live, to a host that the scheduler chooses. Raises StateError where no live move can be."""
    done = move_vm(services, vm, MoveOptions(MoveWay.LIVE, reason=_REASON))
    return "moved", f"from {vm.host} to {done.plan.placement.host}"


def _stop(services: Services, vm: Vm, finding: Event) -> tuple[str, str]:
    """Stop the work of the VM's VFs of the GPU. The VM runs on without them until its next start, and reports it."""
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
