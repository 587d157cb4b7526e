# SPDX-License-Identifier: Apache-2.0
"""The seed's network-config: each interface is found by its MAC address, and has its port's address.

Linux gets version 2. An interface keeps the predictable name of systemd.net-naming-scheme(7), which follows from its
place: to rename one that an initrd has configured fails, and cloud-init before 22.2 would call it by its key. A guest
that names interfaces otherwise gets it by a rename.
cloudbase-init in Windows reads version 1 alone (its metadata/services/nocloudservice.py): there addresses have a prefix
length, gateway and resolvers are the subnet's.
The default route is of the first interface with a gateway; an interface with DHCP has a worse metric the later it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.catalog.guest_os import is_windows
from vgpuctl.guests.domain.view import guest_bus_of
from vgpuctl.guests.templating import render_template
from vgpuctl.model.interfaces import Interface, host_mac, interfaces_of
from vgpuctl.model.network import Attachment, Backend
from vgpuctl.model.vm import CloudInit, Vm

_FIRST_METRIC = 100


@dataclass(frozen=True)
class SeededInterface:
    """One interface. name: its key in the document; set_name: in the guest. address: None for DHCP.

    gateway: None where another interface has the default route. metric: of the routes from DHCP, None for the usual.
    """

    name: str
    set_name: str
    mac_address: str
    address: str | None = None
    gateway: str | None = None
    resolvers: tuple[str, ...] = ()
    mtu: int | None = None
    metric: int | None = None


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
    has_gateway = False
    for number, interface in enumerate(interfaces_of(vm.request)):
        one = _seeded(vm, interface, places.get(interface.position), number, may_route=not has_gateway)
        has_gateway = has_gateway or one.address is None or one.gateway is not None
        found.append(one)
    return tuple(found)


def _name_in_guest(vm: Vm, interface: Interface, number: int) -> str:
    """`enp2s0`; in Windows, where no name counts, one that cloudbase-init takes."""
    return f"eth{number}" if is_windows(vm.request.os) else f"enp{guest_bus_of(vm, interface)}s0"


def _seeded(vm: Vm, interface: Interface, place: Attachment | None, number: int, *, may_route: bool) -> SeededInterface:
    """libvirt's gateway resolves names, OVN's does not. may_route: no interface before it has the default route."""
    name, set_name = f"nic{number}" if number else "primary", _name_in_guest(vm, interface, number)
    if place is None:
        metric = _FIRST_METRIC * (number + 1) if number else None
        return SeededInterface(name, set_name, host_mac(vm.uuid, interface.position), metric=metric)
    network = place.network
    is_ovn = network.request.backend is Backend.OVN
    return SeededInterface(
        name,
        set_name,
        place.port.mac_address,
        f"{place.port.address}/{network.subnet.prefixlen}",
        network.gateway if may_route and not network.request.isolated else None,
        network.request.dns or (() if is_ovn else (network.gateway,)),
        place.tunnel_mtu if is_ovn else None,
    )
