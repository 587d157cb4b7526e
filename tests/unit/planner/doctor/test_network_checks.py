# SPDX-License-Identifier: Apache-2.0
"""Failures of one of OVN's chassis, provoked in the facts of the host."""

from dataclasses import replace

import pytest

from tests.unit.chassis_cases import BROKEN, CHASSIS, REMOTE
from tests.unit.chassis_cases import WORKING as FACTS
from tests.unit.fleet_factory import host_facts
from vgpuctl.agent.wire.diagnostics import HostDiagnostics
from vgpuctl.agent.wire.ovn import InterfaceFacts, OvnDiagnostics, OvnFacts, TunnelDiagnostics
from vgpuctl.model.layout import HostLayout, NetworkLayout
from vgpuctl.planner.doctor import Examined, TunnelState, examine

LAYOUT = HostLayout(network=NetworkLayout((REMOTE,), "10.83.0.0/24", "gpu1"))
DIAGNOSTICS = OvnDiagnostics("connected", (TunnelDiagnostics("10.83.0.2", 1500),), has_role=True)
CHECKS = {"ovn", "ovn-role", "tunnel-mtu", "tunnel-down"}


def found(
    facts: OvnFacts | None = FACTS, diagnostics: OvnDiagnostics | None = DIAGNOSTICS, layout: HostLayout = LAYOUT
) -> list[str]:
    seen = Examined(replace(host_facts([]), ovn=facts), HostDiagnostics((), ovn=diagnostics), layout)
    return [f"{one.check}: {one.read}" for one in examine(seen) if one.check in CHECKS]


def test_a_healthy_chassis_has_no_finding_and_neither_has_a_host_that_is_none() -> None:
    assert found() == []
    assert found(None, None, HostLayout()) == []


@pytest.mark.parametrize(
    ("facts", "diagnostics", "words"),
    [
        *((facts, None, words) for facts, words, _fix in BROKEN),
        (
            replace(FACTS, modules=("openvswitch", "vxlan"), chassis=replace(CHASSIS, encapsulation="vxlan")),
            DIAGNOSTICS,
            "has no module geneve",
        ),
        (
            replace(FACTS, chassis=replace(CHASSIS, system_id="other")),
            DIAGNOSTICS,
            "system-id is other, the inventory has gpu1",
        ),
        (
            replace(FACTS, chassis=replace(CHASSIS, address="192.0.2.7")),
            DIAGNOSTICS,
            "tunnels end at 192.0.2.7, the host's address in 10.83.0.0/24 is 10.83.0.9",
        ),
        (FACTS, replace(DIAGNOSTICS, has_role=False), "lets this host's certificate write every row of every host"),
        (FACTS, replace(DIAGNOSTICS, connection="not connected"), "is not connected with ssl:192.0.2.1:6642"),
        (
            replace(FACTS, interfaces=(InterfaceFacts("eno1", 1400, ("10.83.0.9/24",)),)),
            DIAGNOSTICS,
            "tunnel-mtu: the MTU of eno1 is 1400, guests' packets of 1442 bytes need 1500",
        ),
        (
            FACTS,
            OvnDiagnostics("connected", (TunnelDiagnostics("10.83.0.2", 576),)),
            "tunnel-mtu: the way to 10.83.0.2 carries 576",
        ),
        (
            FACTS,
            OvnDiagnostics("connected", (TunnelDiagnostics("10.83.0.2", 0),)),
            "tunnel-down: 10.83.0.2 does not answer",
        ),
    ],
)
def test_what_is_wrong_is_found(facts: OvnFacts | None, diagnostics: OvnDiagnostics | None, words: str) -> None:
    (text,) = found(facts, diagnostics)
    assert words in text


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (TunnelState("10.83.0.2", 6081), []),
        (
            TunnelState("10.83.0.2", 6081, is_silent=True),
            ["10.83.0.2 answers ping, but none of the tunnel's packets from it arrive, UDP 6081"],
        ),
        (
            TunnelState("10.83.0.2", 4789, is_silent=True, refused="No route to host"),
            ["10.83.0.2 answers ping and refuses the tunnel's packets, UDP 4789: No route to host"],
        ),
        (TunnelState("10.83.0.2", 6081, bfd="up"), []),
        (TunnelState("10.83.0.2", 6081, bfd="down"), ["BFD says that the tunnel to 10.83.0.2 is down"]),
    ],
)
def test_a_tunnel_that_answers_ping_and_carries_nothing_is_down(state: TunnelState, words: list[str]) -> None:
    seen = Examined(replace(host_facts([]), ovn=FACTS), HostDiagnostics((), ovn=DIAGNOSTICS), LAYOUT, tunnels=(state,))
    findings = [one for one in examine(seen) if one.check == "tunnel-down"]
    assert [one.read for one in findings] == words
    assert all(f"{state.port}/udp" in one.fix for one in findings if one.fix)


def test_a_host_that_does_not_answer_at_all_is_told_once() -> None:
    diagnostics = OvnDiagnostics("connected", (TunnelDiagnostics("10.83.0.2", 0),))
    tunnels = (TunnelState("10.83.0.2", 6081, is_silent=True),)
    seen = Examined(replace(host_facts([]), ovn=FACTS), HostDiagnostics((), ovn=diagnostics), LAYOUT, tunnels=tunnels)
    assert [one.read for one in examine(seen) if one.check == "tunnel-down"] == ["10.83.0.2 does not answer"]
