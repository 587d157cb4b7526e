# SPDX-License-Identifier: Apache-2.0
"""A host becomes one of OVN's chassis, again, back, and refused; echoes over real loopback."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent.simulated import Machine
from vgpuctl.agent.dispatch import answer
from vgpuctl.agent.echo import ask
from vgpuctl.agent.facts.ovn import read_diagnostics
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Request
from vgpuctl.agent.wire.ovn import AUTHORITY, CERTIFICATE, KEY, BridgeFacts, CertificateFiles
from vgpuctl.agent.wire.steps import Chassis, SetOvnChassis, SetOvnDaemon, SetUplinkBridge, TakeOutUplink

START = (SetOvnDaemon("switch", True), SetOvnDaemon("controller", True))
CHASSIS = Chassis("gpu1", "tcp:127.0.0.1:6642", "geneve", "10.84.0.1", "provider:br-provider")
FILES = CertificateFiles("certificate", "authority", "key")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "gpu1", "t4")


def test_daemons_settings_and_uplink_are_set_once_and_read(machine: Machine) -> None:
    steps = (*START, SetUplinkBridge("br-provider", "eno2"), SetOvnChassis(CHASSIS))
    assert machine.ovn().chassis is None
    for step in steps:
        assert [machine.done(step), machine.done(step)] == [True, False]
    found = machine.ovn()
    assert (found.switch_active, found.controller_active, found.chassis) == (True, True, CHASSIS)
    assert found.bridges == (BridgeFacts("br-int"), BridgeFacts("br-provider", ("eno2",)))
    assert [(one.name, one.mtu, one.addresses) for one in found.interfaces] == [
        ("eno1", 1500, ("10.84.0.1/16",)),
        ("eno2", 1500, ()),
    ]


def test_what_was_done_is_taken_back(machine: Machine) -> None:
    before = machine.ovn()
    machine.done(*START, SetUplinkBridge("br-provider", "eno2"), SetOvnChassis(CHASSIS))
    undo = (SetOvnChassis(Chassis()), SetUplinkBridge("br-provider", None))
    for step in (*undo, SetOvnDaemon("controller", False), SetOvnDaemon("switch", False)):
        assert [machine.done(step), machine.done(step)][0]
    assert machine.ovn() == before
    with machine.files.change() as state:
        assert (state.ovn.external_ids, state.ovn.bridges) == ({}, {})


def test_an_interface_is_taken_out_of_a_bridge_that_stays(machine: Machine) -> None:
    machine.done(*START, SetUplinkBridge("br-provider", "eno1"), SetUplinkBridge("br-provider", "eno2"))
    step = TakeOutUplink("br-provider", "eno2")
    assert machine.take(step, dry_run=True).changes[0].after == "eno1"
    assert [machine.done(step), machine.done(step)] == [True, False]
    assert machine.ovn().bridges == (BridgeFacts("br-provider", ("eno1",)),)
    assert not machine.done(TakeOutUplink("br-nowhere", "eno2"))


def test_a_dry_run_writes_nothing(machine: Machine) -> None:
    reply = machine.take(START[0], dry_run=True)
    assert reply.changes[0].changed and not machine.ovn().switch_active
    machine.done(START[0])
    reply = machine.take(SetOvnChassis(CHASSIS), SetUplinkBridge("br-x", "eno2"), dry_run=True)
    assert [one.changed for one in reply.changes] == [True, True]
    assert machine.ovn().chassis == Chassis()


@pytest.mark.parametrize(
    ("step", "code"),
    [
        (SetOvnDaemon("northd", True), "bad-daemon"),
        (SetOvnChassis(replace(CHASSIS, uses_tls=True)), "no-certificate"),
        (SetUplinkBridge("br-provider", "eno9"), "not-found"),
        (SetUplinkBridge("br provider", "eno2"), "bad-name"),
        (TakeOutUplink("br-provider", "eno 2"), "bad-name"),
        (SetUplinkBridge("br-other", "eno2"), "uplink-in-use"),
    ],
)
def test_what_cannot_be_is_refused(
    machine: Machine, step: SetOvnDaemon | SetOvnChassis | SetUplinkBridge | TakeOutUplink, code: str
) -> None:
    machine.done(*START, SetUplinkBridge("br-provider", "eno2"))
    assert machine.refused(step).code == code


def test_without_open_vswitch_running_nothing_is_set(machine: Machine) -> None:
    assert machine.refused(SetOvnChassis(CHASSIS)).code == "switch-not-running"


def test_a_certificate_is_installed_once_and_its_key_is_the_owner_s_alone(machine: Machine) -> None:
    assert not machine.ovn().has_certificate
    replies = [answer(machine.host, Request("certificate", certificate=FILES)) for _ in range(2)]
    assert [(one.changes[0].before, one.changes[0].changed) for one in replies] == [
        ("none", True),
        ("installed", False),
    ]
    assert machine.ovn().has_certificate
    modes = [(machine.files.root / path[1:]).stat().st_mode & 0o777 for path in (KEY, CERTIFICATE, AUTHORITY)]
    assert modes == [0o600, 0o644, 0o644]
    places = [machine.files.root / path[1:] for path in (AUTHORITY, CERTIFICATE, KEY)]
    written = [place.stat().st_mtime_ns for place in places]
    assert written == sorted(written), "ovn-controller looks at the key first"
    assert "key" not in repr(FILES).replace("key=", "")
    another = replace(FILES, certificate="renewed")
    assert answer(machine.host, Request("certificate", certificate=another)).changes[0].before == "another"


def test_a_southbound_database_says_whether_it_holds_hosts_to_their_role(machine: Machine) -> None:
    answer(machine.host, Request("certificate", certificate=FILES))
    machine.done(*START, SetOvnChassis(CHASSIS))
    found = [read_diagnostics(machine.host)]
    machine.done(SetOvnChassis(replace(CHASSIS, remote="ssl:192.0.2.1:6642", uses_tls=True)))
    found.append(read_diagnostics(machine.host))
    with machine.files.change() as state:
        state.ovn.has_role = False
    found.append(read_diagnostics(machine.host))
    machine.done(SetOvnChassis(replace(CHASSIS, remote="ssl:192.0.2.1:16642", uses_tls=True)))
    found.append(read_diagnostics(machine.host))
    assert [one and one.has_role for one in found] == [None, True, False, False]


@pytest.mark.skipif(not Host().is_root(), reason="raw sockets are for root alone")
def test_echoes_come_back_by_size_and_nobody_answers_where_nobody_is() -> None:
    assert ask(["127.0.0.1"], [65535, 1500], timeout_s=20.0) == {"127.0.0.1": 65535}
    assert ask([], [1500], timeout_s=20.0) == {}
    assert ask(["192.0.2.255"], [65536], timeout_s=0.1) == {"192.0.2.255": 0}
