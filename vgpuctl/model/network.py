# SPDX-License-Identifier: Apache-2.0
"""A tenant's network, the ports of its VMs, and the names that hosts can bear (design, section 2)."""

import ipaddress
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.errors import UsageError
from vgpuctl.model.vm import host_name_of, printed_name

SMALLEST_PREFIX, LARGEST_PREFIX = 8, 29
SMALLEST_MTU6 = 1280  # RFC 8200, section 5
PREFIX6 = 64
"""Router advertisements and DHCPv6 need exactly this length (RFC 4291, section 2.5.1)."""
_LAST_OF_PREFIX6 = 0xFFFF
"""The store gives the addresses ::1 to ::ffff of an IPv6 network; the last ones of a /64 are reserved (RFC 2526)."""
_LOCAL6 = ipaddress.IPv6Network("fd00::/8")
_GLOBAL6 = ipaddress.IPv6Network("2000::/3")
_TRANSITION6 = (ipaddress.IPv6Network("2001::/32"), ipaddress.IPv6Network("2002::/16"))  # Teredo, 6to4
DEFAULT_MTU = 1500
Subnet = ipaddress.IPv4Network | ipaddress.IPv6Network
# The rest after Geneve's header; the hosts' layouts may say otherwise (model.layout.NetworkLayout.guest_mtu).
DEFAULT_TUNNEL_MTU = 1442


class Backend(StrEnum):
    """Who carries a network: libvirt on one host, or OVN across hosts."""

    LIBVIRT = "libvirt"
    OVN = "ovn"


class NetworkState(StrEnum):
    """The state of a network in the store; `created` was read back from its backend then, and not looked at since."""

    CREATING = "creating"
    CREATED = "created"
    DELETING = "deleting"


class AddressKind(StrEnum):
    """Who holds an address of a network."""

    GATEWAY = "gateway"
    PORT = "port"
    MONITOR = "monitor"
    BALANCER = "balancer"
    FUNCTION = "function"
    NEXT_HOP = "next-hop"


@dataclass(frozen=True)
class NetworkRequest:
    """One network as asked for; the same request again means: no change.

    cidr, cidr6: its IPv4 and its IPv6 addresses; it has one of them, or both. dns: resolvers given to the guests, none
    for the backend's own. isolated: without a gateway. host: where a libvirt network is, None for OVN.
    """

    name: str
    tenant: str
    cidr: str | None = None
    dns: tuple[str, ...] = ()
    isolated: bool = False
    backend: Backend = Backend.LIBVIRT
    host: str | None = None
    cidr6: str | None = None

    @property
    def cidrs(self) -> str:
        """Its addresses for people: `10.0.0.0/24, fd00:1::/64`."""
        return ", ".join(one for one in (self.cidr, self.cidr6) if one is not None)


@dataclass(frozen=True)
class Network:
    """A network of the store. id: a UUID, given once; the names on hosts derive from it.

    known_as: its name in libvirt where the store records another than today's rule gives.
    """

    id: str
    request: NetworkRequest
    state: NetworkState
    known_as: str | None = None

    @property
    def printed_name(self) -> str:
        """The network's name for people: `TENANT/NAME`."""
        return printed_name(self.request.tenant, self.request.name)

    @property
    def host_name(self) -> str:
        """The network's name in libvirt: tenants may use the same name, libvirt may not."""
        return self.known_as or host_name_of(self.request.tenant, self.request.name)

    @property
    def subnet(self) -> ipaddress.IPv4Network:
        """The network's IPv4 addresses. Only for a network that has some, as every libvirt network."""
        assert self.request.cidr is not None, self.printed_name
        return ipaddress.IPv4Network(self.request.cidr)

    @property
    def subnets(self) -> tuple[Subnet, ...]:
        """The network's addresses, IPv4 first."""
        return tuple(ipaddress.ip_network(one) for one in (self.request.cidr, self.request.cidr6) if one is not None)

    @property
    def gateways(self) -> tuple[str, ...]:
        """The router's address in each of `subnets`."""
        return tuple(gateway_of(one) for one in self.subnets)

    @property
    def gateway(self) -> str:
        """The address of the router, resolver and DHCP server: the first one."""
        return self.gateways[0]

    def overlaps(self, other: "Network") -> bool:
        """True if an address is in both networks."""
        return overlap(self.subnets, other.subnets)

    @property
    def is_carried(self) -> bool:
        """True if OVN carries the network, or is to."""
        return self.request.backend is Backend.OVN and self.state is not NetworkState.DELETING

    @property
    def bridge(self) -> str:
        """The host's bridge; see interface_name."""
        return interface_name(self.id)


@dataclass(frozen=True)
class Port:
    """One VM's place in a network. id: a UUID, also OVS's interface id. position: which of the VM's interfaces.

    address: its IPv4 address, or its IPv6 address in a network without IPv4. address6: its IPv6 address, None without.
    """

    id: str
    network_id: str
    vm_uuid: str
    position: int
    mac_address: str
    address: str
    address6: str | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """All of its addresses, IPv4 first."""
        return (self.address,) if self.address6 in (None, self.address) else (self.address, str(self.address6))


@dataclass(frozen=True)
class Attachment:
    """A port with the network it is in. tunnel_mtu: what fits a tunnel between any two hosts, where OVN carries it.

    has_names: if the gateway's address answers names of the tenant's VMs. search: the domains in which the guest looks
    for names (vgpuctl.model.internal_names).
    """

    network: Network
    port: Port
    tunnel_mtu: int = DEFAULT_TUNNEL_MTU
    has_names: bool = False
    search: tuple[str, ...] = ()


def interface_name(network_id: str) -> str:
    """Name an interface of a network within the kernel's 15 characters, whatever tenant and network are called."""
    return f"vg{_sha256(network_id).hex()[:12]}"


def mac_address(seed: str) -> str:
    """Derive a stable MAC address: locally administered, unicast, 40 bits from the seed's digest."""
    digest = _sha256(seed)[:5]
    return ":".join(["52", *(f"{byte:02x}" for byte in digest)])


def gateway_of(subnet: Subnet) -> str:
    """The first address of a network, which its router has."""
    return str(subnet.network_address + 1)


def overlap(ours: Iterable[Subnet], theirs: Iterable[Subnet]) -> bool:
    """True if an address is in a network of both."""
    others = tuple(theirs)
    return any(type(one) is type(two) and one.overlaps(two) for one in ours for two in others)


def is_ipv6(address: str) -> bool:
    """True if an address or a network is IPv6."""
    return ":" in address


def is_address(text: str) -> bool:
    """True if a text is one IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def link_local(mac: str) -> str:
    """The link-local address that follows from a MAC address (modified EUI-64, RFC 4291): routers of OVN have it."""
    first, *others = (int(part, 16) for part in mac.split(":"))
    parts = bytes((first ^ 2, *others[:2], 0xFF, 0xFE, *others[2:]))
    return str(ipaddress.IPv6Address(b"\xfe\x80" + bytes(6) + parts))


def parse_reachable(text: str) -> ipaddress.IPv4Network:
    """Read a network of VGPUCTL_REACHABLE_NETWORKS. Raises UsageError."""
    try:
        return ipaddress.IPv4Network(text)
    except ValueError as error:
        raise UsageError(
            f"VGPUCTL_REACHABLE_NETWORKS: {text[:40]!a} is not a network: {error}",
            hint="write IPv4 networks, with commas between them: 10.20.0.0/16,192.0.2.53/32",
        ) from error


def parse_cidr(text: str, *, what: str = "--cidr") -> ipaddress.IPv4Network:
    """Read the addresses of a tenant's network. Raises UsageError for what no tenant's network can have."""
    try:
        subnet = ipaddress.IPv4Network(text)
    except ValueError as error:
        hint = "write an IPv4 network such as 10.0.0.0/24; --cidr6 takes IPv6 addresses"
        try:
            hint = f"did you mean {ipaddress.IPv4Network(text, strict=False)}?"
        except ValueError:
            pass  # More is wrong than bits of the host.
        raise UsageError(f"{what} {text!a} is not a network: {error}", hint=hint) from error
    if not SMALLEST_PREFIX <= subnet.prefixlen <= LARGEST_PREFIX:
        raise UsageError(
            f"{what} {text}: a network of /{subnet.prefixlen} cannot be used",
            hint=f"/{SMALLEST_PREFIX} to /{LARGEST_PREFIX}",
        )
    if (
        subnet.is_multicast
        or subnet.is_loopback
        or subnet.is_link_local
        or subnet.is_reserved
        or subnet[0].packed[0] == 0
    ):
        raise UsageError(f"{what} {text}: guests cannot use these addresses", hint="such as 10.0.0.0/24")
    return subnet


def parse_cidr6(text: str, *, what: str = "--cidr6") -> ipaddress.IPv6Network:
    """Read the IPv6 addresses of a tenant's network. Raises UsageError for what no tenant's network can have."""
    hint = "write a unique local network such as fd00:1::/64, or one that is routed to an external network"
    try:
        subnet = read_subnet6(text)
    except ValueError as error:
        hint += "; --cidr takes IPv4 addresses"
        try:
            hint = f"did you mean {ipaddress.IPv6Network(text.partition('%')[0], strict=False)}?"
        except ValueError:
            pass  # More is wrong than bits of the host.
        raise UsageError(f"{what} {text!a} is not an IPv6 network: {error}", hint=hint) from error
    if kind := unusable6(subnet):
        raise UsageError(f"{what} {text}: {kind}", hint=hint)
    if subnet.prefixlen != PREFIX6:
        raise UsageError(
            f"{what} {text}: a network of /{subnet.prefixlen} cannot be used",
            hint=f"guests need exactly /{PREFIX6} for router advertisements: fd00:1::/{PREFIX6}",
        )
    return subnet


def read_subnet6(text: str) -> ipaddress.IPv6Network:
    """Read an IPv6 network. Raises ValueError, also for a zone (`fe80::%eth0/64`), which Python would take."""
    if "%" in text:
        raise ValueError("a network has no zone")
    return ipaddress.IPv6Network(text)


def is_local6(subnet: Subnet) -> bool:
    """True if these are unique local IPv6 addresses (RFC 4193), which nobody routes and each tenant may use."""
    return isinstance(subnet, ipaddress.IPv6Network) and subnet.subnet_of(_LOCAL6)


def unusable6(subnet: ipaddress.IPv6Network) -> str | None:
    """Why no guest can use these addresses, None where it can."""
    first = subnet.network_address
    if first.ipv4_mapped is not None:
        return "these are IPv4 addresses in IPv6's notation, which no network carries"
    for is_so, kind in (
        (subnet.is_link_local, "link-local addresses, which every interface has anyway"),
        (subnet.is_multicast, "multicast addresses"),
        (any(subnet.subnet_of(one) for one in _TRANSITION6), "addresses of tunnels for IPv4 (Teredo, 6to4)"),
    ):
        if is_so:
            return f"these are {kind}"
    if not (subnet.subnet_of(_LOCAL6) or subnet.subnet_of(_GLOBAL6)):
        return "guests cannot use these addresses: they are neither unique local (fd00::/8) nor global (2000::/3)"
    return None


def parse_address(text: str, *, what: str) -> str:
    """Read one IPv4 address. Raises UsageError."""
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError as error:
        raise UsageError(f"{what} {text!a} is not an IPv4 address") from error


def parse_address6(text: str, *, what: str) -> str:
    """Read one IPv6 address of a host. Raises UsageError."""
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError as error:
        raise UsageError(f"{what} {text!a} is not an IPv6 address") from error
    if address.scope_id is not None:
        raise UsageError(f"{what} {text!a} has a zone", hint=f"write it without %{address.scope_id}")
    if address.is_link_local:
        raise UsageError(f"{what} {text!a} is a link-local address", hint="give an address that is routed")
    if address.is_multicast or address.is_unspecified or address.is_loopback or address.ipv4_mapped is not None:
        raise UsageError(f"{what} {text!a} is not the address of a host")
    return str(address)


def parse_resolver(text: str, *, what: str) -> str:
    """Read the address of a resolver, IPv4 or IPv6. Raises UsageError."""
    if is_ipv6(text):
        return parse_address6(text, what=what)
    try:
        return parse_address(text, what=what)
    except UsageError as error:
        raise UsageError(f"{what} {text!a} is neither an IPv4 nor an IPv6 address") from error


def monitor_of(subnet: Subnet) -> str:
    """The last address of a network that OVN carries: its health checks ask from there."""
    return str(subnet.network_address + _usable(subnet)[-1])


def last_free_address(subnet: Subnet, taken: Collection[str]) -> str | None:
    """The highest address of the network that nobody holds, None when it is full."""
    numbers = _numbers(subnet, taken)
    return next((_address(subnet, one) for one in reversed(_usable(subnet)) if one not in numbers), None)


def first_free_address(subnet: Subnet, taken: Collection[str]) -> str | None:
    """The lowest address of the network that nobody holds, None when it is full."""
    numbers = _numbers(subnet, taken)
    return next((_address(subnet, one) for one in _usable(subnet) if one not in numbers), None)


def count_usable(subnet: Subnet) -> int:
    """How many addresses of a network the store gives, with the router's."""
    return len(_usable(subnet))


def _usable(subnet: Subnet) -> range:
    """What the store gives, as numbers from the network's own address on."""
    if isinstance(subnet, ipaddress.IPv6Network):
        return range(1, _LAST_OF_PREFIX6 + 1)
    return range(1, subnet.num_addresses - 1)  # without the broadcast


def _numbers(subnet: Subnet, taken: Collection[str]) -> set[int]:
    """The numbers of the taken addresses in this subnet; the other family's are left out."""
    first, read = int(subnet.network_address), type(subnet.network_address)
    is_six = isinstance(subnet, ipaddress.IPv6Network)
    return {int(read(one)) - first for one in taken if is_ipv6(one) == is_six}


def _address(subnet: Subnet, number: int) -> str:
    return str(subnet.network_address + number)


def _sha256(text: str) -> bytes:
    import hashlib  # loads OpenSSL, which few commands need

    return hashlib.sha256(text.encode()).digest()
