# SPDX-License-Identifier: Apache-2.0
"""VMs of the store that run on another host than the store says, as the looks at hosts find them.

A host that was declared dead and comes back may have one, and a host whose VM a restored store has elsewhere. A second
start would run the VM twice. Each host's are a record of their own, which nearly no host has.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from vgpuctl import typed_json
from vgpuctl.errors import StateError, VgpuctlError
from vgpuctl.guests.facts.domain_facts import DomainFact, DomainState, NamedState
from vgpuctl.model.event import EventFilter
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.faults import FaultId, remedy_of
from vgpuctl.model.vm import Vm, VmState, printed_name
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.fences import is_host_fenced
from vgpuctl.usecases.observed.readings import keep_reading
from vgpuctl.usecases.running.operations import move_subject, subjects_at_work
from vgpuctl.usecases.running.services import Services

_KIND = "strays"
_GONE = "gone"
_WITHOUT_DOMAIN = (EventKind.VM_MOVED, EventKind.VM_FOUND)
"""After these, a VM has no domain on its host before its next start."""
_SAY_WHERE = (
    *_WITHOUT_DOMAIN,
    EventKind.VM_CREATED,
    EventKind.VM_ADOPTED,
    EventKind.VM_RESTORED,
    EventKind.VM_STARTED,
    EventKind.VM_MOVED_LIVE,
    EventKind.VM_RENAMED,
)


class Stray(msgspec.Struct, frozen=True):
    """A domain that is active where the store does not have its VM. name: the domain's. since, at: first and last seen,
    seconds since the epoch, UTC."""

    name: str
    state: str
    since: float
    at: float

    @property
    def is_sure(self) -> bool:
        """True if two looks have seen it: a VM that is moved meanwhile is where it was at one look."""
        return self.at > self.since


def note_strays(session: Session, host: str, domains: Mapping[str, NamedState], known: Collection[str]) -> None:
    """Record in the caller's transaction which of a host's domains are VMs that the store has on other hosts.

    domains: every one of the host, by UUID. known: UUIDs of the VMs that the store has there. The second look at a
    stray is an event, as is its end. What a live move that was cut short has there is none: nothing but the end of the
    move touches the VM, and finds out where it is.
    """
    active, before = _active_here(session, host, domains, known), _read(session, host)
    if not active and not before:
        return
    at_work = subjects_at_work(session)
    after: dict[str, Stray] = {}
    for vm, domain in active:
        if at_work & {vm.uuid, move_subject(vm)} or vm.live_target == host:
            continue
        now, last = session.now(), before.get(vm.uuid)
        after[vm.uuid] = new = Stray(domain.name, domain.state.value, now if last is None else last.since, now)
        if new.is_sure and (last is None or not last.is_sure):
            evidence = {"finding": str(FaultId.TRUTH_MISMATCH), "remedy": remedy_of(FaultId.TRUTH_MISMATCH)}
            _add_event(session, host, vm, _GONE, new.state, evidence)
    for uuid in before.keys() - after.keys():
        was = session.vm_of(uuid)
        if was is not None and was.host != host and before[uuid].is_sure:
            _add_event(session, host, was, before[uuid].state, _GONE, {})
    if after:
        session.save_host_record(host, _KIND, msgspec.json.encode(after).decode())
    else:
        session.drop_host_record(host, _KIND)


def strays_by_host(session: Session) -> dict[str, dict[str, Stray]]:
    """The stray VMs of the last looks, by host and UUID."""
    return {one.host: _decode(one.content) for one in session.host_records(_KIND)}


def active_elsewhere(services: Services, vm: Vm) -> list[tuple[str, str]]:
    """Hosts that run a domain of the VM's UUID beside its own, each with what it answers now.

    The hosts where a look has seen one are asked again. One without an answer counts as it was seen, unless it is
    fenced: then it was declared dead.
    """
    with services.store.reading() as session:
        seen = [(host, there[vm.uuid]) for host, there in strays_by_host(session).items() if vm.uuid in there]
    found = []
    for host, stray in seen:
        if host == vm.host:
            continue
        try:
            state = services.host(host).hypervisor.state(stray.name, uuid=vm.uuid)
        except VgpuctlError as error:
            services.forget_host(host)
            if not is_host_fenced(services, host):
                found.append((host, f"domain {stray.name} was {stray.state} at the last look; now {error.message}"))
            continue
        if state is not None and state.is_active():
            found.append((host, f"domain {stray.name} is {state}"))
    return found


def _found_anywhere(services: Services, vm: Vm) -> list[tuple[str, str]]:
    """Ask every other host of the inventory whether it runs a domain of the VM's UUID.

    Raises StateError while one does not answer, unless it is fenced, or the VM's own host has no domain of it because
    vgpuctl has brought the VM there without one: then it says which ones do not answer.
    """
    with services.store.reading() as session:
        is_expected = _has_come_undefined(session, vm)
    if is_expected and services.goes_on:
        return []  # a dry run has not stopped it where it is
    found, silent = [], []
    others = [name for name in services.inventory.select(None) if name != vm.host]
    for one in services.on_hosts(
        others, lambda name: services.host(name).hypervisor.state(vm.domain_name, uuid=vm.uuid)
    ):
        if one.error is not None:
            services.note_silent(one.name, one.error)
            if not is_host_fenced(services, one.name):
                silent.append(one)
        elif one.value is not None and one.value.is_active():
            found.append((one.name, f"domain {vm.domain_name} is {one.value}"))
    reasons = [f"{one.name}: {one.error.reason_of(one.name)}" for one in silent if one.error is not None]
    if silent and not found and not is_expected:
        names = ", ".join(one.name for one in silent)
        raise StateError(
            f"{vm.printed_name} may run on {names}, which {'does' if len(silent) == 1 else 'do'} not answer:"
            f" {vm.host} has no domain of it any more",
            context=reasons,
            hint=f"start it when {names} {'answers' if len(silent) == 1 else 'answer'}; fence a host that is dead:"
            f" `vgpuctl evacuate-host {silent[0].name} --reason TEXT` (docs/maintenance.md)",
        ) from silent[0].error
    for reason in reasons:
        services.say(f"{vm.printed_name}: not known whether it runs on {reason}")
    return found


def _has_come_undefined(session: Session, vm: Vm) -> bool:
    """True if a VM has had no domain on its host since it came there, or may have none: a cold move brought it.

    Where the events were pruned, the answer is False.
    """
    if vm.state is VmState.STOPPED and vm.former_hosts:
        return True
    name, before_id = vm.request.name, None
    while True:
        subject = printed_name(vm.request.tenant, name)
        wanted = EventFilter((subject,), _SAY_WHERE, tenant=vm.request.tenant, before_id=before_id)
        last = next(iter(session.events(1, wanted)), None)
        if last is None or last.kind != EventKind.VM_RENAMED:
            return last is not None and last.kind in _WITHOUT_DOMAIN
        name, before_id = str(last.before["name"]), last.id


def refuse_second_start(services: Services, vm: Vm, state: DomainState | None) -> None:
    """Raise StateError where another host runs the VM, or may: it is silent, and the VM's own host lost its domain.

    state: its domain's on its own host. Where there is none, all other hosts are asked.
    """
    found = active_elsewhere(services, vm)
    if state is None and not found:
        found = _found_anywhere(services, vm)
    for host, words in found:
        raise StateError(
            f"{vm.printed_name} would run twice: the store has it on {vm.host}, and on {host} {words}",
            hint=way_out(host, vm.domain_name),
        )


def way_out(host: str, domain: str) -> str:
    """The commands that end a VM that runs on a host that is not the store's."""
    return (
        f"end the old one with `virsh shutdown {domain}` on {host}; "
        "if it is the right one, begin with `vgpuctl reconcile-store --begin`"
    )


def look_for_strays(services: Services, host: str, domains: Sequence[DomainFact]) -> None:
    """Record the same of domains that were just read, where the store can be written."""
    states = {one.uuid: NamedState(one.name, one.state) for one in domains}

    with services.store.reading() as session:
        known = {vm.uuid for vm in session.vms(host=host)}
        is_due = bool(_active_here(session, host, states, known) or _read(session, host))
    if is_due:
        what = "which VMs run on other hosts than the store says"
        keep_reading(services, what, lambda session: note_strays(session, host, states, known))


def _active_here(
    session: Session, host: str, domains: Mapping[str, NamedState], known: Collection[str]
) -> list[tuple[Vm, NamedState]]:
    found = ((session.vm_of(uuid), one) for uuid, one in domains.items() if uuid not in known and one.state.is_active())
    return [(vm, one) for vm, one in found if vm is not None and vm.host != host]


def _add_event(session: Session, host: str, vm: Vm, was: str, state: str, evidence: Mapping[str, str]) -> None:
    session.add_event(
        EventKind.VM_OBSERVED,
        vm.printed_name,
        f"on {host}, and the store has it on {vm.host}",
        tenant=vm.request.tenant,
        host=host,
        before={"state": was},
        after={"state": state},
        evidence=evidence,
    )


def _read(session: Session, host: str) -> dict[str, Stray]:
    record = session.host_record(host, _KIND)
    return {} if record is None else _decode(record.content)


def _decode(content: str) -> dict[str, Stray]:
    strays: dict[str, Stray] = typed_json.decode(content, dict[str, Stray])
    return strays
