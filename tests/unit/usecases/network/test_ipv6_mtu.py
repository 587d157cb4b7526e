# SPDX-License-Identifier: Apache-2.0
"""IPv6 needs packets of 1280 bytes, and tunnels may leave less."""

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.model.network import Backend, NetworkRequest
from vgpuctl.usecases.network.networks import refuse_small_mtu

FOUR = NetworkRequest("front", "acme", "10.0.0.0/24", backend=Backend.OVN)
SIX = NetworkRequest("front", "acme", backend=Backend.OVN, cidr6="fd00:1::/64")


def test_tunnels_that_are_too_narrow_carry_no_ipv6() -> None:
    for request, mtu in ((FOUR, 1222), (SIX, 1280), (SIX, 1442)):
        refuse_small_mtu(request, mtu)
    with pytest.raises(UsageError, match="need packets of 1280 bytes, and the tunnels between hosts carry 1279"):
        refuse_small_mtu(SIX, 1279)
