# SPDX-License-Identifier: Apache-2.0
"""Addresses of external networks: one address is in one pool, and no gateway is in any."""

from dataclasses import replace
from typing import Any

import pytest

from vgpuctl.errors import NetworkInUse, StateError, UsageError
from vgpuctl.model.network import Backend, Network, NetworkRequest, NetworkState
from vgpuctl.model.vpc import ExternalNetwork
from vgpuctl.usecases.network.external_networks import checked, refuse_shared_addresses
from vgpuctl.usecases.network.vpc_addresses import refuse_overlapping_outside

INTERNET = ExternalNetwork(
    "internet", "203.0.113.0/24", "203.0.113.1", "203.0.113.10", "203.0.113.99", "provider", chassis=("gpu1",)
)
SECOND = replace(INTERNET, name="second", first="203.0.113.100", last="203.0.113.199")


@pytest.mark.parametrize(
    "other",
    [
        SECOND,
        INTERNET,
        replace(SECOND, first="203.0.113.50", vlan=7),
        replace(SECOND, first="203.0.113.50", physical_network="backbone"),
    ],
    ids=["another part", "itself", "another VLAN", "another wire"],
)
def test_networks_with_addresses_of_their_own_are_taken(other: ExternalNetwork) -> None:
    refuse_shared_addresses(INTERNET, [other])
    refuse_shared_addresses(other, [INTERNET])


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (replace(SECOND, first="203.0.113.99"), "has addresses of"),
        (replace(SECOND, first="203.0.113.20", last="203.0.113.20"), "has addresses of"),
        (replace(SECOND, gateway="203.0.113.50"), "203.0.113.50, the gateway of second"),
    ],
)
def test_an_address_in_two_pools_is_refused_whoever_comes_second(other: ExternalNetwork, words: str) -> None:
    for one, known in ((INTERNET, other), (other, INTERNET)):
        with pytest.raises(StateError, match=words):
            refuse_shared_addresses(one, [known])


SIX = replace(
    INTERNET, cidr6="2001:db8::/64", gateway6="2001:db8::1", first6="2001:db8::10", last6="2001:db8::99",
    routed6=("2001:db8:100::/56",),
)  # fmt: skip
OTHER_SIX = replace(
    SIX, name="second", first="203.0.113.100", last="203.0.113.199", first6="2001:db8::100", last6="2001:db8::199",
    routed6=("2001:db8:200::/56",),
)  # fmt: skip


def test_addresses_of_ipv6_are_kept_in_their_normal_form() -> None:
    written = replace(SIX, cidr6="2001:DB8:0::/64", gateway6="FE80::1", routed6=("2001:DB8:100::/56",))
    made = checked(replace(written, management=("192.0.2.0/24", "FD00::/8")))
    assert (made.cidr6, made.gateway6, made.routed6) == ("2001:db8::/64", "fe80::1", ("2001:db8:100::/56",))
    assert made.management == ("192.0.2.0/24", "fd00::/8")
    assert len(made.pool6()) == 0x8A
    assert [made.routes(one) for one in ("2001:db8:100:ff::/64", "2001:db8:101::/64")] == [True, False]
    refuse_shared_addresses(SIX, [OTHER_SIX, SIX])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"gateway6": None}, "--gateway6 is missing"),
        ({"cidr6": None, "gateway6": None, "first6": None, "last6": None}, "--cidr6, --gateway6, --pool6 is missing"),
        ({"gateway6": "2001:db8:1::1"}, "2001:db8:1::1 is not in"),
        ({"last6": "2001:db8:1::99"}, "2001:db8:1::99 is not in"),
        ({"first6": "2001:db8::"}, "own address"),
        ({"gateway6": "2001:db8::10"}, "holds the gateway's"),
        ({"last6": "2001:db8::f:99"}, "larger than"),
        ({"last6": "2001:db8::9"}, "is empty"),
        ({"cidr6": "fe80::/64"}, "link-local"),
        ({"cidr6": "ff02::/64"}, "multicast"),
        ({"cidr6": "::ffff:203.0.113.0/120"}, "IPv4 addresses in IPv6"),
        ({"cidr6": "203.0.113.0/24"}, "not an IPv6 network"),
        ({"cidr6": "2001:db8::/127"}, "/127 is too small"),
        ({"gateway6": "203.0.113.1"}, "not an IPv6 address"),
        ({"gateway6": "ff02::1"}, "not the address of a host"),
        ({"gateway6": "fe80::1%eth0"}, "has a zone"),
        ({"first6": "2001:db8::10%1"}, "has a zone"),
        ({"cidr6": "2001:db8::%eth0/64"}, "no zone"),
        ({"routed6": ("2001:db8:100::%1/56",)}, "no zone"),
        ({"routed6": ("2001:db8:100::/56", "2001:DB8:100::/64")}, "overlaps with --routed6"),
        ({"management": ("2001:db8:1::%eth0/64",)}, "no zone"),
        ({"management": ("::ffff:10.0.0.0/104",)}, "IPv4 addresses in IPv6"),
        ({"routed6": ("2001:db8:100::/65",)}, "/65 is too small"),
        ({"routed6": ("2001:db8::/48",)}, "overlaps with 2001:db8::/64"),
        ({"routed6": ("10.0.0.0/8",)}, "not an IPv6 network"),
        ({"management": ("x",)}, "not a network"),
    ],
)
def test_addresses_of_ipv6_that_do_not_fit_together_are_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        checked(replace(SIX, **changed))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (replace(OTHER_SIX, first6="2001:db8::99"), "has addresses of"),
        (replace(OTHER_SIX, gateway6="2001:db8::50"), "2001:db8::50, the gateway of second"),
        (replace(OTHER_SIX, routed6=("2001:db8:100:80::/60",)), "routes to tenants"),
        (replace(OTHER_SIX, physical_network="backbone", routed6=("2001:db8:100::/56",)), "routes to tenants"),
        (replace(OTHER_SIX, physical_network="backbone", routed6=("2001:db8::/56",)), "overlaps with 2001:db8::/64"),
    ],
)
def test_an_ipv6_address_or_prefix_is_in_one_external_network(other: ExternalNetwork, words: str) -> None:
    for one, known in ((SIX, other), (other, SIX)):
        with pytest.raises(StateError, match=words):
            refuse_shared_addresses(one, [known])


@pytest.mark.parametrize(
    ("cidr", "cidr6", "is_taken"),
    [
        ("10.0.0.0/24", "fd00:1::/64", True),
        (None, "2001:db8:100::/64", True),
        ("203.0.112.0/24", None, True),
        ("203.0.113.0/24", None, False),
        ("203.0.0.0/16", "fd00:1::/64", False),
        ("203.0.113.128/29", None, False),
        ("10.0.0.0/24", "2001:db8::/64", False),
    ],
)
def test_a_network_behind_a_gateway_has_no_address_of_the_provider(
    cidr: str | None, cidr6: str | None, is_taken: bool
) -> None:
    request = NetworkRequest("front", "acme", cidr, backend=Backend.OVN, cidr6=cidr6)
    network = Network("a", request, NetworkState.CREATED)
    if is_taken:
        refuse_overlapping_outside([network], SIX)
    else:
        with pytest.raises(NetworkInUse, match=r"overlaps with 203\.0\.113\.0/24, 2001:db8::/64, the external network"):
            refuse_overlapping_outside([network], SIX)
