# SPDX-License-Identifier: Apache-2.0
"""Logged packets as events: one for each rule and host at first, then at most one in TELL_S, with what came meanwhile.

ovn-controller names a rule by the name of its ACL, which vgpuctl wrote. A host is believed about the rules of tenants
whose VMs run there alone. The packets are of anybody: no more of them is kept than protocol, addresses and ports.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from vgpuctl import typed_json
from vgpuctl.agent.wire.packet_log import LoggedRule, LogMark, PacketLog
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.rule_text import describe_traffic
from vgpuctl.model.vm import VmState
from vgpuctl.model.vpc import SecurityGroup
from vgpuctl.ovn.security import log_name
from vgpuctl.store.store import Session
from vgpuctl.usecases.running.services import HostSession, Services

TELL_S = 300.0
_MOST_EVENTS = 32
"""Of one host at one reading; what is left comes with the next ones."""
_KIND = "packet-log"
_PROTOCOL = re.compile(r"[a-z0-9]{1,12}(?=,|$)")
_FIELD = re.compile(r"(?:^|,)(nw_src|nw_dst|ipv6_src|ipv6_dst|tp_src|tp_dst|icmp_type)=([0-9a-fA-F.:]{1,45})(?=,|$)")
_VERDICTS = {"allow": "allowed", "drop": "dropped", "reject": "rejected"}


@dataclass(frozen=True)
class NamedRule:
    """A rule that logs."""

    tenant: str
    group: str
    rule: str


@dataclass(frozen=True)
class Pending:
    """Lines of a rule that no event has told yet. told_at: of its last event, by the store's clock."""

    lines: int
    first_at: str
    first: str
    last_at: str
    last: str
    told_at: float | None = None


@dataclass(frozen=True)
class NewLines:
    """The lines behind a mark; None for a log that was not read before."""

    since: LogMark | None
    log: PacketLog


@dataclass(frozen=True)
class _LogRecord:
    mark: LogMark | None = None
    pending: dict[str, Pending] = field(default_factory=dict)


def read_logged(services: Services, host: HostSession) -> NewLines | None:
    """Read the new lines of a host's log, where a rule of a VM there logs. Raises as the agent does."""
    with services.store.reading() as session:
        if not logged_rules(session, host.name):
            return None
        mark = _read(session, host.name).mark
    return NewLines(mark, host.agent.packet_log(mark))


def logged_rules(session: Session, host: str) -> Mapping[str, NamedRule]:
    """The rules that log, of tenants with running VMs on a host, by their names in the log."""
    tenants = {vm.request.tenant for vm in session.vms(host=host) if vm.state is VmState.RUNNING}
    return {
        log_name(tenant, group.name, rule): NamedRule(tenant, group.name, describe_traffic(rule))
        for tenant in sorted(tenants)
        for group in session.vpc_objects(tenant, SecurityGroup)
        for rule in group.rules
        if rule.log_per_s is not None
    }


def note_logged(session: Session, host: str, new: NewLines) -> None:
    """Keep the lines, in the caller's transaction, and add the events that are due.

    Lines that were noted meanwhile, since a look was recorded late, are left out.
    """
    now, names, before, log = session.now(), logged_rules(session, host), _read(session, host), new.log
    if before.mark != new.since:
        return
    pending = {key: one for key, one in before.pending.items() if key.partition("|")[0] in names}
    for one in log.rules:
        if one.name in names and one.verdict in _VERDICTS and one.direction in ("from-lport", "to-lport"):
            key = f"{one.name}|{one.verdict}|{one.direction}"
            pending[key] = _added(pending.get(key), one)
    told = 0
    for key, waiting in sorted(pending.items()):
        is_due = waiting.told_at is None or not 0 <= now - waiting.told_at < TELL_S
        if not waiting.lines and is_due:
            del pending[key]
        elif waiting.lines and is_due and told < _MOST_EVENTS:
            told += 1
            name, verdict, direction = key.split("|")
            _add_event(session, host, names[name], verdict, direction, waiting, log)
            pending[key] = replace(waiting, lines=0, told_at=now)
    session.save_host_record(host, _KIND, msgspec.json.encode(_LogRecord(log.mark, pending)).decode())


def describe_packet(text: str) -> str:
    """A packet in words: `tcp 10.0.0.2:40000 to 10.0.0.3:81`; only what is an address or a number is taken."""
    protocol = _PROTOCOL.match(text)
    fields = dict(_FIELD.findall(text))
    ends = []
    for side in ("src", "dst"):
        address = _address(fields.get(f"nw_{side}") or fields.get(f"ipv6_{side}") or "")
        port = fields.get(f"tp_{side}", "")
        is_port = port.isdecimal() and int(port) < 65_536
        shown = f"[{address}]" if is_port and ":" in address else address
        ends.append(f"{shown}:{port}" if is_port else shown)
    return f"{protocol[0] if protocol else 'a packet'} {ends[0]} to {ends[1]}"


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return "unknown"


def _added(before: Pending | None, one: LoggedRule) -> Pending:
    first, last = describe_packet(one.first), describe_packet(one.last)
    if before is None or not before.lines:
        told_at = None if before is None else before.told_at
        return Pending(one.lines, one.first_at, first, one.last_at, last, told_at)
    return replace(before, lines=before.lines + one.lines, last_at=one.last_at, last=last)


def _add_event(
    session: Session, host: str, rule: NamedRule, verdict: str, direction: str, waiting: Pending, log: PacketLog
) -> None:
    word = _VERDICTS[verdict]
    detail = f"{rule.rule}: {waiting.lines} logged {'packet' if waiting.lines == 1 else 'packets'} {word}"
    if waiting.lines == 1:
        detail += f", {waiting.last}"
    evidence = {
        "rule": rule.rule,
        "verdict": word,
        "direction": "egress" if direction == "from-lport" else "ingress",
        "packets": waiting.lines,
        "first": f"{waiting.first_at} {waiting.first}",
        "last": f"{waiting.last_at} {waiting.last}",
    }
    if log.skipped_bytes:
        evidence["not_read"] = f"{log.skipped_bytes} bytes of the log, which had too many lines"
    subject = f"{rule.tenant}/{rule.group}"
    session.add_event(EventKind.PACKETS_LOGGED, subject, detail, tenant=rule.tenant, host=host, evidence=evidence)


def _read(session: Session, host: str) -> _LogRecord:
    """The record of a host; one of another version of vgpuctl counts as none, and the log is read from its end on."""
    record = session.host_record(host, _KIND)
    if record is None:
        return _LogRecord()
    try:
        found: _LogRecord = typed_json.decode(record.content, _LogRecord)
    except msgspec.MsgspecError:
        return _LogRecord()
    return found
