# SPDX-License-Identifier: Apache-2.0
"""The addresses that the API server of a tenant's cluster may have."""

import ipaddress

import pytest

from vgpuctl.clusters.kubernetes.bounded_transport import AnswerRefused
from vgpuctl.clusters.kubernetes.server_address import ClusterNetworks, parse_cluster_networks
from vgpuctl.errors import UsageError

EVERYTHING = parse_cluster_networks(["0.0.0.0/0", "::/0"])


@pytest.mark.parametrize(
    "text",
    ["169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "fd00:ec2::254",
     "fd20:ce::254", "100.100.100.200", "168.63.129.16", "fe80::1", "fe80::1%eth0", "224.0.0.1", "0.0.0.0", "::",
     "0.0.0.1", "::ffff:0.0.0.0"],
)  # fmt: skip
def test_what_serves_this_machine_alone_is_refused_whatever_the_operator_lists(text: str) -> None:
    for networks in (ClusterNetworks(), EVERYTHING):
        assert networks.refusal(ipaddress.ip_address(text)) is not None
        assert networks.refusal_of_name(text) is not None
        with pytest.raises(AnswerRefused, match="may not be reached"):
            networks.check(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"])
def test_loopback_is_the_operators_to_allow(text: str) -> None:
    address = ipaddress.ip_address(text)
    assert "VGPUCTL_CLUSTER_NETWORKS" in (ClusterNetworks().refusal(address) or "")
    assert EVERYTHING.refusal(address) is None


@pytest.mark.parametrize("text", ["2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "127.1"])
def test_other_ways_to_write_an_ipv4_address_are_refused(text: str) -> None:
    assert "not four decimal numbers" in (EVERYTHING.refusal_of_name(text) or "")


def test_listed_networks_are_the_only_ones() -> None:
    networks = parse_cluster_networks(["10.20.0.0/16", "fd12:3456::/64"])
    allowed = ("10.20.1.1", "fd12:3456::1", "::ffff:10.20.1.1", "api.example.com")
    assert [networks.refusal_of_name(one) for one in allowed] == [None] * 4
    for text in ("10.21.0.1", "192.0.2.1", "127.0.0.1", "localhost", "fd12::1"):
        assert "VGPUCTL_CLUSTER_NETWORKS" in (networks.refusal_of_name(text) or "")
    assert ClusterNetworks().refusal_of_name("192.0.2.1") is None


@pytest.mark.parametrize("text", ["10.0.0.1/8", "here", "10.0.0.0/99", "x" * 1000])
def test_a_setting_that_is_no_network_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="VGPUCTL_CLUSTER_NETWORKS"):
        parse_cluster_networks(["10.0.0.0/8", text])
