# SPDX-License-Identifier: Apache-2.0
"""The root ports of a running guest that are free for one more device. QEMU adds no port to a running guest."""

from xml.etree import ElementTree

from vgpuctl.errors import DomainRejected
from vgpuctl.guests.domain.pci_layout import FIRST_EXTRA_SLOT, spare_number
from vgpuctl.guests.xml_reader import read_hex, read_whole, read_xml


def free_ports(xml: str) -> tuple[int, ...]:
    """Controller indexes of the free root ports for further devices, highest first: those of spare ports come first.

    The ports of base devices and GPUs do not count: they are kept for these. xml: of the running domain.
    """
    devices = read_xml(xml).find("devices")
    if devices is None:
        return ()
    used = {read_hex(address.get("bus")) for address in devices.iterfind(".//address[@type='pci']")}
    ports = (_further_port(one) for one in devices.iterfind("controller[@model='pcie-root-port']"))
    return tuple(sorted((port for port in ports if port is not None and port not in used), reverse=True))


def take_port(xml: str, *, domain: str, device: str) -> int:
    """The port for a device that is attached to a running domain. Raises DomainRejected that counts the ports."""
    free = free_ports(xml)
    if not free:
        raise DomainRejected(
            f"{domain} has no free port for {device}: it was started with {count_ports(xml)} ports for further devices,"
            " and none is free",
            hint="stop the VM, attach it, and start the VM: it then has a port for it and spare ones (`--spare-ports`)",
        )
    return free[0]


def free_spare_port(xml: str) -> tuple[int, int] | None:
    """A free spare port: its controller index, and its number among the spare ports. None when none is free.

    A device that stays on it has the same slot and function at every later start.
    """
    free = set(free_ports(xml))
    for controller in read_xml(xml).iterfind("devices/controller[@model='pcie-root-port']"):
        index, address = _further_port(controller), controller.find("address")
        if index not in free or index is None or address is None:
            continue
        number = spare_number(read_hex(address.get("slot")) or 0, read_hex(address.get("function")) or 0)
        if number is not None:
            return index, number
    return None


def port_address(port: int) -> ElementTree.Element:
    """The address of a device behind a port."""
    place = {"domain": "0x0000", "bus": f"0x{port:02x}", "slot": "0x00", "function": "0x0"}
    return ElementTree.Element("address", {"type": "pci", **place})


def count_ports(xml: str) -> int:
    """Number of root ports for further devices, free or not."""
    ports = read_xml(xml).iterfind("devices/controller[@model='pcie-root-port']")
    return sum(_further_port(one) is not None for one in ports)


def _further_port(controller: ElementTree.Element) -> int | None:
    """The index of a port that is neither for a base device nor for a GPU, None for any other controller."""
    address = controller.find("address")
    if address is None or read_hex(address.get("bus")) != 0:
        return None
    slot = read_hex(address.get("slot"))
    return read_whole(controller.get("index")) if slot is not None and slot >= FIRST_EXTRA_SLOT else None
