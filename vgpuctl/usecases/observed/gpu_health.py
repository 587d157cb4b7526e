# SPDX-License-Identifier: Apache-2.0
"""The health of GPUs in the store: the last reading of each host, events of what is new, and quarantines."""

import json
from collections.abc import Iterable

import msgspec

from vgpuctl import typed_json
from vgpuctl.agent.wire.decode import to_json
from vgpuctl.agent.wire.health import HostHealth
from vgpuctl.errors import InventoryError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.health import DEFAULT_HEALTH_POLICY, HealthCode, HealthFinding, HealthPolicy
from vgpuctl.model.restriction import RestrictionKind, restrictions_on
from vgpuctl.sharing.health import (
    findings_of,
    gpu_of,
    looks_where,
    news,
    tells_not_yet,
    with_last_known,
    with_what_is_told,
)
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.readings import keep_reading
from vgpuctl.usecases.running.services import Services

_KIND, _ROMS = "health", "roms"


def read_health(services: Services, name: str) -> HostHealth:
    """Read the health of the GPUs of a host and note what is new. Raises what the agent raises."""
    health = services.host(name).agent.health()
    policy = policy_of(services, name)

    def note(session: Session) -> None:
        found = [one for one in note_health(session, name, health, policy) if policy.forbids(one)]
        if found:
            services.say(f"{name}: in quarantine: {describe_findings(found)}")

    keep_reading(services, "the health of the GPUs", note)
    return health


def policy_of(services: Services, host: str) -> HealthPolicy:
    """The policy of a host for what it already does: one that cannot be read is the default, and the user is told.

    Nothing is placed on such a host (capacities.py), but what a VM had there comes back, and sick GPUs are found.
    """
    try:
        return services.inventory.health_policy(host)
    except InventoryError as error:
        services.say(f"warning: {host}: the default policy for the health of GPUs counts: {error.message}")
        return DEFAULT_HEALTH_POLICY


def note_health(session: Session, host: str, now: HostHealth, policy: HealthPolicy) -> list[HealthFinding]:
    """Compare a reading with the one that the store has, and keep it in its place. Returns what is new.

    now: what `host.agent.health()` has just answered. policy: `policy_of(services, host)`.
    Each new finding is an event `gpu-health` whose evidence names the VMs on the card; one that the policy does not
    tolerate puts the GPU into quarantine, with an event `gpu-quarantined`. The same reading again changes nothing, and
    so does one that is older than the store's: two runs read the host, and the later one was faster. A value that a
    host which is just starting cannot tell becomes a finding when it is still missing later. A quarantine for nothing
    but a value that could not be read ends, with an event `gpu-released`, when the value is read and is good.
    """
    before = last_health(session, host)
    if before is not None and before.boot_id == now.boot_id and now.read_at_s < before.read_at_s:
        return []
    untold = tells_not_yet(now)
    found = [one for one in news(now, before) if one not in untold]
    for one in found:
        gpu = gpu_of(now, one.device)
        note_finding(session, host, one, policy, uuid=None if gpu is None else gpu.uuid)
    _end_unread(session, host, now, policy)
    keep_health(session, host, with_last_known(with_what_is_told(now) if untold else now, before))
    return found


def _end_unread(session: Session, host: str, now: HostHealth, policy: HealthPolicy) -> None:
    """End the quarantines for what could not be read of GPUs that this reading shows in good health."""
    kind = RestrictionKind.QUARANTINE
    unread = [one for one in session.restrictions() if (one.kind, one.finding) == (kind, str(HealthCode.UNREAD))]
    for gpu in now.gpus if unread else ():
        if any(policy.forbids(one) or one.code is HealthCode.UNREAD for one in findings_of(now, gpu.address, now)):
            continue
        for one in restrictions_on(unread, host, gpu.address, gpu.uuid):
            if not looks_where(gpu, one.reason):
                continue
            session.lift_restriction(one.host, one.device, kind)
            session.add_event(
                EventKind.GPU_RELEASED,
                one.subject,
                "it can be read again, and is healthy",
                host=one.host,
                before={str(kind): one.reason, "finding": one.finding, "set_by": one.set_by},
            )


def last_health(session: Session, host: str) -> HostHealth | None:
    """The last reading of a host, None when there is none that this version can use."""
    record = session.host_record(host, _KIND)
    if record is None:
        return None
    try:
        health: HostHealth = typed_json.decode(record.content, HostHealth)
    except msgspec.MsgspecError:
        return None
    return health


def keep_health(session: Session, host: str, now: HostHealth) -> None:
    """Keep a reading as the one to compare the next with."""
    session.save_host_record(host, _KIND, json.dumps(to_json(now)))


def note_finding(session: Session, host: str, found: HealthFinding, policy: HealthPolicy, *, uuid: str | None) -> None:
    """Add the event of a finding, and set the quarantine that the policy wants. uuid: of a whole GPU, if known."""
    leases = [one for one in session.leases(host=host) if found.device in (one.share.gpu, one.share.function)]
    vms = sorted({f"{one.tenant}/{one.vm_name}" for one in leases})
    session.add_event(
        EventKind.GPU_HEALTH,
        f"{host} {found.device}",
        f"{found.code}: {found.text}; {found.remedy}",
        host=host,
        evidence={"finding": str(found.code), "remedy": found.remedy, "uuid": uuid, "vms": vms},
    )
    if policy.forbids(found):
        quarantine_device(session, host, found, uuid)


def note_rom(session: Session, host: str, card: str, sha256: str) -> bool:
    """Keep the hash of a card's ROM. Returns True if it had another one before. card: its UUID, else its address."""
    record = session.host_record(host, _ROMS)
    known: dict[str, str] = {} if record is None else typed_json.decode(record.content, dict[str, str])
    before = known.get(card)
    if before != sha256:
        session.save_host_record(host, _ROMS, json.dumps({**known, card: sha256}))
    return before not in (None, sha256)


def quarantine_device(session: Session, host: str, found: HealthFinding, uuid: str | None) -> bool:
    """Put a GPU or VF into quarantine for a finding. Returns False when it is in quarantine already.

    A quarantine for a value that could not be read gives its place to any other finding, which does not end by itself.
    """
    kind = RestrictionKind.QUARANTINE
    if found.code is not HealthCode.UNREAD:
        every = [one for one in session.restrictions() if (one.kind, one.finding) == (kind, str(HealthCode.UNREAD))]
        for one in restrictions_on(every, host, found.device, uuid):
            session.lift_restriction(one.host, one.device, kind)
    if not session.restrict(host, found.device, kind, found.text, finding=str(found.code), gpu_uuid=uuid):
        return False
    session.add_event(
        EventKind.GPU_QUARANTINED,
        f"{host} {found.device}",
        f"{found.code}: {found.text}",
        host=host,
        after={"quarantine": found.text},
        evidence={"finding": str(found.code), "uuid": uuid},
    )
    return True


def describe_findings(found: Iterable[HealthFinding]) -> str:
    """Findings in one line: `0000:41:00.0 row-remap-pending`."""
    return ", ".join(dict.fromkeys(f"{one.device} {one.code}" for one in found))
