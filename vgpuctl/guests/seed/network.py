# SPDX-License-Identifier: Apache-2.0
"""The seed's network-config: each interface is found by its MAC address, and has its port's address.

Linux gets version 2. An interface keeps the predictable name of systemd.net-naming-scheme(7), which follows from its
place: to rename one that an initrd has configured fails, and cloud-init before 22.2 would call it by its key. A guest
that names interfaces otherwise gets it by a rename.
cloudbase-init in Windows reads version 1 alone (its metadata/services/nocloudservice.py): there addresses have a prefix
length, gateway and resolvers are the subnet's.
The default route of an IP version is of the first interface with a gateway of it; an interface with DHCP has a worse
metric the later it is.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from vgpuctl.catalog.guest_os import is_windows
from vgpuctl.guests.domain.view import guest_bus_of
from vgpuctl.guests.templating import render_template
from vgpuctl.model.interfaces import Interface, host_mac, interfaces_of
from vgpuctl.model.network import Attachment, Backend, is_ipv6
from vgpuctl.model.vm import CloudInit, Vm

_FIRST_METRIC = 100


@dataclass(frozen=True)
class SeededAddress:
    """One address with its prefix length. gateway: of its IP version, None where the default route is not here."""

    text: str
    gateway: str | None = None

    @property
    def is_ipv6(self) -> bool:
        """True if it is an IPv6 address."""
        return is_ipv6(self.text)

    @property
    def default_route(self) -> str:
        """The network of the default route."""
        return "::/0" if self.is_ipv6 else "0.0.0.0/0"


@dataclass(frozen=True)
class SeededInterface:
    """One interface. name: its key in the document; set_name: in the guest. addresses: none for DHCP.

    metric: of the routes from DHCP, None for the usual. search: domains in which names are looked for.
    """

    name: str
    set_name: str
    mac_address: str
    addresses: tuple[SeededAddress, ...] = ()
    resolvers: tuple[str, ...] = ()
    mtu: int | None = None
    metric: int | None = None
    search: tuple[str, ...] = ()

    @property
    def has_ipv6(self) -> bool:
        """True if it has an IPv6 address; then it needs no router advertisement."""
        return any(one.is_ipv6 for one in self.addresses)

    def resolvers_of(self, address: SeededAddress) -> list[str]:
        """The resolvers of an address's IP version."""
        return [one for one in self.resolvers if is_ipv6(one) == address.is_ipv6]

    @property
    def routes(self) -> list[SeededAddress]:
        """The addresses with a default route."""
        return [one for one in self.addresses if one.gateway is not None]


def network_document(cloud_init: CloudInit, vm: Vm, attachments: Sequence[Attachment]) -> str | None:
    """Write the network-config; None for a VM without a network."""
    if cloud_init.network_config is not None:
        return cloud_init.network_config.reveal()
    interfaces = seeded_interfaces(vm, attachments)
    if not interfaces:
        return None
    template = "network-config-v1.j2" if is_windows(vm.request.os) else "network-config.j2"
    return render_template(template, interfaces=interfaces)


def seeded_interfaces(vm: Vm, attachments: Sequence[Attachment]) -> tuple[SeededInterface, ...]:
    """Each interface as the guest is told of it, by position."""
    places = {one.port.position: one for one in attachments}
    found: list[SeededInterface] = []
    routed: set[bool] = set()
    for number, interface in enumerate(interfaces_of(vm.request)):
        one = _seeded(vm, interface, places.get(interface.position), number, routed)
        routed |= {route.is_ipv6 for route in one.routes} if one.addresses else {False}
        found.append(one)
    return tuple(found)


def _name_in_guest(vm: Vm, interface: Interface, number: int) -> str:
    """`enp2s0`; in Windows, where no name counts, one that cloudbase-init takes."""
    return f"eth{number}" if is_windows(vm.request.os) else f"enp{guest_bus_of(vm, interface)}s0"


def _seeded(
    vm: Vm, interface: Interface, place: Attachment | None, number: int, routed: Collection[bool]
) -> SeededInterface:
    """The gateway's address resolves names: libvirt all, OVN those of the tenant's VMs, where it has them.

    routed: if an interface before it has the default route of IPv6 (True) or of IPv4 (False).
    """
    name, set_name = f"nic{number}" if number else "primary", _name_in_guest(vm, interface, number)
    if place is None:
        metric = _FIRST_METRIC * (number + 1) if number else None
        return SeededInterface(name, set_name, host_mac(vm.uuid, interface.position), metric=metric)
    network = place.network
    is_ovn = network.request.backend is Backend.OVN
    addresses = tuple(
        SeededAddress(
            f"{address}/{subnet.prefixlen}",
            None if network.request.isolated or is_ipv6(address) in routed else gateway,
        )
        for address, subnet, gateway in zip(place.port.addresses, network.subnets, network.gateways, strict=True)
    )
    return SeededInterface(
        name,
        set_name,
        place.port.mac_address,
        addresses,
        network.request.dns or (network.gateways if place.has_names or not is_ovn else ()),
        place.tunnel_mtu if is_ovn else None,
        search=place.search,
    )
