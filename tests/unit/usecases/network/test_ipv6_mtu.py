# SPDX-License-Identifier: Apache-2.0
"""IPv6 needs packets of 1280 bytes, and tunnels may leave less."""

from dataclasses import replace
from pathlib import Path

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.model.layout import Encapsulation, HostLayout, NetworkLayout
from vgpuctl.model.network import Backend, Network, NetworkRequest, NetworkState
from vgpuctl.store.store import open_store
from vgpuctl.usecases.declared.narrow_tunnels import narrow_tunnels
from vgpuctl.usecases.network.networks import refuse_small_mtu

FOUR = NetworkRequest("front", "acme", "10.0.0.0/24", backend=Backend.OVN)
SIX = NetworkRequest("front", "acme", backend=Backend.OVN, cidr6="fd00:1::/64")


def test_tunnels_that_are_too_narrow_carry_no_ipv6() -> None:
    for request, mtu in ((FOUR, 1222), (SIX, 1280), (SIX, 1442)):
        refuse_small_mtu(request, mtu)
    with pytest.raises(UsageError, match="need packets of 1280 bytes, and the tunnels between hosts carry 1279"):
        refuse_small_mtu(SIX, 1279)


def test_an_mtu_below_ipv6_is_in_the_way_of_a_layout_while_a_network_has_ipv6(tmp_path: Path) -> None:
    narrow = NetworkLayout(("ssl:192.0.2.1:6642",), "10.0.0.0/24", "gpu1", mtu=1337)
    vxlan = NetworkLayout(("ssl:192.0.2.1:6642",), "10.0.0.0/24", "gpu1", Encapsulation.VXLAN, 1330)
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        for request, wanted in ((FOUR, []), (replace(SIX, name="six"), ["declare an mtu of 1338 or more"])):
            with store.transaction() as session:
                if not session.tenants():
                    session.add_tenant("acme")
                session.add_network(Network(request.name, request, NetworkState.CREATED))
                found = narrow_tunnels(session, HostLayout(network=narrow))
                others = [HostLayout(), HostLayout(network=vxlan), HostLayout(network=replace(narrow, mtu=1338))]
                assert [one for other in others for one in narrow_tunnels(session, other)] == []
            assert [one.remedy for one in found] == wanted
    assert found[0].reason == "an mtu of 1337 leaves 1279 bytes for packets of guests, and IPv6 needs 1280: acme/six"
