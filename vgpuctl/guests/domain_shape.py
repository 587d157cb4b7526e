# SPDX-License-Identifier: Apache-2.0
"""How large a domain is that somebody else defined, as its XML says."""

from dataclasses import dataclass
from xml.etree import ElementTree

from vgpuctl.errors import GuestError
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
    domain = ElementTree.fromstring(xml)
    vcpus, memory = domain.findtext("vcpu", "1"), domain.findtext("memory", "")
    if not vcpus.isdecimal() or not memory.isdecimal():
        raise GuestError(f"the XML of domain {domain.findtext('name', '?')} has {vcpus!r} vcpus and memory {memory!r}")
    boots = domain.find("os")
    is_uefi = boots is not None and (
        boots.get("firmware") == "efi" or any(loader.get("type") == "pflash" for loader in boots.iterfind("loader"))
    )
    memory_mib = -(-int(memory) // _KIB_PER_MIB)
    firmware = Firmware.UEFI if is_uefi else Firmware.BIOS
    return DomainShape(int(vcpus), memory_mib, firmware, _hugepages_kib(domain))


def _hugepages_kib(domain: ElementTree.Element) -> int | None:
    """libvirt dumps the size in KiB; without a size the pages are of the usual one of x86."""
    pages = domain.find("memoryBacking/hugepages")
    if pages is None:
        return None
    size = pages.find("page")
    text = "" if size is None else size.get("size", "")
    return int(text) if text.isdecimal() else USUAL_PAGE_KIB
