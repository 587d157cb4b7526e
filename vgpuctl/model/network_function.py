# SPDX-License-Identifier: Apache-2.0
"""Network functions: programs of vgpuctl's on hosts that serve a tenant's network, such as HTTP load balancers.

The place of a function says where it runs and which port of OVN it has; the agent's wire says what runs there.
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.network_function import FunctionPort, FunctionRoute, NetworkFunction, interface_of
from vgpuctl.model.network import Network, is_ipv6, mac_address


@dataclass(frozen=True)
class FunctionPlace:
    """One instance of a function, with its port in a network of its tenant.

    kind, owner: of the tenant's object that it belongs to, such as `load-balancer` and `shop`. number: from 1 among the
    instances of the object. addresses: one of each IP version of the network. chassis: the host's name in OVN; ""
    while no chassis can have it. behind: networks whose packets it sends on, such as those of another site.
    """

    kind: str
    tenant: str
    owner: str
    number: int
    network: Network
    addresses: tuple[str, ...]
    chassis: str
    behind: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name on its host and that of its logical port: one that no other function of any tenant has."""
        text = "/".join((self.tenant, self.kind, self.owner, str(self.number)))
        return f"vgn_{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    @property
    def mac(self) -> str:
        """The MAC address of its port."""
        return mac_address(f"function/{self.name}")

    @property
    def printed(self) -> str:
        """Its name for people: `load-balancer acme/shop, instance 1`."""
        return f"{self.kind} {self.tenant}/{self.owner}, instance {self.number}"

    def port(self, mtu: int) -> FunctionPort:
        """Its port on its host, with a default route by each router of its network."""
        pairs = [
            (address, subnet, gateway)
            for subnet, gateway in zip(self.network.subnets, self.network.gateways, strict=True)
            for address in self.addresses
            if is_ipv6(address) == is_ipv6(gateway)
        ]
        routes = () if self.network.request.isolated else tuple(FunctionRoute("default", one[2]) for one in pairs)
        addresses = tuple(f"{address}/{subnet.prefixlen}" for address, subnet, _gateway in pairs)
        return FunctionPort(interface_of(self.name), self.name, self.mac, addresses, mtu, routes)


@dataclass(frozen=True)
class PlacedFunction:
    """A function that a host is to have."""

    place: FunctionPlace
    function: NetworkFunction


def choose_chassis(order: Sequence[str], aside: Collection[str], count: int) -> list[str]:
    """The chassis of a function's instances, one each; fewer where there are fewer.

    order: of the tenant's gateway, without regard to those aside. An instance stays where it is when another one's
    chassis is set aside. aside: chassis of hosts that are drained or fenced; they have one only if no other can.
    """
    usable = [one for one in order if one not in aside] or list(order)
    first = list(order[:count])
    spare = [one for one in usable if one not in first]
    chosen = []
    for one in first:
        if one in usable:
            chosen.append(one)
        elif spare:
            chosen.append(spare.pop(0))
    return chosen
