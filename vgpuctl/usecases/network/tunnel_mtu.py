# SPDX-License-Identifier: Apache-2.0
"""The MTU of networks that OVN carries: the smallest of what the hosts' tunnels leave, as apply-hosts noted it."""

from typing import TYPE_CHECKING

from vgpuctl.model.layout import NetworkLayout
from vgpuctl.model.network import DEFAULT_TUNNEL_MTU

if TYPE_CHECKING:
    from vgpuctl.store.store import Session

_KIND = "tunnel-mtu"


def note_guest_mtu(session: "Session", host: str, network: NetworkLayout | None) -> None:
    """Remember what a host's tunnels leave for guests; nothing for a host that is no chassis any more."""
    if network is None:
        session.drop_host_record(host, _KIND)
    else:
        session.save_host_record(host, _KIND, str(network.guest_mtu))


def tunnel_mtu(session: "Session") -> int:
    """What fits every host's tunnels."""
    return min((int(record.content) for record in session.host_records(_KIND)), default=DEFAULT_TUNNEL_MTU)
