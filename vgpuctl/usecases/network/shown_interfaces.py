# SPDX-License-Identifier: Apache-2.0
"""The network interfaces of a VM as show-vm lists them, from the store alone."""

from dataclasses import dataclass

from vgpuctl.model.interfaces import host_mac, interfaces_of
from vgpuctl.model.network import Attachment
from vgpuctl.model.nic import NicModel
from vgpuctl.model.vm import Vm
from vgpuctl.usecases.network.ports import attachments_of
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class ShownInterface:
    """One interface. network: its name on hosts. address: None where the host's network gives it.

    addresses: all that the store gives it, IPv4 first.
    is_detached: True if it is only there until its guest releases it, or stops.
    """

    position: int
    network: str
    mac_address: str
    address: str | None
    model: NicModel | None
    is_detached: bool = False
    addresses: tuple[str, ...] = ()


def shown_interfaces(services: Services, vm: Vm) -> tuple[ShownInterface, ...]:
    """The interfaces of a VM, by position. Those of an adopted VM are known where they are in tenants' networks."""
    places = {one.port.position: one for one in attachments_of(services, vm)}
    found = []
    for one in interfaces_of(vm.request):
        place = places.pop(one.position, None)
        if place is None:
            mac = host_mac(vm.uuid, one.position)
            found.append(ShownInterface(one.position, one.network, mac, None, one.model))
        else:
            found.append(_shown(place, one.model))
    for place in places.values():
        found.append(_shown(place, None, is_detached=not vm.is_adopted))
    return tuple(sorted(found, key=lambda one: one.position))


def _shown(place: Attachment, model: NicModel | None, *, is_detached: bool = False) -> ShownInterface:
    port, name = place.port, place.network.printed_name
    return ShownInterface(port.position, name, port.mac_address, port.address, model, is_detached, port.addresses)
