# SPDX-License-Identifier: Apache-2.0
"""The MTU of networks that OVN carries: the smallest of all hosts' tunnels, as apply-hosts recorded it."""

from typing import TYPE_CHECKING

from vgpuctl.model.layout import NetworkLayout
from vgpuctl.model.network import DEFAULT_TUNNEL_MTU

if TYPE_CHECKING:
    from vgpuctl.store.store import Session

_KIND = "tunnel-mtu"


def note_guest_mtu(session: "Session", host: str, network: NetworkLayout | None) -> None:
    """Record the MTU that a host's tunnels leave for guests; forget it if the host stops being a chassis."""
    if network is None:
        session.drop_host_record(host, _KIND)
    else:
        session.save_host_record(host, _KIND, str(network.guest_mtu))


def tunnel_mtu(session: "Session") -> int:
    """The largest MTU that fits every host's tunnels."""
    return min((int(record.content) for record in session.host_records(_KIND)), default=DEFAULT_TUNNEL_MTU)
