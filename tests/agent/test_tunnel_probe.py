# SPDX-License-Identifier: Apache-2.0
"""Packets of a tunnel's kind: their headers, their refusal on a real socket, and the counters of a simulated host."""

import socket
from pathlib import Path

from tests.agent.simulated import Machine
from vgpuctl.agent.dispatch import answer
from vgpuctl.agent.tunnel_probe import send
from vgpuctl.agent.wire.envelope import Request
from vgpuctl.agent.wire.ovn import PROBE_PACKETS, TunnelProbe
from vgpuctl.agent.wire.steps import Chassis, SetOvnChassis, SetOvnDaemon

CHASSIS = Chassis("gpu1", "tcp:192.0.2.1:6642", "geneve", "10.84.0.1")


def test_packets_arrive_as_geneve_and_vxlan_of_a_network_that_nobody_has() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        other.settimeout(20)
        port = other.getsockname()[1]
        assert send(["127.0.0.1"], "geneve", port) == {}
        received = [other.recv(2000) for _ in range(PROBE_PACKETS)]
        assert {one[:8].hex() for one in received} == {"00006558fffffe00"}
        assert send(["127.0.0.1"], "vxlan", port) == {}
        assert other.recv(2000)[:8].hex() == "08000000fffffe00"


def test_a_refusal_by_icmp_is_told_in_the_kernel_s_words() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    assert send(["127.0.0.1"], "geneve", port) == {"127.0.0.1": "Connection refused"}
    assert send([], "geneve", port) == {}


def test_a_probe_reads_the_counters_before_it_sends(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "gpu1", "t4")
    assert answer(machine.host, Request("tunnels")).tunnels is None, "nothing of OVN runs"
    machine.done(SetOvnDaemon("switch", True), SetOvnDaemon("controller", True), SetOvnChassis(CHASSIS))
    with machine.files.change() as state:
        state.ovn.tunnels = {"10.84.0.2": 1500, "10.84.0.3": 1500}
        state.ovn.dropped, state.ovn.bfd = ["10.84.0.3"], {"10.84.0.3": "down"}
        state.ovn.refused = {"10.84.0.2": "No route to host"}
    found: list[TunnelProbe] = []
    for _ in range(2):
        reply = answer(machine.host, Request("tunnels"))
        assert reply.tunnels is not None and reply.writes == machine.host.writes
        found.append(reply.tunnels)
    assert [one.address for one in found] == ["10.84.0.1"] * 2
    assert [[way.received for way in one.ways] for one in found] == [[0, 0], [3, 0]]
    assert [(way.port, way.refused, way.bfd) for way in found[0].ways] == [
        (6081, "No route to host", None),
        (6081, None, "down"),
    ]
