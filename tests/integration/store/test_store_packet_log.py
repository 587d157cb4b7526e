# SPDX-License-Identifier: Apache-2.0
"""Logged packets become events: bounded in number, of tenants on the host alone, and of nothing but addresses."""

from dataclasses import replace

import pytest

from tests.integration.store.conftest import Clock
from tests.integration.store.samples import vm
from vgpuctl.agent.wire.packet_log import LoggedRule, LogMark, PacketLog
from vgpuctl.model.event import Event, EventFilter
from vgpuctl.model.rule_text import parse_rule
from vgpuctl.model.vm import VmState
from vgpuctl.model.vpc import SecurityGroup
from vgpuctl.ovn.security import log_name
from vgpuctl.store.store import Store
from vgpuctl.usecases.observed.packet_log_record import TELL_S, NewLines, _read, describe_packet, note_logged

RULE = parse_rule("deny:tcp:81,log")
NAME = log_name("acme", "web", RULE)
FLOW = "tcp,dl_src=52:54:00:00:00:01,nw_src=10.0.0.2,nw_dst=10.0.0.3,nw_ttl=64,tp_src=4000,tp_dst=81,tcp_flags=syn"


@pytest.fixture
def logging(store: Store) -> Store:
    """acme's rule logs, and a VM of it runs on gpu1; umbrella's VM runs on gpu2 alone."""
    with store.transaction() as session:
        for tenant, host in (("acme", "gpu1"), ("umbrella", "gpu2")):
            session.add_tenant(tenant)
            session.add_vm(replace(vm("web", tenant, host), state=VmState.RUNNING))
            session.set_vpc_object(tenant, SecurityGroup("web", (RULE, parse_rule("tcp:80"))))
    return store


def _log(lines: int = 1, name: str = NAME, verdict: str = "drop", packet: str = FLOW) -> PacketLog:
    at = "2026-11-30T20:00:01.345Z"
    return PacketLog(LogMark(7, 100), (LoggedRule(name, verdict, "to-lport", lines, at, packet, at, packet),))


def _events(store: Store, *logs: PacketLog, host: str = "gpu1") -> list[Event]:
    for one in logs:
        with store.transaction() as session:
            since = _read(session, host).mark
            note_logged(session, host, NewLines(since, one))
    with store.reading() as session:
        return session.events(None, EventFilter(kinds=("packets-logged",)))


def test_the_first_packet_is_told_at_once_and_later_ones_together(logging: Store, clock: Clock) -> None:
    (first,) = _events(logging, _log())
    assert (first.subject, first.tenant, first.host) == ("acme/web", "acme", "gpu1")
    assert first.detail == "deny:tcp:81: 1 logged packet dropped, tcp 10.0.0.2:4000 to 10.0.0.3:81"
    assert first.evidence["direction"] == "ingress"
    nothing = replace(_log(), rules=())
    assert len(_events(logging, _log(5), nothing, _log(7))) == 1
    clock.now += TELL_S
    told = _events(logging, _log(2))
    assert [one.detail for one in told[1:]] == ["deny:tcp:81: 14 logged packets dropped"]
    assert told[1].evidence["packets"] == 14
    clock.now += TELL_S
    assert len(_events(logging, nothing, nothing)) == 2


@pytest.mark.parametrize(
    "log",
    [
        _log(name=log_name("umbrella", "web", RULE)),
        _log(name="acme/web tcp:80"),
        _log(name="acme/web|drop"),
        _log(verdict="maybe"),
    ],
    ids=["a tenant without a VM there", "a rule that does not log", "no rule", "no verdict"],
)
def test_what_a_host_cannot_know_is_no_event(logging: Store, log: PacketLog) -> None:
    assert _events(logging, log) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FLOW, "tcp 10.0.0.2:4000 to 10.0.0.3:81"),
        ("udp6,ipv6_src=fd00:1::2,ipv6_dst=fd00:1::3,tp_src=53,tp_dst=5353", "udp6 [fd00:1::2]:53 to [fd00:1::3]:5353"),
        ("icmp,nw_src=10.0.0.2,nw_dst=10.0.0.3,icmp_type=8", "icmp 10.0.0.2 to 10.0.0.3"),
        ("tcp,nw_src=10.0.0.2,nw_dst=10.0.0.3,tp_src=99999,tp_dst=1", "tcp 10.0.0.2 to 10.0.0.3:1"),
        ("\x1b[2Jtcp,nw_src=1.2.3,nw_dst=::::", "a packet unknown to unknown"),
        ("", "a packet unknown to unknown"),
    ],
)
def test_a_packet_in_words_has_nothing_of_its_sender_but_addresses(text: str, words: str) -> None:
    assert describe_packet(text) == words


def test_a_flood_of_rules_is_bounded(store: Store, clock: Clock) -> None:
    rules = tuple(parse_rule(f"deny:tcp:{number},log") for number in range(1, 101))
    with store.transaction() as session:
        session.add_tenant("acme")
        session.add_vm(replace(vm("web"), state=VmState.RUNNING))
        session.set_vpc_object("acme", SecurityGroup("web", rules))
    each = [_log(name=log_name("acme", "web", one)).rules[0] for one in rules]
    assert len(_events(store, replace(_log(), rules=tuple(each)))) == 32
    assert len(_events(store, replace(_log(), rules=()))) == 64


def test_lines_that_were_noted_already_are_not_noted_again(logging: Store, clock: Clock) -> None:
    for _ in range(2):
        with logging.transaction() as session:
            note_logged(session, "gpu1", NewLines(None, _log(5)))
    clock.now += TELL_S
    assert [one.evidence["packets"] for one in _events(logging, replace(_log(), rules=()))] == [5]
