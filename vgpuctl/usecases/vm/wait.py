# SPDX-License-Identifier: Apache-2.0
"""wait: until VMs are running, stopped, placed or deleted, by the store and, about running guests, by their libvirt."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from vgpuctl.errors import NotFound, StateError, WaitTimedOut
from vgpuctl.guests.facts.domain_facts import DomainState
from vgpuctl.model.plural import counted
from vgpuctl.model.times import format_duration, format_time
from vgpuctl.model.vm import Vm, VmState, printed_name
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.observations import NEVER_OBSERVED, Observation, describe_state, look, observations
from vgpuctl.usecases.running.services import Services

_PACE_S = 1.0
"""The store is read so often."""
_LOOK_S = 5.0
"""A host is asked so often, and only where the store has no answer of it that is younger."""

_HOPELESS = (VmState.BROKEN, VmState.DELETING)


class Condition(StrEnum):
    """The state that is waited for. placed: the VM is out of the queue, on a host."""

    RUNNING = "running"
    STOPPED = "stopped"
    PLACED = "placed"
    DELETED = "deleted"


@dataclass(frozen=True)
class AwaitedName:
    """A VM to wait for. uuid: None for one that waits in the queue to be created, or that is not there."""

    tenant: str
    name: str
    uuid: str | None = None


@dataclass(frozen=True)
class Awaited:
    """A VM as it was last read. state: in words; `queued`, and `deleted` for one that is not there.

    reason: why the condition is not met, where anything tells. waited_s: until it was met, or until now.
    """

    tenant: str
    name: str
    state: str
    host: str | None
    is_met: bool
    reason: str | None
    waited_s: float = 0.0

    @property
    def printed_name(self) -> str:
        """Its name in messages: `acme/web-1`."""
        return printed_name(self.tenant, self.name)

    @property
    def line(self) -> str:
        """Its state with the reason: `acme/web-1: queued: no GPU can take A40-8Q`."""
        return f"{self.printed_name}: {self.state}" + ("" if self.reason is None else f": {self.reason}")


def wait_for(
    services: Services,
    names: Sequence[AwaitedName],
    condition: Condition,
    *,
    timeout_s: float,
    tell: Callable[[Awaited], None],
    watch: Callable[[Sequence[Awaited], float], None],
) -> list[Awaited]:
    """Wait until every VM meets the condition. Returns them in the order of `names`.

    A host is asked before a VM counts as running or stopped. timeout_s: 0 for one look. tell: called with each VM that
    arrives. watch: called once a second with those that are still awaited, and the seconds since the beginning.
    Raises WaitTimedOut with the state of each VM that is awaited; at once NotFound or StateError for a VM that cannot
    meet the condition: it is not there, is being deleted, or is broken.
    """
    began = time.monotonic()
    found: dict[AwaitedName, Awaited] = {}
    asked_at: dict[str, float] = {}
    while True:
        left = [one for one in names if one not in found]
        read = _read(services, left, condition, asked_at)
        waited_s = time.monotonic() - began
        for name, awaited in read.items():
            if awaited.is_met:
                found[name] = replace(awaited, waited_s=waited_s)
                tell(found[name])
        awaiting = [replace(one, waited_s=waited_s) for one in read.values() if not one.is_met]
        if not awaiting:
            return [found[one] for one in names]
        if waited_s >= timeout_s:
            raise _timed_out(awaiting, len(names), condition, timeout_s)
        watch(awaiting, waited_s)
        time.sleep(min(_PACE_S, max(0.0, timeout_s - waited_s)))


def _timed_out(awaiting: Sequence[Awaited], total: int, condition: Condition, timeout_s: float) -> WaitTimedOut:
    hint = "wait longer with --timeout"
    if any(one.state == "queued" for one in awaiting):
        hint += "; `vgpuctl list-controllers` shows if a controller serves the queue"
    are = "is" if total == 1 else "are"
    return WaitTimedOut(
        f"{len(awaiting)} of {counted(total, 'VM')} {are} not {condition} after {format_duration(timeout_s)}",
        context=[one.line for one in awaiting],
        hint=hint,
    )


def _read(
    services: Services, names: Sequence[AwaitedName], condition: Condition, asked_at: dict[str, float]
) -> dict[AwaitedName, Awaited]:
    """Read the store; where it is not fresh enough, ask the hosts that were not asked lately, and read it again."""
    with services.store.reading() as session:
        read, unsure = _read_store(session, names, condition)
    now = time.monotonic()
    hosts = sorted(host for host in unsure if now - asked_at.get(host, -_LOOK_S) >= _LOOK_S)
    if not hosts:
        return read
    for host in look(services, hosts):
        services.forget_host(host)
    asked_at.update(dict.fromkeys(hosts, time.monotonic()))
    with services.store.reading() as session:
        return _read_store(session, names, condition)[0]


def _read_store(
    session: Session, names: Sequence[AwaitedName], condition: Condition
) -> tuple[dict[AwaitedName, Awaited], set[str]]:
    """The VMs as the store has them, and the hosts whose last answer about them is too old."""
    vms = {one: vm for one in names if (vm := session.vm(one.tenant, one.name)) is not None}
    seen = observations(session, list(vms.values()))
    now = session.now()
    read: dict[AwaitedName, Awaited] = {}
    unsure: set[str] = set()
    for one in names:
        vm = vms.get(one)
        if vm is None or one.uuid not in (None, vm.uuid):
            read[one] = _without_vm(session, one, condition)
            continue
        entry = session.queued(one.tenant, one.name)
        last = seen.get(vm.uuid, NEVER_OBSERVED)
        is_met = _is_met(vm, last, condition, is_queued=entry is not None)
        if condition in (Condition.RUNNING, Condition.STOPPED) and vm.state in (VmState.RUNNING, VmState.STOPPED):
            is_fresh = last.at is not None and now - last.at <= _LOOK_S
            is_met = is_met and is_fresh
            unsure |= set() if is_fresh else {vm.host}
        if not is_met:
            _refuse_hopeless(vm, condition)
        reason = vm.problem if entry is None else f"in the queue to start again: {entry.why}"
        state = describe_state(vm, last, now)
        read[one] = Awaited(one.tenant, one.name, state, vm.host, is_met, None if is_met else reason)
    return read, unsure


def _is_met(vm: Vm, last: Observation, condition: Condition, *, is_queued: bool) -> bool:
    if condition is Condition.RUNNING:
        return vm.state is VmState.RUNNING and last.unknown_since is None and last.state == DomainState.RUNNING
    if condition is Condition.STOPPED:
        is_off = last.unknown_since is None and last.state in (DomainState.SHUT_OFF, DomainState.CRASHED)
        return vm.state in (VmState.RUNNING, VmState.STOPPED) and not vm.is_on_its_way and is_off
    return condition is Condition.PLACED and not is_queued and vm.state not in _HOPELESS


def _without_vm(session: Session, one: AwaitedName, condition: Condition) -> Awaited:
    """A VM that is to be created, or that is not there. Raises NotFound for one that is not there but should be."""
    entry = session.queued(one.tenant, one.name)
    if entry is not None and one.uuid is None:
        why = entry.reason or f"since {format_time(entry.queued_at)} UTC"
        return Awaited(one.tenant, one.name, "queued", None, False, why)
    if condition is Condition.DELETED:
        return Awaited(one.tenant, one.name, "deleted", None, True, None)
    gone = "deleted or has left the queue" if one.uuid is None else "deleted"
    raise NotFound(
        f"VM {printed_name(one.tenant, one.name)} cannot be {condition}: it was {gone}",
        hint=f"`vgpuctl list-events --tenant {one.tenant}` shows by whom",
    )


def _refuse_hopeless(vm: Vm, condition: Condition) -> None:
    """Raise StateError for a VM whose state does not lead to the condition."""
    if condition is Condition.DELETED or vm.state not in _HOPELESS:
        return
    raise StateError(
        f"VM {vm.printed_name} cannot be {condition}: "
        f"it is {'broken' if vm.state is VmState.BROKEN else 'being deleted'}",
        context=[] if vm.problem is None else [vm.problem],
        hint="`vgpuctl repair` finishes or rolls back what was interrupted",
    )
