# SPDX-License-Identifier: Apache-2.0
"""Ports of interfaces that a VM is to have no more: they are kept until its guest has released the interface."""

from collections.abc import Collection, Sequence

from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.interfaces import host_mac, interfaces_of
from vgpuctl.model.network import Attachment
from vgpuctl.model.nic import MOST_NICS
from vgpuctl.model.vm import Vm
from vgpuctl.usecases.network.ports import attachments_of, connect
from vgpuctl.usecases.running.services import Services

NO_MACS: Collection[str] = ()


def detached_ports(services: Services, vm: Vm) -> list[Attachment]:
    """The VM's ports without an interface in its request. An adopted VM has none: its request names no interface."""
    if vm.is_adopted:
        return []
    wanted = {one.position for one in interfaces_of(vm.request)}
    return [one for one in attachments_of(services, vm) if one.port.position not in wanted]


def free_detached_ports(services: Services, vm: Vm, live_macs: Collection[str] = NO_MACS) -> list[Attachment]:
    """Delete the detached ports that the guest no longer has. Returns them.

    live_macs: of the interfaces that the running domain has; none for a VM that is off.
    """
    gone = [one for one in detached_ports(services, vm) if one.port.mac_address not in live_macs]
    if gone:
        with services.store.transaction() as session:
            for one in gone:
                session.delete_port(one.port)
                session.add_vm_event(EventKind.NIC_DETACHED, vm, before=port_values(one))
        connect(services, [one.network for one in gone])
    return gone


def unwanted_macs(services: Services, vm: Vm, live_macs: Collection[str]) -> list[str]:
    """The live interfaces that vgpuctl attached and that the request no longer has. Those of others are left alone."""
    attachments = attachments_of(services, vm)
    places = {one.port.position: one.port.mac_address for one in attachments}
    ours = {host_mac(vm.uuid, position) for position in range(MOST_NICS + 1)} | set(places.values())
    wanted = {places.get(one.position, host_mac(vm.uuid, one.position)) for one in interfaces_of(vm.request)}
    return sorted((ours - wanted) & set(live_macs))


def port_values(place: Attachment) -> Values:
    """The values of a port for events."""
    return interface_values(place.network.printed_name, place.port.mac_address, place.port.addresses)


def interface_values(network: str, mac: str, addresses: Sequence[str] = ()) -> Values:
    """The values of an interface for events."""
    return {"network": network, "mac_address": mac, "addresses": list(addresses)}
