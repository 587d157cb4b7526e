# SPDX-License-Identifier: Apache-2.0
"""The network interfaces of a domain: in which network, behind which port, and within which limits."""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.guests.domain.pci_layout import NETWORK_BUS, ExtraBuses
from vgpuctl.model.interfaces import FIRST, Interface, host_mac, interfaces_of
from vgpuctl.model.network import Attachment, Backend
from vgpuctl.model.nic import NicModel, limit_kib_s
from vgpuctl.model.vm import Vm

PORT_FILTER = "vgpuctl-tenant-port"
INTEGRATION_BRIDGE = "br-int"


@dataclass(frozen=True)
class PortFilterView:
    """libvirt's filter of an interface, with the only address it may send from, and its gateway and network."""

    name: str
    address: str
    gateway: str
    network: str
    mask: str


@dataclass(frozen=True)
class OvnPortView:
    """A port that OVN carries. interface_id: by which OVN knows it. mtu: what fits a tunnel between hosts."""

    bridge: str
    interface_id: str
    mtu: int


@dataclass(frozen=True)
class NicView:
    """One interface. network: its libvirt network. bus: behind its root port.

    port_filter: None in the host's own networks and with OVN. ovn: the port in place of a libvirt network. limit_kib_s:
    what it may send and receive, where libvirt limits it.
    """

    network: str
    mac_address: str
    bus: int = NETWORK_BUS
    model: NicModel = NicModel.VIRTIO
    port_filter: PortFilterView | None = None
    ovn: OvnPortView | None = None
    limit_kib_s: int | None = None


def nic_views(vm: Vm, attachments: Sequence[Attachment], buses: ExtraBuses) -> tuple[NicView, ...]:
    """The interfaces of a VM. attachments: its places in tenants' networks; the others are in networks of the host."""
    places = {one.port.position: one for one in attachments}
    return tuple(nic_view(vm, one, places.get(one.position), bus_of(one, buses)) for one in interfaces_of(vm.request))


def bus_of(interface: Interface, buses: ExtraBuses) -> int:
    """The bus behind an interface's port."""
    if interface.position == FIRST:
        return NETWORK_BUS
    if interface.spare_port is not None:
        return buses.spare[interface.spare_port]
    return buses.nics[interface.position - 1]


def nic_view(vm: Vm, interface: Interface, attachment: Attachment | None, bus: int) -> NicView:
    """One interface. A port keeps its address; in a network of the host the VM's UUID and the position give it."""
    mbps = interface.bandwidth_mbps
    limit = None if mbps is None else limit_kib_s(mbps)
    if attachment is None:
        mac = host_mac(vm.uuid, interface.position)
        return NicView(interface.network, mac, bus, interface.model, limit_kib_s=limit)
    network, port = attachment.network, attachment.port
    if network.request.backend is Backend.OVN:
        ovn = OvnPortView(INTEGRATION_BRIDGE, port.id, attachment.tunnel_mtu)
        return NicView(network.host_name, port.mac_address, bus, interface.model, ovn=ovn)
    port_filter = PortFilterView(
        PORT_FILTER,
        port.address,
        network.gateway,
        str(network.subnet.network_address),
        str(network.subnet.netmask),
    )
    return NicView(network.host_name, port.mac_address, bus, interface.model, port_filter, limit_kib_s=limit)
