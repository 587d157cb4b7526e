# SPDX-License-Identifier: Apache-2.0
"""Observations: the last answer of every host, GPU, share and VM, when it came, and since when there is none.

One record per host in the store. Every command that asks a host's agent or libvirt writes it here.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from vgpuctl import typed_json
from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.errors import CommandTimedOut, HostUnreachable, VgpuctlError
from vgpuctl.guests.facts.domain_facts import DomainState, NamedState
from vgpuctl.model.lease import Lease
from vgpuctl.model.times import format_duration, format_time
from vgpuctl.model.vm import Vm
from vgpuctl.model.way import Way
from vgpuctl.store.liveness import is_running, this_process
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.attempts import (
    as_known,
    attempts_by_host,
    attempts_on,
    note_attempts,
    tried_in_words,
)
from vgpuctl.usecases.observed.host_identity import note_identity
from vgpuctl.usecases.observed.observation_events import add_events
from vgpuctl.usecases.observed.observation_record import (
    EXPECTED_STATES,
    LOST,
    NEVER_LOOKED,
    TAKEN,
    UP,
    Record,
    Silence,
    StoredRows,
    with_domain,
    with_domains,
    with_facts,
    with_held,
    with_way,
    without_answer,
)
from vgpuctl.usecases.observed.readings import keep_reading
from vgpuctl.usecases.observed.strays import note_strays
from vgpuctl.usecases.running.operations import may_run
from vgpuctl.usecases.running.services import Services

_KIND = "observations"
_NO_ANSWER = (HostUnreachable, CommandTimedOut)
_JUST_READ_S = 60.0
_Change = Callable[[Record, StoredRows], Record]


@dataclass(frozen=True)
class Observation:
    """The last observation of one thing. Times are seconds since the epoch, UTC.

    state: of a VM, libvirt's word or `absent`; None when it was never observed. at: when that was. unknown_since: the
    first attempt after that which got no answer, with its problem; None when the last one did. name: of a VM's domain,
    where somebody has renamed it.
    """

    state: str | None = None
    at: float | None = None
    unknown_since: float | None = None
    problem: str | None = None
    name: str | None = None

    @property
    def known_state(self) -> str | None:
        """The state; None since the last attempt got no answer."""
        return self.state if self.unknown_since is None else None


NEVER_OBSERVED = Observation()


@dataclass(frozen=True)
class ObservedHost:
    """One host. state: `up`, `unreachable`, `host-key-changed`, `wrong-host` (another host of the inventory answers),
    `unusable` (it answers, but not as is needed), `not-reached` (all logins fail for long), or None.

    agent: `up` with the time of its last answer. libvirt: since when it does not answer. booted_at: when the present
    boot was first seen. layout: the differences to the declared layout, where the controller compared. gpus by address,
    shares by lease.
    """

    agent: Observation
    libvirt: Observation
    state: str | None
    boot_id: str | None
    booted_at: float | None
    layout: tuple[str, ...] | None
    gpus: Mapping[str, Observation]
    shares: Mapping[str, Observation]

    @property
    def silence(self) -> str | None:
        """Why no VM can be placed there now: the host or its libvirt gives no answer; None otherwise."""
        if self.state not in (None, UP):
            return f"it is {self.state}: {self.agent.problem}"
        return self.libvirt_silence

    @property
    def libvirt_silence(self) -> str | None:
        """The same of its libvirt alone."""
        return None if self.libvirt.unknown_since is None else f"its libvirt does not answer: {self.libvirt.problem}"


def look(services: Services, names: Sequence[str]) -> dict[str, VgpuctlError]:
    """Ask the libvirt of these hosts for the state of every domain, and record it. Returns the errors by host."""
    services.open_store()
    results = services.on_hosts(names, lambda name: read_domains(services, name))
    return {result.name: result.error for result in results if result.error is not None}


def note_facts(session: Session, host: str, facts: HostFacts, *, asked_at: float | None = None) -> None:
    """Record in the caller's transaction what the agent has answered, and cache the facts.

    asked_at: by time.monotonic(), where not just now: of shares that others have built since, the answer says nothing.
    """
    note_answers(session, host, facts=facts, age_s=0.0 if asked_at is None else time.monotonic() - asked_at)


def note_answers(
    session: Session,
    host: str,
    *,
    facts: HostFacts | None = None,
    layout: tuple[str, ...] | None = None,
    domains: Mapping[str, NamedState] | None = None,
    errors: Sequence[VgpuctlError] = (),
    way: Way | None = None,
    age_s: float = 0.0,
) -> None:
    """Record in the caller's transaction the answers of one look, and cache the facts.

    layout: the differences to the declared layout, where they were looked for. domains: by UUID. errors: of what gave
    no answer. way: how the host was asked; without it errors change nothing. age_s: since the host was asked. Newer
    observations by others stay.
    """
    now = session.now()
    asked_at = now - age_s
    changes: list[_Change] = []
    if facts is not None:
        changes.append(_facts_change(session, host, facts, layout, now, asked_at))
    if domains is not None:
        changes.append(lambda record, stored: with_domains(record, domains, stored, now, asked_at=asked_at))
    if way is not None and (facts is not None or domains is not None):
        changes.append(lambda record, _stored: with_way(record, way))
    changes += [
        lambda record, _stored, error=error: without_answer(record, error, now, way=way, asked_at=asked_at)  # type: ignore[misc]
        for error in errors
    ]
    if facts is None and domains is None:
        note_attempts(session, host, read_record(session, host), errors, way, asked_at)
    if changes:
        stored = _change(session, host, *changes)
        if domains is not None:
            note_strays(session, host, domains, {vm.uuid for vm in stored.vms})


def _facts_change(
    session: Session, host: str, facts: HostFacts, layout: tuple[str, ...] | None, now: float, asked_at: float
) -> _Change:
    def change(record: Record, stored: StoredRows) -> Record:
        is_less = set(record.gpus) - {gpu.address for gpu in facts.gpus}
        known = session.facts(host) if is_less else None
        before = None if known is None else known.facts
        after = with_facts(record, facts, stored, now, before=before, layout=layout, asked_at=asked_at)
        if after is not record:
            session.save_facts(host, facts, at=facts.read_at)
            note_identity(session, host, facts)
            _follow_type_ids(session, facts, stored)
        return after

    return change


def _follow_type_ids(session: Session, facts: HostFacts, stored: StoredRows) -> None:
    """Record the ids that the host's driver gives the types of its leases now."""
    # The catalogue of types, which lists of records do not need.
    from vgpuctl.sharing.type_names import renumbered

    for lease, share in renumbered(stored.leases, facts):
        session.set_lease_share(lease.id, share)


def note_state(session: Session, vm: Vm, state: DomainState | None) -> None:
    """Record in the caller's transaction what libvirt has just answered for one VM."""
    _change(session, vm.host, lambda record, stored: with_domain(record, vm, state, stored, session.now()))


def note_held(session: Session, vm: Vm) -> None:
    """Record in the caller's transaction that a VM's QEMU was just seen to hold each of its shares."""
    _change(session, vm.host, lambda record, stored: with_held(record, vm, stored, session.now()))


def note_failure(services: Services, host: str, error: VgpuctlError, *, asked_at: float | None = None) -> None:
    """Record that a host or its libvirt gave no answer, where the store can be written.

    A failure of the command itself (its inventory, known_hosts, key, ssh_config, or its end) is not recorded.
    asked_at: by time.monotonic(), where not just now.
    """
    _keep(services, host, asked_at, errors=(error,))


def read_facts(services: Services, host: str) -> HostFacts:
    """Read a host by its agent, and record what it answered or that it did not. Raises what the agent raises."""
    asked_at = time.monotonic()
    try:
        facts = services.host(host).agent.facts()
    except VgpuctlError as error:
        note_failure(services, host, error, asked_at=asked_at)
        raise
    services.read_at[host] = asked_at
    _keep(services, host, asked_at, facts=facts)
    return facts


def read_domains(services: Services, host: str) -> dict[str, NamedState]:
    """Ask a host for all its domains by UUID, and record its answer or that there was none. Raises its error."""
    asked_at = time.monotonic()
    try:
        domains = services.host(host).hypervisor.states()
    except VgpuctlError as error:
        note_failure(services, host, error, asked_at=asked_at)
        raise
    _keep(services, host, asked_at, domains=domains)
    return domains


def observations(session: Session, vms: Sequence[Vm]) -> dict[str, Observation]:
    """The last observation of each VM, by UUID."""
    hosts = {vm.host for vm in vms}
    records = {host: _known(session, host) for host in hosts} if len(hosts) < 2 else observation_records(session)
    return {vm.uuid: _of_vm(records.get(vm.host, NEVER_LOOKED), vm.uuid) for vm in vms}


def observed_shares(session: Session, leases: Sequence[Lease]) -> dict[str, Observation]:
    """The last observation of each lease's device, by the lease's id."""
    hosts = observed_hosts(session)
    return {
        lease.id: hosts[lease.host].shares.get(lease.id, NEVER_OBSERVED) if lease.host in hosts else NEVER_OBSERVED
        for lease in leases
    }


def observation_records(session: Session) -> dict[str, Record]:
    """The record of every host that was ever asked, by name, as it is known now."""
    records = {one.host: _decode(one.content) for one in session.host_records(_KIND)}
    tried = attempts_by_host(session, records)
    return {host: as_known(record, tried.get(host)) for host, record in records.items()}


def observed_hosts(session: Session) -> dict[str, ObservedHost]:
    """The last observation of every host that was ever asked, by name."""
    return {host: _observed(record) for host, record in observation_records(session).items()}


def readings_in_words(session: Session, hosts: Iterable[str]) -> dict[str, str]:
    """The last answer of each host with its age, and what was tried since: `up, 3m ago; tried 1m ago: …`."""
    records, now = observation_records(session), session.now()
    tried = attempts_by_host(session, records)
    known = {name: _observed(records.get(name, NEVER_LOOKED)).agent for name in sorted(hosts)}
    return {name: describe_age(seen, now) + tried_in_words(tried.get(name), now) for name, seen in known.items()}


def missing_gpus(session: Session) -> list[tuple[str, Gpu, Observation]]:
    """The GPUs that their hosts no longer show: host, last reading, last observation."""
    return [
        (one.host, seen.last, Observation(seen.state, seen.at))
        for one in session.host_records(_KIND)
        for _address, seen in sorted(_decode(one.content).gpus.items())
        if seen.last is not None
    ]


def libvirt_problems(session: Session) -> dict[str, str]:
    """Hosts whose libvirt gave no answer when it was last asked, with the reason and since when."""
    return {
        host: f"no answer since {format_time(one.libvirt.unknown_since)} UTC: {one.libvirt.problem}"
        for host, one in observed_hosts(session).items()
        if one.libvirt.unknown_since is not None
    }


def state_word(vm: Vm, seen: Observation) -> str:
    """The first word of `describe_state`: `unknown`, the declared state if that was observed, else the observed one."""
    if vm.state not in EXPECTED_STATES or (seen.unknown_since is None and seen.state == EXPECTED_STATES[vm.state]):
        return str(vm.state)
    return "unknown" if seen.unknown_since is not None or seen.state is None else seen.state


def told_state(vm: Vm, seen: Observation) -> str:
    """The state of a VM in one word as it was last observed, with the declared one where that differs."""
    word = state_word(vm, seen)
    return word if word == str(vm.state) else f"{word} (declared {vm.state})"


def told_states(session: Session, vms: Sequence[Vm]) -> dict[str, str]:
    """`told_state` of each VM, by UUID."""
    seen = observations(session, vms)
    return {vm.uuid: told_state(vm, seen[vm.uuid]) for vm in vms}


def describe_state(vm: Vm, seen: Observation, now: float) -> str:
    """The state of a VM as it was last observed, with its age: `running, 3m ago`, `unknown since …`."""
    if vm.state not in EXPECTED_STATES:
        return str(vm.state)
    if seen.state is None and seen.unknown_since is None:
        return f"unknown, never observed; declared {vm.state}"
    is_declared = seen.state == EXPECTED_STATES[vm.state]
    said = describe_age(replace(seen, state=str(vm.state) if is_declared else seen.state), now)
    if seen.unknown_since is not None:
        return said
    named = "" if seen.name is None else f" as {seen.name}"
    return said + named + ("" if is_declared else f"; declared {vm.state}")


def describe_wrong_share(seen: Observation, now: float) -> str | None:
    """The fault of a share's device: `lost` or `taken`; with its age if the host has not answered since."""
    if seen.state not in (LOST, TAKEN):
        return None
    return seen.state if seen.unknown_since is None else describe_age(seen, now)


def describe_age(seen: Observation, now: float) -> str:
    """An observation in words: `up, 3m ago`, `unknown since 2026-11-01 14:00 UTC, up 3m ago`, `never observed`."""
    age = "" if seen.at is None else f"{format_duration(max(0.0, now - seen.at))} ago"
    if seen.unknown_since is not None:
        before = f", {seen.state} {age}" if seen.at is not None else ""
        return f"unknown since {format_time(seen.unknown_since)} UTC{before}"
    return f"{seen.state}, {age}" if seen.state is not None else "never observed"


def _keep(
    services: Services,
    host: str,
    asked_at: float | None,
    *,
    facts: HostFacts | None = None,
    domains: Mapping[str, NamedState] | None = None,
    errors: Sequence[VgpuctlError] = (),
) -> None:
    def keep(session: Session) -> None:
        age_s = 0.0 if asked_at is None else time.monotonic() - asked_at
        told = [one for one in errors if not (isinstance(one, _NO_ANSWER) and is_seen_by_controller(session, host))]
        way = services.way_to(host)
        note_answers(session, host, facts=facts, domains=domains, errors=told, way=way, age_s=age_s)

    if errors and services.has_closed(host, asked_at):
        return
    keep_reading(services, "what the hosts answered", keep)


def is_seen_by_controller(session: Session, host: str) -> bool:
    """True if another process, a controller, watches a host and has just read it.

    A command to which the host does not answer then is cut off from it itself; if the host has just died, the
    controller finds that within its next looks.
    """
    record = read_record(session, host)
    if record.silence is not None or record.read_at is None or session.now() - record.read_at > _JUST_READ_S:
        return False
    return is_watched_by_other(session, host)


def is_watched_by_other(session: Session, host: str) -> bool:
    """True if another process that runs, a controller, watches a host."""
    me = this_process()
    return any(
        host in one.hosts and is_running(one) is not False
        for one in session.controllers()
        if (one.pid, one.machine) != (me.pid, me.machine)
    )


def _change(session: Session, host: str, *changes: _Change) -> StoredRows:
    """Replace the host's record, and add an event for each difference. Returns what the store has of the host."""
    busy = {one.subject for one in session.open_operations() if may_run(one)}
    leases = session.leases(host=host)
    stored = StoredRows(session.vms(host=host), leases, busy, session.leases_changed_at(host) if leases else {})
    before = after = read_record(session, host)
    for change in changes:
        after = change(after, stored)
    if after is not before:
        add_events(session, host, before, after, stored)
        session.save_host_record(host, _KIND, msgspec.json.encode(after).decode())
    return stored


def _known(session: Session, host: str) -> Record:
    record = read_record(session, host)
    return as_known(record, attempts_on(session, host, record))


def _of_vm(record: Record, uuid: str) -> Observation:
    seen = record.vms.get(uuid)
    return _unanswered(
        Observation() if seen is None else Observation(seen.state, seen.at, name=seen.name), record.libvirt_silence
    )


def _observed(record: Record) -> ObservedHost:
    gpus = {
        address: Observation(seen.state, seen.at, problem="; ".join(seen.problems) or None)
        for address, seen in record.gpus.items()
    }
    shares = {lease: Observation(seen.state, seen.at) for lease, seen in record.shares.items()}
    answers = None if record.read_at is None else UP
    return ObservedHost(
        _unanswered(Observation(answers, record.read_at), record.silence),
        _unanswered(Observation(), record.libvirt_silence),
        record.state,
        record.boot_id,
        record.booted_at,
        record.layout,
        {address: _unanswered(seen, record.silence) for address, seen in gpus.items()},
        {lease: _unanswered(seen, record.silence) for lease, seen in shares.items()},
    )


def _unanswered(seen: Observation, silence: Silence | None) -> Observation:
    """The observation as it stands since its host or libvirt does not answer."""
    return seen if silence is None else replace(seen, unknown_since=silence.since, problem=silence.problem)


def read_record(session: Session, host: str) -> Record:
    """The record of one host."""
    record = session.host_record(host, _KIND)
    return NEVER_LOOKED if record is None else _decode(record.content)


def _decode(content: str) -> Record:
    """Read a record; one of another version of vgpuctl counts as never looked, and the next look replaces it."""
    try:
        record: Record = typed_json.decode(content, Record)
    except msgspec.MsgspecError:
        return NEVER_LOOKED
    return record
