# SPDX-License-Identifier: Apache-2.0
"""A tenant's VPC as OVN carries it: networks, ports, security groups, gateways, load balancers, peerings."""

import hashlib
import ipaddress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from vgpuctl.errors import UsageError
from vgpuctl.model.bgp import Announcement, Bgp
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.network import DEFAULT_TUNNEL_MTU, Network, Port, Subnet, is_address, is_ipv6
from vgpuctl.model.network_function import FunctionPlace
from vgpuctl.model.security_rule import EgressDefault, Rule
from vgpuctl.model.vpc_kind import VpcKind
from vgpuctl.model.vpn import VpnConnection

DEFAULT_GROUP = "default"
DISCARD = "discard"
"""In the place of a route's next hop: packets are dropped. OVN has the same word."""


class PortProtocol(StrEnum):
    """The protocols with ports, of load balancers and port forwards."""

    TCP = "tcp"
    UDP = "udp"


ROUTER_HOLDER = f"{VpcKind.GATEWAY}/gateway"
"""What holds the external addresses of a tenant's router."""


@dataclass(frozen=True)
class SecurityGroup:
    """Named rules. Of all rules of a port's groups that fit a packet, the first one by `Rule.rank` decides.

    Raises UsageError for two rules of equal priority that want different things for the same traffic.
    """

    kind: ClassVar[VpcKind] = VpcKind.SECURITY_GROUP
    name: str
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        there: dict[tuple[object, ...], Rule] = {}
        for rule in self.rules:
            other = there.setdefault((rule.priority, *rule.traffic), rule)
            if other != rule:
                differing = "action" if other.action is not rule.action else "logging or connection tracking"
                raise UsageError(
                    f"two rules of security group {self.name} are about the same traffic with priority {rule.priority}"
                    f" and differ in {differing}: {other.action} and {rule.action} "
                    f"{rule.direction} {rule.protocol} of {rule.source}",
                    hint="remove one of them, or give one a higher priority",
                )

    @property
    def key(self) -> str:
        """Its name among the tenant's groups."""
        return self.name


@dataclass(frozen=True)
class AddressGroup:
    """Named addresses outside the tenant's networks, for rules. addresses: networks, single ones with /32."""

    kind: ClassVar[VpcKind] = VpcKind.ADDRESS_GROUP
    name: str
    addresses: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its name among the tenant's address groups."""
        return self.name


@dataclass(frozen=True)
class EgressPolicy:
    """What becomes of the traffic from the tenant's VMs that no rule is about."""

    kind: ClassVar[VpcKind] = VpcKind.EGRESS_POLICY
    default: EgressDefault

    @property
    def key(self) -> str:
        """A tenant has one at most."""
        return "egress-policy"


@dataclass(frozen=True)
class ExternalNetwork:
    """A network that tenants' gateways lead to, as the operator declares it.

    physical_network: the name that hosts map to a bridge (ovn-bridge-mappings). first, last: addresses for tenants.
    chassis: system-ids of hosts that may be gateways; tenants are spread over them. management: networks that no tenant
    may reach. cidr6, gateway6, first6, last6: the same of IPv6, None without. routed6: prefixes that the provider
    routes to tenants' gateways, so that networks with such addresses need no NAT. bgp: None without.
    """

    name: str
    cidr: str
    gateway: str
    first: str
    last: str
    physical_network: str
    vlan: int | None = None
    chassis: tuple[str, ...] = ()
    management: tuple[str, ...] = ()
    cidr6: str | None = None
    gateway6: str | None = None
    first6: str | None = None
    last6: str | None = None
    routed6: tuple[str, ...] = ()
    bgp: Bgp | None = None

    @property
    def subnets(self) -> tuple[Subnet, ...]:
        """The provider's networks, IPv4 first."""
        return tuple(ipaddress.ip_network(one) for one in (self.cidr, self.cidr6) if one is not None)

    def pool6(self) -> list[str]:
        """Every IPv6 address that tenants may get, from below; none without IPv6."""
        if self.first6 is None or self.last6 is None:
            return []
        first, last = (int(ipaddress.IPv6Address(address)) for address in (self.first6, self.last6))
        return [str(ipaddress.IPv6Address(number)) for number in range(first, last + 1)]

    def routes(self, cidr6: str) -> bool:
        """True if a tenant's network is within a prefix that is routed to tenants."""
        subnet = ipaddress.IPv6Network(cidr6)
        return any(subnet.subnet_of(ipaddress.IPv6Network(prefix)) for prefix in self.routed6)

    def pool(self) -> list[str]:
        """Every address that tenants may get, from below."""
        first, last = (int(ipaddress.IPv4Address(address)) for address in (self.first, self.last))
        return [str(ipaddress.IPv4Address(number)) for number in range(first, last + 1)]


@dataclass(frozen=True)
class Gateway:
    """The router port of a tenant to an external network."""

    kind: ClassVar[VpcKind] = VpcKind.GATEWAY
    external_network: str

    @property
    def key(self) -> str:
        """A tenant has one at most."""
        return "gateway"


@dataclass(frozen=True)
class VpcPort:
    """A VM's port with what was asked for it. groups: none means the group `default`. bandwidth: both ways."""

    port: Port
    vm: str
    groups: tuple[str, ...] = ()
    bandwidth_mbps: int | None = None


@dataclass(frozen=True)
class FloatingIp:
    """An external address for one VM. address6: its IPv6 address, "" where the external network has none."""

    kind: ClassVar[VpcKind] = VpcKind.FLOATING_IP
    vm: str
    address: str
    address6: str = ""

    @property
    def key(self) -> str:
        """A VM has one at most."""
        return self.vm


@dataclass(frozen=True)
class PortForward:
    """One port of an external address, sent on to a VM's port. address6: the IPv6 one, "" without."""

    kind: ClassVar[VpcKind] = VpcKind.PORT_FORWARD
    protocol: PortProtocol
    address: str
    port: int
    vm: str
    vm_port: int
    address6: str = ""

    @property
    def key(self) -> str:
        """A port of the tenant's external address goes to one VM."""
        return f"{self.protocol}/{self.port}"


@dataclass(frozen=True)
class DirectConnect:
    """A tenant's own VLAN in one of its networks. physical_network: the name that hosts map to a bridge."""

    kind: ClassVar[VpcKind] = VpcKind.DIRECT_CONNECT
    network: str
    physical_network: str
    vlan: int | None = None

    @property
    def key(self) -> str:
        """A network has one at most."""
        return self.network


@dataclass(frozen=True)
class Route:
    """A static route of the tenant's router. next_hops: VMs (`fw-1`, `fw-1@back`) and addresses; several share it.

    Raises UsageError for next hops that do not fit together, or the prefix.
    """

    kind: ClassVar[VpcKind] = VpcKind.ROUTE
    prefix: str
    next_hops: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.is_discard and len(self.next_hops) > 1:
            others = ", ".join(one for one in self.next_hops if one != DISCARD)
            raise UsageError(
                f"route {self.prefix} drops its packets (`{DISCARD}`) and leads to {others}",
                hint=f"give {DISCARD} alone, or leave it out",
            )
        for address in self.addresses:
            if is_ipv6(address) != is_ipv6(self.prefix):
                raise UsageError(
                    f"route {self.prefix} and its next hop {address} are of two IP versions",
                    hint="give a next hop of the prefix's version",
                )

    @property
    def key(self) -> str:
        """A prefix has one route, which may have several next hops."""
        return self.prefix

    @property
    def is_discard(self) -> bool:
        """True if packets to the prefix are dropped."""
        return DISCARD in self.next_hops

    @property
    def is_default(self) -> bool:
        """True if every destination without a route of its own is meant."""
        return self.prefix.endswith("/0")

    @property
    def addresses(self) -> tuple[str, ...]:
        """The next hops that are addresses."""
        return tuple(one for one in self.next_hops if is_address(one))

    @property
    def vms(self) -> tuple[str, ...]:
        """The VMs that are next hops."""
        return tuple(one.partition("@")[0] for one in self.next_hops if not (one == DISCARD or is_address(one)))


@dataclass(frozen=True)
class PeeringSpec:
    """A tenant's side of a peering, which takes effect when the other tenant has its side. block: see Peering."""

    kind: ClassVar[VpcKind] = VpcKind.PEERING
    tenant: str
    block: int

    @property
    def key(self) -> str:
        """The other tenant."""
        return self.tenant


@dataclass(frozen=True)
class Contact:
    """The address of the tenant's contact person, for the operator."""

    kind: ClassVar[VpcKind] = VpcKind.CONTACT
    address: str

    @property
    def key(self) -> str:
        """A tenant has one at most."""
        return "contact"


VpcSpec = (
    Contact
    | Gateway
    | AddressGroup
    | EgressPolicy
    | SecurityGroup
    | FloatingIp
    | PortForward
    | LoadBalancer
    | DirectConnect
    | Route
    | PeeringSpec
    | VpnConnection
)


@dataclass(frozen=True)
class Peering:
    """A neighbour that agreed. block: which /30 of 169.254.0.0/16 joins the two routers, the same on both sides."""

    tenant: str
    block: int
    networks: tuple[Network, ...]


@dataclass(frozen=True)
class Vpc:
    """All of one tenant. router_address: the tenant's address in the external network, None without a gateway.

    router_address6: its IPv6 address there, None without. routed6: its networks, by CIDR, whose IPv6 addresses the
    external network routes to it.
    egress: what becomes of the traffic from its VMs that no rule is about.
    domain: of the internal names, as `internal`; None: there are no names.
    aside: chassis that carry a gateway only if no other can. functions: programs on hosts with a port in a network.
    vpns: tunnels to other sites, which have a function each.
    announcements: routes that speakers of BGP announce, where it stands for an external network (`is_provider`).
    """

    tenant: str
    networks: tuple[Network, ...] = ()
    ports: tuple[VpcPort, ...] = ()
    groups: tuple[SecurityGroup, ...] = ()
    external_network: ExternalNetwork | None = None
    router_address: str | None = None
    floating_ips: tuple[FloatingIp, ...] = ()
    forwards: tuple[PortForward, ...] = ()
    balancers: tuple[LoadBalancer, ...] = ()
    direct_connects: tuple[DirectConnect, ...] = ()
    peerings: tuple[Peering, ...] = ()
    address_groups: tuple[AddressGroup, ...] = ()
    egress: EgressDefault = EgressDefault.ALLOW
    mtu: int = DEFAULT_TUNNEL_MTU
    router_address6: str | None = None
    routed6: frozenset[str] = frozenset()
    domain: str | None = None
    aside: frozenset[str] = frozenset()
    functions: tuple[FunctionPlace, ...] = ()
    vpns: tuple[VpnConnection, ...] = ()
    announcements: tuple[Announcement, ...] = ()
    routes: tuple[Route, ...] = ()
    ports_by_vm: dict[str, VpcPort] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        last_first = sorted(self.ports, key=lambda one: -one.port.position)
        object.__setattr__(self, "ports_by_vm", {port.vm: port for port in last_first})

    @property
    def is_provider(self) -> bool:
        """True if it stands for an external network, whose functions are no tenant's."""
        return "/" in self.tenant

    def port_in(self, vm: str, network: str) -> VpcPort | None:
        """The VM's port in one of the tenant's networks, else its first one."""
        ids = {one.id for one in self.networks if one.request.name == network}
        own = (port for port in self.ports if port.vm == vm and port.port.network_id in ids)
        return min(own, key=lambda one: one.port.position, default=self.ports_by_vm.get(vm))


def ovn_name(kind: str, *parts: str) -> str:
    """Name an OVN object: its kind and 12 hex digits; short, and usable in OVN's expressions whatever the parts are."""
    return f"vg{kind}_{hashlib.sha256('/'.join(parts).encode()).hexdigest()[:12]}"


def link_addresses(block: int) -> tuple[str, str]:
    """The two addresses of a peering's /30: the alphabetically first tenant has the first."""
    base = int(ipaddress.IPv4Address("169.254.0.0")) + 4 * block
    return str(ipaddress.IPv4Address(base + 1)), str(ipaddress.IPv4Address(base + 2))
