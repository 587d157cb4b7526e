# SPDX-License-Identifier: Apache-2.0
"""The parts of a domain's XML that a simulated host looks into."""

import re
from xml.etree import ElementTree

from vgpuctl_lab.simulated.machine.domains import HostDevice

_DOMAIN_TYPE = re.compile(r"<domain\b[^>]*?\btype=(['\"])(\w+)\1")


def domain_type(xml: str) -> str:
    """The type of a domain, for example `kvm`."""
    match = _DOMAIN_TYPE.search(xml)
    return match[2] if match else "kvm"


def as_test_domain(xml: str) -> str:
    """The domain as one of the test driver."""
    return with_type(xml, "test")


def with_type(xml: str, wanted: str) -> str:
    """The domain as one of another type."""
    match = _DOMAIN_TYPE.search(xml)
    return xml if match is None else xml[: match.start(2)] + wanted + xml[match.end(2) :]


def devices_of(xml: str) -> list[HostDevice]:
    """The host devices that the domain takes."""
    found = []
    for hostdev in ElementTree.fromstring(xml).iterfind("devices/hostdev[@mode='subsystem']"):
        address = hostdev.find("source/address")
        if address is None:
            continue
        if hostdev.get("type") == "mdev":
            found.append(HostDevice(uuid=address.get("uuid", "").lower()))
        elif hostdev.get("type") == "pci":
            found.append(HostDevice(function=function_of(address), is_managed=hostdev.get("managed") == "yes"))
    return found


def pages_of(xml: str) -> tuple[str, int] | None:
    """The size of the huge pages, in KiB, and how many the domain takes."""
    root = ElementTree.fromstring(xml)
    page = root.find("memoryBacking/hugepages/page")
    size_kib = "" if page is None else page.get("size", "")
    return (size_kib, int(root.findtext("memory", "0")) // int(size_kib)) if size_kib else None


def nodes_kib_of(xml: str) -> dict[str, int]:
    """The memory that the domain binds to single NUMA nodes, by node."""
    root = ElementTree.fromstring(xml)
    cells = {cell.get("id"): int(cell.get("memory", "0")) for cell in root.iterfind("cpu/numa/cell")}
    found = {
        memnode.get("nodeset", ""): cells.get(memnode.get("cellid"), 0) for memnode in root.iterfind("numatune/memnode")
    }
    memory = root.find("numatune/memory[@mode='strict']")
    if not found and memory is not None:
        found = {memory.get("nodeset", ""): int(root.findtext("memory", "0"))}
    return {node: kib for node, kib in found.items() if node.isdecimal()}


def function_of(address: ElementTree.Element) -> str:
    """The PCI address that an `address` element names."""
    domain, bus, slot, function = (int(address.get(part, "0"), 0) for part in ("domain", "bus", "slot", "function"))
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"
