# SPDX-License-Identifier: Apache-2.0
"""The addresses that the API server of a tenant's cluster may have. The tenant chooses it, and vgpuctl connects to it.

So an address that only this machine or its cloud reaches is refused, in every way to write it: as a literal, and as
what a name resolves to at the moment of each connection.
"""

import contextlib
import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.clusters.kubernetes.bounded_transport import AnswerRefused, IpAddress
from vgpuctl.errors import UsageError

VARIABLE = "VGPUCTL_CLUSTER_NETWORKS"

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""RFC 6052."""
_THIS_NETWORK = ipaddress.IPv4Network("0.0.0.0/8")
_CLOUD_SERVICES = (
    ipaddress.ip_network("fd00:ec2::/32"),  # AWS EC2, instance metadata over IPv6
    ipaddress.ip_network("fd20:ce::/64"),  # Google Compute Engine, the same
    ipaddress.ip_network("100.100.100.200/32"),  # Alibaba Cloud ECS, metadata
    ipaddress.ip_network("168.63.129.16/32"),  # Azure, WireServer
    ipaddress.ip_network("192.0.0.192/32"),  # Oracle Cloud, metadata of the classic platform
)
"""Those that are not link-local; 169.254.169.254 of most clouds is."""


@dataclass(frozen=True)
class ClusterNetworks:
    """The operator's networks of VGPUCTL_CLUSTER_NETWORKS; none: every address but this machine's own loopback.

    Link-local, multicast and clouds' metadata addresses are refused whatever the operator lists.
    """

    networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()

    def refusal(self, address: IpAddress) -> str | None:
        """Why an API server may not have this address; None where it may."""
        real = _embedded(address)
        if real.is_link_local or real.is_multicast or real.is_unspecified or real in _THIS_NETWORK:
            return f"{address} is not an address of a cluster"
        if any(real in network for network in _CLOUD_SERVICES):
            return f"{address} is a service of the cloud that this machine may run in"
        if any(real in network for network in self.networks):
            return None
        if real.is_loopback:
            return f"{address} is this machine, which {VARIABLE} does not allow"
        return f"{address} is in none of the networks of {VARIABLE}" if self.networks else None

    def refusal_of_name(self, host: str) -> str | None:
        """The same for a host in a kubeconfig. A name that is not an address is checked once it is resolved."""
        if host == "localhost":
            return self.refusal(ipaddress.IPv4Address("127.0.0.1"))
        with contextlib.suppress(ValueError):
            return self.refusal(ipaddress.ip_address(host))
        try:
            socket.inet_aton(host)
        except (OSError, ValueError):
            return None
        return f"{host} is not four decimal numbers"

    def check(self, address: IpAddress) -> None:
        """Raise AnswerRefused for an address that is not allowed."""
        refusal = self.refusal(address)
        if refusal is not None:
            raise AnswerRefused(f"may not be reached: {refusal}")


def is_loopback(host: str) -> bool:
    """True for a host in a kubeconfig that is this machine's loopback."""
    try:
        return host == "localhost" or _embedded(ipaddress.ip_address(host)).is_loopback
    except ValueError:
        return False


def parse_cluster_networks(texts: Sequence[str]) -> ClusterNetworks:
    """Read the networks of VGPUCTL_CLUSTER_NETWORKS. Raises UsageError."""
    networks = []
    for text in texts:
        try:
            networks.append(ipaddress.ip_network(text))
        except ValueError as error:
            raise UsageError(
                f"{VARIABLE}: {text[:60]!a} is not a network: {error}",
                hint="write networks, with commas between them: 10.20.0.0/16,fd12:3456::/64",
            ) from error
    return ClusterNetworks(tuple(networks))


def _embedded(address: IpAddress) -> IpAddress:
    """The IPv4 address inside an IPv6 address that leads to it (IPv4-mapped, 6to4, NAT64), else the address."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address
