# SPDX-License-Identifier: Apache-2.0
"""All network interfaces of a VM: the first one and those of `nics`, each with a position that it keeps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpuctl.model.network import mac_address
from vgpuctl.model.nic import NicModel, NicRequest
from vgpuctl.model.vm import VmRequest

FIRST = 0


@dataclass(frozen=True)
class Interface:
    """One interface. position: FIRST, or that of one of `nics`. spare_port: see NicRequest."""

    position: int
    network: str
    model: NicModel = NicModel.VIRTIO
    security_groups: tuple[str, ...] = ()
    bandwidth_mbps: int | None = None
    spare_port: int | None = None


def interfaces_of(request: VmRequest) -> tuple[Interface, ...]:
    """The interfaces of a VM, by position."""
    found = [_interface(nic) for nic in placed_nics(request.nics)]
    if request.network is not None:
        found.append(
            Interface(
                FIRST,
                request.network,
                request.nic_model or NicModel.VIRTIO,
                request.security_groups,
                request.bandwidth_mbps,
            )
        )
    return tuple(sorted(found, key=lambda one: one.position))


def interface_at(request: VmRequest, position: int) -> Interface | None:
    """The interface of a position, None when the VM has none there."""
    return next((one for one in interfaces_of(request) if one.position == position), None)


def placed_nics(nics: Sequence[NicRequest]) -> tuple[NicRequest, ...]:
    """The same interfaces, each with its position: its own, else the first that is free."""
    taken = {nic.position for nic in nics if nic.position is not None}
    placed = []
    for nic in nics:
        if nic.position is None:
            position = next(number for number in range(FIRST + 1, len(nics) + len(taken) + 2) if number not in taken)
            taken.add(position)
            placed.append(replace(nic, position=position))
        else:
            placed.append(nic)
    return tuple(placed)


def port_count(request: VmRequest) -> int:
    """Number of root ports that the interfaces after the first need: those on spare ports need none."""
    return max((nic.position or 0 for nic in placed_nics(request.nics) if nic.spare_port is None), default=0)


def spare_ports_taken(request: VmRequest) -> int:
    """Number of spare ports up to the last one that an interface is on."""
    return max((nic.spare_port + 1 for nic in request.nics if nic.spare_port is not None), default=0)


def host_mac(vm_uuid: str, position: int) -> str:
    """The MAC address of an interface in a network of the host; a port in a tenant's network has one of its own."""
    return mac_address(f"{vm_uuid}/{position}" if position else vm_uuid)


def _interface(nic: NicRequest) -> Interface:
    return Interface(
        nic.position or 0,
        nic.network,
        nic.model or NicModel.VIRTIO,
        nic.security_groups,
        nic.bandwidth_mbps,
        nic.spare_port,
    )
