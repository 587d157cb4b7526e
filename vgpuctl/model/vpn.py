# SPDX-License-Identifier: Apache-2.0
"""A tenant's VPN connection: what its two sites have, and what the store gives it."""

import ipaddress
from dataclasses import dataclass
from typing import ClassVar

from vgpuctl.model.network import Subnet
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vpc_kind import VpcKind

WIREGUARD_PORT = 51820
"""The port that wg(8) and its users take."""


@dataclass(frozen=True)
class VpnConnection:
    """A WireGuard tunnel between a tenant's networks and another site.

    network: where its function has a port. prefixes: networks of the other site. port: of UDP, of the address of the
    tenant's gateway. peer_key: the peer's public key, None while it is to be made here. endpoint: `198.51.100.7:51820`,
    None for a peer behind NAT, which begins itself. keepalive_s: between packets that keep a NAT open, None for none.

    The store gives it addresses in `network`, the gateway's addresses, the keys of our side, and the public key of a
    peer whose configuration was made here.
    """

    kind: ClassVar[VpcKind] = VpcKind.VPN_CONNECTION
    name: str
    network: str
    prefixes: tuple[str, ...]
    port: int = WIREGUARD_PORT
    peer_key: str | None = None
    endpoint: str | None = None
    keepalive_s: int | None = None
    preshared_key: SecretText | None = None
    address: str = ""
    address6: str = ""
    external_address: str = ""
    external_address6: str = ""
    private_key: SecretText | None = None
    public_key: str = ""
    made_peer_key: str = ""

    @property
    def key(self) -> str:
        """Its name among the tenant's VPN connections."""
        return self.name

    @property
    def addresses(self) -> tuple[str, ...]:
        """Its addresses in its network, IPv4 first."""
        return tuple(dict.fromkeys(one for one in (self.address, self.address6) if one))

    @property
    def peer(self) -> str:
        """The public key of the peer, "" while nobody knows it."""
        return self.peer_key or self.made_peer_key

    @property
    def subnets(self) -> tuple[Subnet, ...]:
        """The networks of the other site."""
        return tuple(map(ipaddress.ip_network, self.prefixes))
