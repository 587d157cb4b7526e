# SPDX-License-Identifier: Apache-2.0
"""Observed states of VMs: what libvirt last answered for each VM, when, and since when it did not answer.

One record per host in the store. Every command that asks a host's libvirt writes it here.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vgpuctl.errors import AgentProblem, HostError, VgpuctlError
from vgpuctl.guests.domain_facts import DomainState
from vgpuctl.hosts.fleet import run_on_hosts
from vgpuctl.model.times import format_duration, format_time
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.store.store import Session
from vgpuctl.usecases.support.readings import keep_reading
from vgpuctl.usecases.support.services import Services

ABSENT = "absent"
"""libvirt answered that it has no such domain."""
_KIND = "observations"
_EXPECTED = {VmState.RUNNING: DomainState.RUNNING, VmState.STOPPED: DomainState.SHUT_OFF}


@dataclass(frozen=True)
class Observation:
    """The last observation of one VM. Times are seconds since the epoch, UTC.

    state: libvirt's word or `absent`; None when libvirt was never asked. at: when it answered.
    unknown_since: the first attempt after that which got no answer, with its problem; None when the last one did.
    """

    state: str | None = None
    at: float | None = None
    unknown_since: float | None = None
    problem: str | None = None


NEVER_OBSERVED = Observation()


@dataclass(frozen=True)
class _Record:
    """vms: state and time by UUID."""

    vms: Mapping[str, tuple[str, float]]
    unknown_since: float | None = None
    problem: str | None = None


def look(services: Services, names: Sequence[str]) -> dict[str, VgpuctlError]:
    """Ask the libvirt of these hosts for the state of every domain, and record it. Returns the errors by host."""
    errors: dict[str, VgpuctlError] = {}
    for result in run_on_hosts(names, lambda name: services.host(name).hypervisor.states(), forks=services.forks):
        if result.error is not None:
            errors[result.name] = result.error
            note_failure(services, result.name, result.error)
        else:
            _note_host(services, result.name, result.value or {})
    return errors


def note_state(session: Session, vm: Vm, state: DomainState | None) -> None:
    """Record in the caller's transaction what libvirt has just answered for one VM."""
    record = _read(session, vm.host)
    states = {**record.vms, vm.uuid: (state.value if state else ABSENT, session.now())}
    _write(session, vm.host, _Record(states))


def note_answer(services: Services, vm: Vm, state: DomainState | None) -> None:
    """Record what libvirt has just answered for one VM, where the store can be written."""
    keep_reading(services, "what libvirt answered", lambda session: note_state(session, vm, state))


def note_failure(services: Services, host: str, error: VgpuctlError) -> None:
    """Record that a host's libvirt could not be asked. An error of the agent alone says nothing about libvirt."""
    if isinstance(error, AgentProblem) or not isinstance(error, HostError):
        return

    def note(session: Session) -> None:
        record = _read(session, host)
        since = session.now() if record.unknown_since is None else record.unknown_since
        _write(session, host, replace(record, unknown_since=since, problem=error.message))

    keep_reading(services, "what libvirt answered", note)


def observations(session: Session, vms: Sequence[Vm]) -> dict[str, Observation]:
    """The last observation of each VM, by UUID."""
    records = {host: _read(session, host) for host in {vm.host for vm in vms}}
    found = {}
    for vm in vms:
        record = records[vm.host]
        state, at = record.vms.get(vm.uuid, (None, None))
        found[vm.uuid] = Observation(state, at, record.unknown_since, record.problem)
    return found


def libvirt_problems(session: Session) -> dict[str, str]:
    """Hosts whose libvirt gave no answer when it was last asked, with the reason and since when."""
    records = {record.host: _decode(record.content) for record in session.host_records(_KIND)}
    return {
        host: f"no answer since {format_time(record.unknown_since)} UTC: {record.problem}"
        for host, record in records.items()
        if record.unknown_since is not None
    }


def describe_state(vm: Vm, seen: Observation, now: float) -> str:
    """The state of a VM as it was last observed, with its age: `running, 3m ago`, `unknown since …`."""
    if vm.state not in _EXPECTED:
        return str(vm.state)
    age = "" if seen.at is None else f"{format_duration(max(0.0, now - seen.at))} ago"
    if seen.unknown_since is not None:
        before = f", {_word(vm, seen)} {age}" if seen.state is not None else ""
        return f"unknown since {format_time(seen.unknown_since)} UTC{before}"
    if seen.state is None:
        return f"unknown, never observed; declared {vm.state}"
    declared = "" if seen.state == _EXPECTED[vm.state] else f"; declared {vm.state}"
    return f"{_word(vm, seen)}, {age}{declared}"


def _word(vm: Vm, seen: Observation) -> str:
    return str(vm.state) if seen.state == _EXPECTED[vm.state] else str(seen.state)


def _note_host(services: Services, host: str, states: Mapping[str, DomainState]) -> None:
    def note(session: Session) -> None:
        now = session.now()
        vms = {vm.uuid: (str(states.get(vm.uuid, ABSENT)), now) for vm in session.vms(host=host)}
        _write(session, host, _Record(vms))

    keep_reading(services, "what libvirt answered", note)


def _read(session: Session, host: str) -> _Record:
    record = session.host_record(host, _KIND)
    return _Record({}) if record is None else _decode(record.content)


def _decode(content: str) -> _Record:
    read: dict[str, Any] = json.loads(content)
    vms = {uuid: (str(state), float(at)) for uuid, (state, at) in read["vms"].items()}
    return _Record(vms, read["unknown_since"], read["problem"])


def _write(session: Session, host: str, record: _Record) -> None:
    """Replace the host's record; VMs that are gone leave it."""
    known = {vm.uuid for vm in session.vms(host=host)}
    vms = {uuid: seen for uuid, seen in record.vms.items() if uuid in known}
    content = {"vms": vms, "unknown_since": record.unknown_since, "problem": record.problem}
    session.save_host_record(host, _KIND, json.dumps(content))
