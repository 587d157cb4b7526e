# SPDX-License-Identifier: Apache-2.0
"""The record of one host's observations: the last state of the host, its GPUs, shares and VMs, each with its time.

Values and functions without a store: observations.py reads and writes the record, observation_events.py finds
the changes between two of them. Times are the store's, in seconds since the epoch, UTC.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from vgpuctl.agent.wire.facts import Gpu, Holder, HostFacts
from vgpuctl.errors import (
    AgentBroken,
    AgentProblem,
    AuthenticationFailed,
    BecomeFailed,
    CommandTimedOut,
    GuestError,
    HostError,
    HostKeyChanged,
    HostKeyUnknown,
    HostUnreachable,
    LibvirtMissing,
    PythonMissing,
    VgpuctlError,
    WayFailed,
    WrongHost,
)
from vgpuctl.guests.facts.domain_facts import DomainState, NamedState
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.model.way import Way

ABSENT = "absent"
"""libvirt answered that it has no such domain."""
PRESENT, UNREADABLE, MISSING = "present", "unreadable", "missing"
HELD, FREE, TAKEN, LOST = "held", "free", "taken", "lost"
UP, UNREACHABLE, KEY_CHANGED, UNUSABLE = "up", "unreachable", "host-key-changed", "unusable"
WRONG_HOST = "wrong-host"
NOT_REACHED, STALE = "not-reached", "stale"
"""All logins fail for long by their settings (attempts.py); a host that was up, and was not asked for long."""
MISSING_KEPT_S = 7 * 86_400.0
"""A GPU that was not seen for so long leaves the record: its card was taken out for good."""

EXPECTED_STATES = {VmState.RUNNING: DomainState.RUNNING, VmState.STOPPED: DomainState.SHUT_OFF}
_EXPECTED_SHARES = {LeaseState.RUNNING: HELD, LeaseState.BUILT: FREE}
_STATE_OF_ERROR: tuple[tuple[type[VgpuctlError], str], ...] = (
    (HostKeyChanged, KEY_CHANGED),
    (WrongHost, WRONG_HOST),
    (HostUnreachable, UNREACHABLE),
    (CommandTimedOut, UNREACHABLE),
)
_OF_THE_COMMAND = (HostKeyUnknown, AuthenticationFailed, BecomeFailed, WayFailed)
"""Failures of known_hosts, key, password or way: they say nothing of the host."""
_BEFORE_A_LOGIN = (HostUnreachable, HostKeyChanged, WrongHost, PythonMissing)
"""Failures that a wrong address or interpreter explains as well as a host that fails."""
_WAYS_KEPT = 8


class Silence(msgspec.Struct, frozen=True):
    """No answer since the first attempt that failed. state: what it says of the host, for example `unreachable`."""

    since: float
    problem: str
    state: str = UNUSABLE


class Seen(msgspec.Struct, frozen=True):
    """A VM or a share. as_declared: False if the store wants another state. name: of the domain, where it differs.

    has_failed: of a VM that is off, True if nobody has ended it.
    """

    state: str
    at: float
    as_declared: bool = True
    name: str | None = None
    has_failed: bool = False


class SeenGpu(msgspec.Struct, frozen=True):
    """A GPU. uuid: kept while nobody can read it, as of a card that a VM has. problems: the agent's sentences.

    last: the last reading of a GPU that is missing.
    """

    state: str
    at: float
    uuid: str | None = None
    problems: tuple[str, ...] = ()
    last: Gpu | None = None


class Record(msgspec.Struct, frozen=True):
    """One host. gpus by address, vms by UUID, shares by lease.

    read_at: when the agent answered. booted_at: when this boot (boot_id) was first seen. silence: of the agent;
    libvirt_silence: of libvirt. ways: by which logins worked, the last one last. host_keys: fingerprints by kind, of
    those logins. layout: the differences to the declared layout, None where nobody compared.
    first_boot_id: the boot of the first reading ever; of a record that had none, of the last reading before.
    """

    read_at: float | None = None
    boot_id: str | None = None
    first_boot_id: str | None = None
    booted_at: float | None = None
    silence: Silence | None = None
    libvirt_silence: Silence | None = None
    layout: tuple[str, ...] | None = None
    gpus: dict[str, SeenGpu] = {}
    vms: dict[str, Seen] = {}
    shares: dict[str, Seen] = {}
    ways: tuple[str, ...] = ()
    host_keys: dict[str, str] = {}

    @property
    def state(self) -> str | None:
        """`up`, `unreachable`, `host-key-changed`, `wrong-host`, `unusable` or `not-reached`; None if never asked."""
        if self.silence is not None:
            return self.silence.state
        return None if self.read_at is None else UP


NEVER_LOOKED = Record()


@dataclass(frozen=True)
class StoredRows:
    """The store's rows of one host, at the time of an observation.

    busy: UUIDs of VMs that a command works on. changed_at: when each lease last changed, by its id.
    """

    vms: Sequence[Vm]
    leases: Sequence[Lease]
    busy: Collection[str] = ()
    changed_at: Mapping[str, float] = field(default_factory=dict)


def with_facts(
    record: Record,
    facts: HostFacts,
    stored: StoredRows,
    now: float,
    *,
    before: HostFacts | None,
    layout: tuple[str, ...] | None = None,
    asked_at: float | None = None,
) -> Record:
    """The record after the agent has answered. before: the facts that the store had.

    asked_at: when it was asked, if somebody else may have asked it since.
    """
    if _is_newer(record.read_at, asked_at, now):
        return record
    is_new_boot = record.boot_id != facts.boot_id
    return msgspec.structs.replace(
        record,
        read_at=now,
        boot_id=facts.boot_id,
        first_boot_id=record.first_boot_id or record.boot_id or facts.boot_id,
        booted_at=now if is_new_boot else record.booted_at,
        silence=None,
        layout=record.layout if layout is None else layout,
        gpus=_gpus(record, facts, now, before),
        shares=_shares(record, facts, stored, now, asked_at),
    )


def with_domains(
    record: Record,
    domains: Mapping[str, NamedState],
    stored: StoredRows,
    now: float,
    *,
    asked_at: float | None = None,
) -> Record:
    """The record after libvirt has listed its domains, by UUID.

    asked_at: when it was asked, if somebody else may have asked it since.
    """
    vms = {}
    for vm in stored.vms:
        last = record.vms.get(vm.uuid)
        if last is not None and _is_newer(last.at, asked_at, now):
            vms[vm.uuid] = last
            continue
        found = domains.get(vm.uuid)
        name = None if found is None or found.name == vm.domain_name else found.name
        vms[vm.uuid] = msgspec.structs.replace(
            _seen_vm(record, vm, None if found is None else found.state, stored, now, name),
            has_failed=found is not None and found.has_failed,
        )
    # libvirt answers over the same connection as the agent: the host is there.
    silence = record.silence if record.silence is not None and record.silence.state == UNUSABLE else None
    return msgspec.structs.replace(record, vms=vms, silence=silence, libvirt_silence=None)


def with_domain(record: Record, vm: Vm, state: DomainState | None, stored: StoredRows, now: float) -> Record:
    """The record after libvirt has answered for one VM; VMs that are gone leave it."""
    known = {one.uuid for one in stored.vms}
    vms = {uuid: seen for uuid, seen in record.vms.items() if uuid in known}
    if vm.uuid in known:
        vms[vm.uuid] = _seen_vm(record, vm, state, stored, now, None)
    return msgspec.structs.replace(record, vms=vms, libvirt_silence=None)


def with_held(record: Record, vm: Vm, stored: StoredRows, now: float) -> Record:
    """The record after a start or a move has read back that a VM's QEMU holds each of its shares."""
    own = {
        one.id: Seen(HELD, now) for one in stored.leases if (one.vm_uuid, one.state) == (vm.uuid, LeaseState.RUNNING)
    }
    return msgspec.structs.replace(record, shares={**record.shares, **own}) if own else record


def with_way(record: Record, way: Way) -> Record:
    """The record after a login has worked."""
    keys = record.host_keys if way.host_key is None else {**record.host_keys, way.host_key[0]: way.host_key[1]}
    if record.ways[-1:] == (way.words,) and keys == record.host_keys:
        return record
    ways = (*(one for one in record.ways if one != way.words), way.words)[-_WAYS_KEPT:]
    return msgspec.structs.replace(record, ways=ways, host_keys=keys)


def is_of_host(record: Record, error: VgpuctlError, way: Way | None) -> bool:
    """True if a failure says something of the host, and not only of the command that met it.

    way: how the command went, None if its settings lead nowhere. Silence counts only on a way by which a login has
    worked before; a mistyped inventory or ssh_config leads elsewhere. If the host has the key of its last login, the
    command's known_hosts is wrong.
    """
    if way is None or isinstance(error, _OF_THE_COMMAND) or not isinstance(error, HostError | GuestError):
        return False
    if isinstance(error, HostKeyChanged) and (
        error.shown is None or record.host_keys.get(error.shown[0]) == error.shown[1]
    ):
        return False
    # A record from before ways were kept has none, and the host was read.
    is_new = not record.ways and (record.read_at is not None or not isinstance(error, _BEFORE_A_LOGIN))
    return is_new or way.words in record.ways


def answered_at(record: Record) -> float | None:
    """When the host's agent or libvirt answered last; None if neither ever did."""
    times = [seen.at for seen in record.vms.values()]
    return max(times if record.read_at is None else [*times, record.read_at], default=None)


def without_answer(
    record: Record, error: VgpuctlError, now: float, *, way: Way | None, asked_at: float | None = None
) -> Record:
    """The record after the host gave no answer, or its agent or libvirt alone. An own failure changes nothing.

    way: how it was asked. asked_at: when, if somebody else may have asked it since.
    """
    if not is_of_host(record, error, way):
        return record
    agent, libvirt = record.silence, record.libvirt_silence
    if not isinstance(error, (LibvirtMissing, GuestError)) and not _is_newer(record.read_at, asked_at, now):
        agent = _silence(agent, error, now)
    listed_at = max((seen.at for seen in record.vms.values()), default=None)
    if not isinstance(error, (AgentBroken, AgentProblem, PythonMissing)) and not _is_newer(listed_at, asked_at, now):
        libvirt = _silence(libvirt, error, now)
    return msgspec.structs.replace(record, silence=agent, libvirt_silence=libvirt)


def _is_newer(seen_at: float | None, asked_at: float | None, now: float) -> bool:
    """True if something was seen after another question was asked. A time to come is of a clock that was set back."""
    return seen_at is not None and asked_at is not None and asked_at < seen_at <= now


def _silence(before: Silence | None, error: VgpuctlError, now: float) -> Silence:
    state = next((state for kind, state in _STATE_OF_ERROR if isinstance(error, kind)), UNUSABLE)
    return Silence(now if before is None else before.since, error.message, state)


def _seen_vm(
    record: Record, vm: Vm, state: DomainState | None, stored: StoredRows, now: float, name: str | None
) -> Seen:
    word = ABSENT if state is None else state.value
    is_expected = vm.state not in EXPECTED_STATES or (name is None and word == EXPECTED_STATES[vm.state])
    as_declared = is_expected or (vm.uuid in stored.busy and _was_declared(record.vms.get(vm.uuid)))
    return Seen(word, now, as_declared, name)


def _was_declared(before: Seen | None) -> bool:
    return before is None or before.as_declared


def _gpus(record: Record, facts: HostFacts, now: float, before: HostFacts | None) -> dict[str, SeenGpu]:
    there = {gpu.uuid for gpu in facts.gpus if gpu.uuid is not None}
    gpus = {}
    for gpu in facts.gpus:
        uuid = gpu.uuid
        if uuid is None and gpu.address in record.gpus and record.gpus[gpu.address].uuid not in there:
            uuid = record.gpus[gpu.address].uuid
        gpus[gpu.address] = SeenGpu(UNREADABLE if gpu.unread else PRESENT, now, uuid, tuple(gpu.problems))
    read_before = {} if before is None else {gpu.address: gpu for gpu in before.gpus}
    for address, seen in record.gpus.items():
        if address in gpus or seen.uuid in there or now - seen.at > MISSING_KEPT_S:
            continue
        gpus[address] = SeenGpu(MISSING, seen.at, seen.uuid, last=seen.last or read_before.get(address))
    return gpus


def _shares(
    record: Record, facts: HostFacts, stored: StoredRows, now: float, asked_at: float | None
) -> dict[str, Seen]:
    # Every sharing kind, which lists of records do not need.
    from vgpuctl.sharing.share_on_host import holders_of, is_lost

    vms = {vm.uuid: vm for vm in stored.vms}
    shares = {}
    for lease in stored.leases:
        before, vm = record.shares.get(lease.id), vms.get(lease.vm_uuid)
        holders = holders_of(facts, lease.share)
        was_lost = vm is not None and is_lost(vm, lease, facts)
        # Of a share that was built or started since the host was asked, the answer says nothing.
        is_older = asked_at is not None and asked_at < stored.changed_at.get(lease.id, 0.0) <= now
        if is_older or (holders is None and not was_lost) or not lease.state.is_attached():
            if before is not None:
                shares[lease.id] = before
            continue
        state = LOST if holders is None or was_lost else _share_state(holders, lease)
        is_expected = state == _EXPECTED_SHARES[lease.state]
        as_declared = is_expected or (lease.vm_uuid in stored.busy and _was_declared(before))
        shares[lease.id] = Seen(state, now, as_declared)
    return shares


def _share_state(holders: Sequence[Holder], lease: Lease) -> str:
    if not holders:
        return FREE
    return HELD if any(one.vm_uuid == lease.vm_uuid for one in holders) else TAKEN
