# SPDX-License-Identifier: Apache-2.0
"""The parts of a domain's XML that a simulated host looks into."""

import re
from xml.etree import ElementTree

from vgpuctl_lab.simulated.machine.domains import HostDevice

_UNITS = {"bytes": 1, "b": 1, "KiB": 1 << 10, "k": 1 << 10, "MiB": 1 << 20, "M": 1 << 20, "GiB": 1 << 30, "G": 1 << 30}
_CODE = "/usr/share/OVMF/OVMF_CODE_4M.fd"
_SECURE_CODE = "/usr/share/OVMF/OVMF_CODE_4M.ms.fd"
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


def with_chosen_firmware(migratable: str, defined: str) -> str:
    """The migratable XML of a domain with the file of its firmware, if libvirt chooses that.

    QEMU's driver has chosen the file when it formats this XML. The test driver never does. Both leave
    `firmware='efi'` out since libvirt 11, and refuse such a domain without a file (libvirt error 35).
    defined: its XML as it was written.
    """
    system, said = (ElementTree.fromstring(xml).find("os") for xml in (migratable, defined))
    if system is None or said is None or system.get("firmware") or said.get("firmware") != "efi":
        return migratable
    is_secure = said.find("firmware/feature[@name='secure-boot'][@enabled='yes']") is not None
    attributes = {"readonly": "yes", "type": "pflash"} | ({"secure": "yes"} if is_secure else {})
    loader = ElementTree.Element("loader", attributes)
    loader.text = _SECURE_CODE if is_secure else _CODE
    return re.sub(
        r"(?:\s*<loader\b[^>]*/>)?(\s*)(<nvram\b|<boot\b|</os>)",
        lambda found: f"{found[1]}{ElementTree.tostring(loader, encoding='unicode')}{found[1]}{found[2]}",
        migratable,
        count=1,
    )


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


def memory_bytes(xml: str) -> int:
    """The memory of a domain."""
    memory = ElementTree.fromstring(xml).find("memory")
    if memory is None:
        return 0
    factor = _UNITS.get(memory.get("unit", "KiB"), 1024)
    return int(memory.text or 0) * factor


def abi_difference(source_xml: str, target_xml: str, name: str) -> str | None:
    """What of a target's domain the guest would see as another machine, in libvirt's words; None if nothing.

    name: what the domain is called on the target.
    """
    source, target = ElementTree.fromstring(source_xml), ElementTree.fromstring(target_xml)
    if target.findtext("name") != name:
        return f"Target domain name '{target.findtext('name')}' does not match source '{name}'"
    if (target.findtext("uuid") or "").lower() != (source.findtext("uuid") or "").lower():
        return f"Target domain uuid {target.findtext('uuid')} does not match source {source.findtext('uuid')}"
    here_kib, there_kib = memory_bytes(source_xml) // 1024, memory_bytes(target_xml) // 1024
    if there_kib != here_kib:
        return f"Target domain max memory {there_kib} does not match source {here_kib}"
    if target.findtext("vcpu") != source.findtext("vcpu"):
        return f"Target domain vCPU max {target.findtext('vcpu')} does not match source {source.findtext('vcpu')}"
    for attribute, what in (("arch", "architecture"), ("machine", "machine type")):
        kinds = [_of_type(root, attribute) for root in (source, target)]
        if kinds[0] != kinds[1]:
            return f"Target domain {what} {kinds[1]} does not match source {kinds[0]}"
    for tag, what in (("disk", "disk"), ("interface", "net card"), ("hostdev", "host device")):
        here, there = (root.findall(f"devices/{tag}") for root in (source, target))
        if len(here) != len(there):
            return f"Target domain {what} count {len(there)} does not match source {len(here)}"
        for mine, theirs in zip(here, there, strict=True):
            seen = [address for address in (mine.find("address"), theirs.find("address")) if address is not None]
            one, *other = [function_of(address) for address in seen if address.get("type") == "pci"] or [""]
            if other and one != other[0]:
                return f"Target device PCI address {other[0]} does not match source {one}"
    return None


def _of_type(root: ElementTree.Element, attribute: str) -> str | None:
    kind = root.find("os/type")
    return None if kind is None else kind.get(attribute)


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
