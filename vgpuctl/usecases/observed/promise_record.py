# SPDX-License-Identifier: Apache-2.0
"""The record of a host's promises: the last finding of each row of its VMs, with its time.

Every look writes it: create-vm and start-vm before the VM is said to run, the controller, check-vm. A row that turns
broken, or is kept again, is an event.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from vgpuctl import typed_json
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.faults import FaultId, remedy_of
from vgpuctl.model.promise import (
    LastFinding,
    Moment,
    PromiseFinding,
    PromiseRow,
    PromiseVerdict,
    worst_of_each,
)
from vgpuctl.model.vm import Vm
from vgpuctl.store.store import Session

_KIND = "promises"


class _Record(msgspec.Struct, frozen=True):
    vms: dict[str, tuple[LastFinding, ...]] = {}


def recorded(session: Session, vm: Vm) -> tuple[LastFinding, ...]:
    """The last finding of each row of a VM, in the order of the table; none of one that was never looked at."""
    return recorded_on(session, vm.host).get(vm.uuid, ())


def recorded_on(session: Session, host: str) -> Mapping[str, tuple[LastFinding, ...]]:
    """The same of the VMs of one host, by UUID."""
    return _read(session, host).vms


def recorded_of_hosts(session: Session) -> dict[str, Mapping[str, tuple[LastFinding, ...]]]:
    """The same of every VM, by host and UUID."""
    return {one.host: _decode(one.content).vms for one in session.host_records(_KIND)}


def known_kept(found: Sequence[LastFinding]) -> frozenset[tuple[PromiseRow, str, str]]:
    """Row, subject and promise of what was kept since the VM started."""
    return frozenset(
        (one.finding.row, one.finding.subject, one.finding.promised)
        for one in found
        if one.finding.verdict is PromiseVerdict.KEPT or one.was_broken
    )


def note_findings(session: Session, vms: Sequence[tuple[Vm, Sequence[PromiseFinding]]], moment: Moment) -> None:
    """Record, in the caller's transaction, the findings of VMs of one host, with an event for each that has changed.

    A look at the creation or start of a VM replaces its record.
    """
    if not vms:
        return
    host, now = vms[0][0].host, session.now()
    known = {one.uuid for one in session.vms(host=host)}
    before = _read(session, host).vms
    after = {uuid: found for uuid, found in before.items() if uuid in known}
    for vm, findings in vms:
        if vm.uuid in known:
            old = () if moment is Moment.CREATION else before.get(vm.uuid, ())
            after[vm.uuid] = _merged(session, vm, old, findings, moment, now)
    session.save_host_record(host, _KIND, msgspec.json.encode(_Record(after)).decode())


def _merged(
    session: Session,
    vm: Vm,
    old: Sequence[LastFinding],
    findings: Sequence[PromiseFinding],
    moment: Moment,
    now: float,
) -> tuple[LastFinding, ...]:
    before = {_key(one.finding): one for one in old}
    merged = []
    for finding in worst_of_each(findings):
        last = before.get(_key(finding))
        new = _next(last, finding, moment, now)
        if new.was_broken != (last is not None and last.was_broken):
            _add_event(session, vm, new)
        merged.append(new)
    left = [one for one in old if moment not in one.finding.row.moments]
    order = list(PromiseRow)
    return tuple(sorted([*merged, *left], key=lambda one: order.index(one.finding.row)))


def _next(last: LastFinding | None, finding: PromiseFinding, moment: Moment, now: float) -> LastFinding:
    was_broken, was_suspect = (False, False) if last is None else (last.was_broken, last.is_suspect)
    if finding.is_broken and moment is Moment.LOOK and not was_broken and not was_suspect:
        if last is not None:
            return replace(last, at=now, is_suspect=True)
        unsure = replace(
            finding, verdict=PromiseVerdict.NOT_LOOKED_AT, why="it was looked at once; the next look tells"
        )
        return LastFinding(unsure, now, now, is_suspect=True)
    is_unknown = finding.verdict is PromiseVerdict.NOT_LOOKED_AT
    since = last.since if last is not None and last.finding.verdict is finding.verdict else now
    return LastFinding(finding, now, since, was_broken=finding.is_broken or (is_unknown and was_broken))


def _add_event(session: Session, vm: Vm, new: LastFinding) -> None:
    finding = new.finding
    evidence = {"row": str(finding), "promised": finding.promised, "seen": finding.seen, "witness": finding.witness}
    if new.was_broken:
        evidence |= {
            "finding": str(FaultId.PROMISE_BROKEN),
            "remedy": finding.remedy or remedy_of(FaultId.PROMISE_BROKEN),
        }
    was, is_now = ("kept", "broken") if new.was_broken else ("broken", "kept")
    detail = f"{finding}: promised {finding.promised}, seen {finding.seen}"
    session.add_vm_event(
        EventKind.PROMISE_OBSERVED, vm, detail, before={"state": was}, after={"state": is_now}, evidence=evidence
    )


def _key(finding: PromiseFinding) -> tuple[PromiseRow, str]:
    return finding.row, finding.subject


def _read(session: Session, host: str) -> _Record:
    record = session.host_record(host, _KIND)
    return _Record() if record is None else _decode(record.content)


def _decode(content: str) -> _Record:
    """Read a record; one of another version of vgpuctl counts as never looked at, and the next look replaces it."""
    try:
        found: _Record = typed_json.decode(content, _Record)
    except msgspec.MsgspecError:
        return _Record()
    return found
