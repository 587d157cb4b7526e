# SPDX-License-Identifier: Apache-2.0
"""The network interfaces of a domain as its XML has them, and the free port that another one takes while it runs."""

from collections.abc import Collection
from dataclasses import dataclass
from xml.etree import ElementTree

from vgpuctl.errors import DomainRejected
from vgpuctl.guests.domain.pci_layout import MOST_SPARE, NETWORK_BUS, nic_slot, spare_slot
from vgpuctl.guests.xml_reader import read_hex, read_whole, read_xml
from vgpuctl.model.interfaces import FIRST


@dataclass(frozen=True)
class NicPlace:
    """A free port of a running domain. bus: the one behind it. spare_port: its number, None for the interface's own."""

    bus: int
    spare_port: int | None = None


def macs_of(xml: str) -> frozenset[str]:
    """The MAC addresses of a domain's interfaces, in lower case."""
    return frozenset(one.get("address", "").lower() for one in read_xml(xml).iterfind("devices/interface/mac"))


def interface_xml(xml: str, mac: str) -> str:
    """The element of the interface with this MAC address. Raises DomainRejected when the domain has none."""
    for element in read_xml(xml).iterfind("devices/interface"):
        address = element.find("mac")
        if address is not None and address.get("address", "").lower() == mac:
            return ElementTree.tostring(element, encoding="unicode")
    raise DomainRejected(f"the domain has no interface {mac}")


def find_place(xml: str, position: int, *, reserved: Collection[int] = ()) -> NicPlace | None:
    """A free port for the interface at a position of a running domain: its own, else the first spare one.

    reserved: numbers of spare ports that other interfaces have. None when no port is free.
    """
    own = bus_at(xml, position, None)
    if own is not None:
        return NicPlace(own)
    if position == FIRST:
        return None
    for number in range(MOST_SPARE):
        bus = None if number in reserved else bus_at(xml, position, number)
        if bus is not None:
            return NicPlace(bus, number)
    return None


def bus_at(xml: str, position: int, spare_port: int | None) -> int | None:
    """The bus behind the port of an interface, None when the running domain lacks the port or it is in use."""
    devices = read_xml(xml).find("devices")
    if devices is None:
        return None
    used = {read_hex(address.get("bus")) for address in devices.iterfind(".//address[@type='pci']")}
    wanted = None if position == FIRST else nic_slot(position) if spare_port is None else spare_slot(spare_port)
    for port in devices.iterfind("controller[@model='pcie-root-port']"):
        address, index = port.find("address"), read_whole(port.get("index"))
        if address is None or index is None or index in used or read_hex(address.get("bus")) != 0:
            continue
        place = (read_hex(address.get("slot")), read_hex(address.get("function")))
        if place == wanted or (wanted is None and index == NETWORK_BUS):
            return index
    return None
