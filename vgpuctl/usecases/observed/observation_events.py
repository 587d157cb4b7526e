# SPDX-License-Identifier: Apache-2.0
"""Events of observations: what changed on a host between two records of it.

A change to the declared state is not reported; a change away from it is, and the way back.
"""

from collections.abc import Iterator

from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.faults import FaultId, remedy_of
from vgpuctl.model.health import HealthCode
from vgpuctl.model.vm import printed_name
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.observation_record import MISSING, Record, Seen, SeenGpu, Silence, StoredRows


def add_events(session: Session, host: str, before: Record, after: Record, stored: StoredRows) -> None:
    """Add the events that turn `before` into `after`."""
    for kind, subject, detail, was, is_now, tenant, fault in _changes(host, before, after, stored):
        evidence = {} if fault is None else {"finding": str(fault), "remedy": remedy_of(fault)}
        session.add_event(kind, subject, detail, tenant=tenant, host=host, before=was, after=is_now, evidence=evidence)


_Fault = HealthCode | FaultId | None
_Change = tuple[EventKind, str, str, Values, Values, str | None, _Fault]
"""Kind, subject, detail, before, after, tenant, and the fault that it is: of a change to the better, None."""


def _changes(host: str, before: Record, after: Record, stored: StoredRows) -> Iterator[_Change]:
    if before.state not in (None, after.state):
        problem = "" if after.silence is None else after.silence.problem
        fault = None if after.silence is None else FaultId.HOST_UNREACHABLE
        yield EventKind.HOST_OBSERVED, host, problem, {"state": before.state}, {"state": after.state}, None, fault
    if before.boot_id is not None and before.boot_id != after.boot_id:
        yield EventKind.HOST_REBOOTED, host, "", {"boot_id": before.boot_id}, {"boot_id": after.boot_id}, None, None
    if before.state is not None and (before.libvirt_silence is None) != (after.libvirt_silence is None):
        was, is_now = _word(before.libvirt_silence), _word(after.libvirt_silence)
        problem = "" if after.libvirt_silence is None else after.libvirt_silence.problem
        yield EventKind.LIBVIRT_OBSERVED, host, problem, {"state": was}, {"state": is_now}, None, None
    if after.layout is not None and after.layout != (before.layout or ()):
        text = "; ".join(after.layout) or "as declared"
        yield (
            EventKind.LAYOUT_OBSERVED,
            host,
            text,
            {"differences": list(before.layout or ())},
            {"differences": list(after.layout)},
            None,
            FaultId.LAYOUT_DIFFERS if after.layout else None,
        )
    yield from _gpu_changes(host, before, after)
    for vm in stored.vms:
        yield from _thing(
            EventKind.VM_OBSERVED,
            vm.printed_name,
            f"declared {vm.state}",
            before.vms,
            after.vms,
            vm.uuid,
            vm.request.tenant,
        )
    for lease in stored.leases:
        subject, share = printed_name(lease.tenant, lease.vm_name), f"{lease.share.profile} {lease.share.device}"
        yield from _thing(EventKind.SHARE_OBSERVED, subject, share, before.shares, after.shares, lease.id, lease.tenant)


def _thing(
    kind: EventKind, subject: str, text: str, before: dict[str, Seen], after: dict[str, Seen], key: str, tenant: str
) -> Iterator[_Change]:
    was, is_now = before.get(key), after.get(key)
    if is_now is None or (is_now.as_declared and (was is None or was.as_declared)):
        return
    if was is not None and (was.state, was.name, was.as_declared) == (is_now.state, is_now.name, is_now.as_declared):
        return
    named = "" if is_now.name is None else f"; its domain is named {is_now.name}"
    failed = "; neither its guest nor anybody else ended it" if is_now.has_failed else ""
    yield (
        kind,
        subject,
        text + named + failed,
        {} if was is None else {"state": was.state},
        {"state": is_now.state, **({"failed": True} if is_now.has_failed else {})},
        tenant,
        None if is_now.as_declared else FaultId.TRUTH_MISMATCH,
    )


def _gpu_changes(host: str, before: Record, after: Record) -> Iterator[_Change]:
    places = {seen.uuid: address for address, seen in before.gpus.items() if seen.uuid is not None}
    for address, is_now in after.gpus.items():
        was = before.gpus.get(address)
        moved_from = places.get(is_now.uuid) if is_now.uuid is not None else None
        if moved_from not in (None, address) and is_now.state != MISSING:
            yield (
                EventKind.GPU_MOVED,
                f"{host} {address}",
                f"GPU {is_now.uuid}",
                {"address": moved_from},
                {"address": address},
                None,
                None,
            )
        elif before.read_at is not None and not _is_same(was, is_now):
            text = "; ".join(is_now.problems)
            fault = HealthCode.GPU_MISSING if is_now.state == MISSING else None
            yield EventKind.GPU_OBSERVED, f"{host} {address}", text, _about(was), _about(is_now), None, fault


def _is_same(was: SeenGpu | None, is_now: SeenGpu) -> bool:
    """True without an event. A UUID that is read for the first time is none: the card's own driver has it."""
    if was is None or (was.state, was.problems) != (is_now.state, is_now.problems):
        return False
    return was.uuid is None or was.uuid == is_now.uuid


def _about(seen: SeenGpu | None) -> Values:
    """The parts of a GPU's state whose change is an event; another wording of its problems counts too."""
    return {} if seen is None else {"state": seen.state, "uuid": seen.uuid, "problems": list(seen.problems)}


def _word(silence: Silence | None) -> str:
    return "answers" if silence is None else "no answer"
