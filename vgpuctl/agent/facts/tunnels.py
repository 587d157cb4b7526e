# SPDX-License-Identifier: Apache-2.0
"""Packets that each tunnel of OVN received (Open vSwitch's counters), and refusals of probe packets on the way."""

import re
from typing import Dict, Optional

from vgpuctl.agent.facts import ovn
from vgpuctl.agent.host import Host
from vgpuctl.agent.tunnel_probe import PORTS
from vgpuctl.agent.wire import ovn as wire
from vgpuctl.agent.wire.ovn import TunnelProbe, TunnelWay

_COUNTER = re.compile(r"port\s+(\d{1,18}): rx pkts=(\d{1,18})")
_TIMEOUT_S = 20.0


def probe(host: Host) -> Optional[TunnelProbe]:
    """Read the counters, then send a few packets to every other end; None where no ovn-controller runs.

    Two probes of both ends, one after the other, tell by the counters whether a tunnel carries packets.
    Raises Problem `unreadable`.
    """
    if host.find_program("ovs-ofctl") is None or not ovn.is_running(host, "controller"):
        return None
    address, tunnels = ovn.read_tunnels(host)
    counted = _read_counters(host)
    refused: Dict[str, str] = {}
    for kind, port in sorted({(one.kind, one.port or PORTS[one.kind]) for one in tunnels}):
        remotes = sorted(one.remote for one in tunnels if (one.kind, one.port or PORTS[one.kind]) == (kind, port))
        refused.update(host.probe_tunnels(remotes, kind, port))
    ways = tuple(
        TunnelWay(one.remote, one.port or PORTS[one.kind], counted.get(one.number, 0), refused.get(one.remote), one.bfd)
        for one in sorted(tunnels, key=lambda one: one.remote)
    )
    return TunnelProbe(address, ways)


def _read_counters(host: Host) -> Dict[int, int]:
    """Packets received, by the number of the port in the integration bridge. The database's are seconds old."""
    done = host.run(["ovs-ofctl", "dump-ports", wire.INTEGRATION_BRIDGE], timeout_s=_TIMEOUT_S)
    return {int(number): int(count) for number, count in _COUNTER.findall(done.output)}
