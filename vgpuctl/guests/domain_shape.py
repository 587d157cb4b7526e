# SPDX-License-Identifier: Apache-2.0
"""How large a domain is that somebody else defined, as its XML says."""

from dataclasses import dataclass
from xml.etree import ElementTree

from vgpuctl.errors import GuestError
from vgpuctl.guests.xml_reader import read_whole, read_xml
from vgpuctl.model.vm import Firmware

# libvirt dumps memory in KiB, whatever it was given (docs/formatdomain: memory).
_KIB_PER_MIB = 1024
USUAL_PAGE_KIB = 2048


@dataclass(frozen=True)
class DomainShape:
    """What a domain takes of its host beside devices. hugepages_kib: None for ordinary memory."""

    vcpus: int
    memory_mib: int
    firmware: Firmware
    hugepages_kib: int | None = None


def domain_shape(xml: str) -> DomainShape:
    """Read a domain's XML as libvirt dumped it. Raises GuestError when it does not say."""
    domain = read_xml(xml)
    vcpus, memory_kib = read_whole(domain.findtext("vcpu", "1")), read_whole(domain.findtext("memory"))
    if vcpus is None or memory_kib is None:
        raise GuestError(
            f"the XML of domain {domain.findtext('name', '?')} has {domain.findtext('vcpu')!a} vcpus"
            f" and memory {domain.findtext('memory')!a}"
        )
    boots = domain.find("os")
    is_uefi = boots is not None and (
        boots.get("firmware") == "efi" or any(loader.get("type") == "pflash" for loader in boots.iterfind("loader"))
    )
    memory_mib = -(-memory_kib // _KIB_PER_MIB)
    firmware = Firmware.UEFI if is_uefi else Firmware.BIOS
    return DomainShape(vcpus, memory_mib, firmware, _hugepages_kib(domain))


def _hugepages_kib(domain: ElementTree.Element) -> int | None:
    """libvirt dumps the size in KiB; without a size the pages are of the usual one of x86."""
    pages = domain.find("memoryBacking/hugepages")
    if pages is None:
        return None
    size = pages.find("page")
    return (None if size is None else read_whole(size.get("size"))) or USUAL_PAGE_KIB
