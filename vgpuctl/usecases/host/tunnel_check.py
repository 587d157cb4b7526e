# SPDX-License-Identifier: Apache-2.0
"""Check whether tunnels between hosts carry packets: both ends send, and Open vSwitch's counters show the arrivals.

Only this check sees a firewall that passes ping and drops the tunnels' UDP port.
"""

from collections.abc import Mapping, Sequence

from vgpuctl.agent.wire.ovn import TunnelProbe
from vgpuctl.planner.doctor import TunnelState
from vgpuctl.usecases.running.services import Services

# The counters of the first round are read before the second one sends, and those of the third after it has.
_ROUNDS = 3


def check_tunnels(services: Services, names: Sequence[str]) -> dict[str, tuple[TunnelState, ...]]:
    """Probe the tunnels of hosts that have a network declared. Returns what each host's tunnels are like.

    A host that cannot be read is left out; what it has is told where it is checked.
    """
    rounds: list[dict[str, TunnelProbe]] = []
    for _ in range(_ROUNDS):
        asked = list(rounds[-1]) if rounds else list(names)
        results = services.on_hosts(asked, lambda name: services.host(name).agent.tunnels())
        rounds.append({one.name: one.value for one in results if one.value is not None})
    return tunnel_states(rounds[0], rounds[-1])


def tunnel_states(
    first: Mapping[str, TunnelProbe], last: Mapping[str, TunnelProbe]
) -> dict[str, tuple[TunnelState, ...]]:
    """Scorer two probes of both ends, between which everybody sent packets to everybody."""
    senders = {ended.address: {way.remote for way in ended.ways} for ended in last.values()}
    states = {}
    for name, ended in last.items():
        before = {way.remote: way.received for way in first[name].ways}
        states[name] = tuple(
            TunnelState(
                way.remote,
                way.port,
                # Only an end that was seen to send can be said to be unheard.
                is_silent=ended.address in senders.get(way.remote, ()) and before.get(way.remote) == way.received,
                refused=way.refused,
                bfd=way.bfd,
            )
            for way in ended.ways
        )
    return states
