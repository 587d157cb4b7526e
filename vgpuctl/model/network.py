# SPDX-License-Identifier: Apache-2.0
"""A tenant's network, the ports of its VMs, and the names that hosts can bear (design, section 2)."""

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.errors import UsageError
from vgpuctl.model.vm import host_name_of, printed_name

SMALLEST_PREFIX, LARGEST_PREFIX = 8, 29
DEFAULT_MTU = 1500
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


@dataclass(frozen=True)
class NetworkRequest:
    """One network as asked for; the same request again means: no change.

    dns: resolvers given to the guests, none for the backend's own. isolated: without a gateway. host: where a
    libvirt network is, None for OVN.
    """

    name: str
    tenant: str
    cidr: str
    dns: tuple[str, ...] = ()
    isolated: bool = False
    backend: Backend = Backend.LIBVIRT
    host: str | None = None


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
        """The network's addresses."""
        return ipaddress.IPv4Network(self.request.cidr)

    @property
    def gateway(self) -> str:
        """The address of the router, resolver and DHCP server: the first one."""
        return gateway_of(self.subnet)

    @property
    def bridge(self) -> str:
        """The host's bridge; see interface_name."""
        return interface_name(self.id)


@dataclass(frozen=True)
class Port:
    """One VM's place in a network. id: a UUID, also OVS's interface id. position: which of the VM's interfaces."""

    id: str
    network_id: str
    vm_uuid: str
    position: int
    mac_address: str
    address: str


@dataclass(frozen=True)
class Attachment:
    """A port with the network it is in. tunnel_mtu: what fits a tunnel between any two hosts, where OVN carries it."""

    network: Network
    port: Port
    tunnel_mtu: int = DEFAULT_TUNNEL_MTU


def interface_name(network_id: str) -> str:
    """Name an interface of a network within the kernel's 15 characters, whatever tenant and network are called."""
    return f"vg{_sha256(network_id).hex()[:12]}"


def mac_address(seed: str) -> str:
    """Derive a stable MAC address: locally administered, unicast, 40 bits from the seed's digest."""
    digest = _sha256(seed)[:5]
    return ":".join(["52", *(f"{byte:02x}" for byte in digest)])


def gateway_of(subnet: ipaddress.IPv4Network) -> str:
    """The first address of a network, which its router has."""
    return str(subnet.network_address + 1)


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
        hint = "write an IPv4 network such as 10.0.0.0/24"
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


def parse_address(text: str, *, what: str) -> str:
    """Read one IPv4 address. Raises UsageError."""
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError as error:
        raise UsageError(f"{what} {text!a} is not an IPv4 address") from error


def monitor_of(subnet: ipaddress.IPv4Network) -> str:
    """The last address of a network that OVN carries: its health checks ask from there."""
    return str(subnet.broadcast_address - 1)


def last_free_address(subnet: ipaddress.IPv4Network, taken: Collection[str]) -> str | None:
    """The highest address of the network that nobody holds, None when it is full."""
    numbers = {int(ipaddress.IPv4Address(address)) for address in taken}
    for number in range(int(subnet.broadcast_address) - 1, int(subnet.network_address), -1):
        if number not in numbers:
            return str(ipaddress.IPv4Address(number))
    return None


def first_free_address(subnet: ipaddress.IPv4Network, taken: Collection[str]) -> str | None:
    """The lowest address of the network that nobody holds, None when it is full."""
    numbers = {int(ipaddress.IPv4Address(address)) for address in taken}
    for number in range(int(subnet.network_address) + 1, int(subnet.broadcast_address)):
        if number not in numbers:
            return str(ipaddress.IPv4Address(number))
    return None


def _sha256(text: str) -> bytes:
    import hashlib  # loads OpenSSL, which few commands need

    return hashlib.sha256(text.encode()).digest()
