# SPDX-License-Identifier: Apache-2.0
"""The XML with which a running domain goes on on another host: its own, with what that host gives it.

The guest must see the same machine, so everything else stays as the running domain has it: addresses, machine type,
CPU model, also what was attached since its start.
"""

from collections.abc import Iterator
from xml.etree import ElementTree

from vgpuctl.errors import GuestError
from vgpuctl.guests.domain.metadata import NAMESPACE
from vgpuctl.guests.xml_reader import read_xml

_PREFIXES = {"vgpuctl": NAMESPACE, "qemu": "http://libvirt.org/schemas/domain/qemu/1.0"}
_OF_THE_HOST = ("cputune", "numatune", "memoryBacking")
"""What says where on its host a guest runs; the guest does not see it."""


def moved_xml(running: str, definition: str) -> str:
    """The XML of a running domain for another host.

    running: its own, migratable. definition: as it is defined there, with the devices, paths and NUMA nodes of that
    host. Raises GuestError for a GPU of the running domain that the definition does not have.
    """
    domain, there = read_xml(running), read_xml(definition)
    metadata, ours = domain.find("metadata"), there.find("metadata")
    if metadata is None or ours is None:
        raise GuestError(f"domain {domain.findtext('name', '?')} runs without the metadata of its VM")
    _replace(metadata, ours, f"{{{NAMESPACE}}}vm")
    for name in _OF_THE_HOST:
        _replace(domain, there, name)
    sources = dict(_by_alias(there))
    for alias, device in _by_alias(domain):
        if alias not in sources:
            raise GuestError(
                f"domain {domain.findtext('name', '?')} runs with the GPU {alias}, which the other host does not have",
                hint="it was attached or detached while it ran: wait for that to end, or move the VM cold",
            )
        _replace(device, sources[alias], "source")
    disks = {one.find("target").get("dev"): one for one in _disks(there)}  # type: ignore[union-attr]
    for disk in _disks(domain):
        known = disks.get(disk.find("target").get("dev"))  # type: ignore[union-attr]
        if known is not None:
            _replace(disk, known, "source")
            _replace(disk, known, "backingStore")
    macs = dict(_by_mac(there))
    for mac, interface in _by_mac(domain):
        if mac in macs:
            _replace(interface, macs[mac], "source")
    for prefix, name in _PREFIXES.items():
        ElementTree.register_namespace(prefix, name)
    return ElementTree.tostring(domain, encoding="unicode")


def copied_disks(xml: str, paths: frozenset[str]) -> tuple[str, ...]:
    """The names in the guest (`vda`) of those disks of a domain that lie at these paths and can be written."""
    return tuple(
        str(target.get("dev"))
        for disk in _disks(read_xml(xml))
        if (target := disk.find("target")) is not None
        and (source := disk.find("source")) is not None
        and source.get("file") in paths
        and disk.find("readonly") is None
    )


def _replace(element: ElementTree.Element, other: ElementTree.Element, name: str) -> None:
    """Give an element the child of this name that another one has, or none."""
    old, new = element.find(name), other.find(name)
    place = len(element) if old is None else list(element).index(old)
    if old is not None:
        element.remove(old)
    if new is not None:
        element.insert(place, new)


def _disks(domain: ElementTree.Element) -> list[ElementTree.Element]:
    return [one for one in domain.findall("devices/disk") if one.find("target") is not None]


def _by_alias(domain: ElementTree.Element) -> Iterator[tuple[str, ElementTree.Element]]:
    for device in domain.findall("devices/hostdev"):
        alias = device.find("alias")
        name = "" if alias is None else alias.get("name", "")
        if name.startswith("ua-"):
            yield name, device


def _by_mac(domain: ElementTree.Element) -> Iterator[tuple[str, ElementTree.Element]]:
    for interface in domain.findall("devices/interface"):
        mac = interface.find("mac")
        if mac is not None and mac.get("address"):
            yield mac.get("address", "").lower(), interface
