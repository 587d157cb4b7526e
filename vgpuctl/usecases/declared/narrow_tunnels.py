# SPDX-License-Identifier: Apache-2.0
"""A declared MTU that is too small for the IPv6 of tenants' networks."""

from typing import TYPE_CHECKING

from vgpuctl.model.layout import HostLayout
from vgpuctl.model.network import SMALLEST_MTU6
from vgpuctl.planner.layout.result import LayoutObstacle

if TYPE_CHECKING:
    from vgpuctl.store.store import Session

_MOST_NAMED = 5


def narrow_tunnels(session: "Session", layout: HostLayout) -> list[LayoutObstacle]:
    """The declared MTU, where it leaves less than IPv6 needs and a tenant's network has IPv6.

    Linux would have no IPv6 on an interface with that MTU.
    """
    network = layout.network
    if network is None or network.guest_mtu >= SMALLEST_MTU6:
        return []
    with_ipv6 = [one.printed_name for one in session.networks() if one.request.cidr6 is not None]
    if not with_ipv6:
        return []
    reason = (
        f"an mtu of {network.mtu} leaves {network.guest_mtu} bytes for packets of guests, and IPv6 needs"
        f" {SMALLEST_MTU6}: {', '.join(with_ipv6[:_MOST_NAMED])}"
    )
    remedy = f"declare an mtu of {SMALLEST_MTU6 + network.encapsulation.overhead} or more"
    return [LayoutObstacle(None, "mtu-below-ipv6", reason, remedy, layout.place_of("network.mtu"))]
