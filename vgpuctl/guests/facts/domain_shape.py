# SPDX-License-Identifier: Apache-2.0
"""How large a domain is that somebody else defined, as its XML says."""

from dataclasses import dataclass
from xml.etree import ElementTree

from vgpuctl.errors import GuestError
from vgpuctl.guests.xml_reader import read_whole, read_xml
from vgpuctl.model.guest_memory import format_page_size
from vgpuctl.model.numa import NO_TUNING, Tuning
from vgpuctl.model.vm import Firmware

# libvirt dumps memory in KiB, whatever it was given (docs/formatdomain: memory).
_KIB_PER_MIB = 1024
USUAL_PAGE_KIB = 2048
# Linux has at most 8192 CPUs (NR_CPUS of x86 and ARM).
_LARGEST_NUMBER = 8191


@dataclass(frozen=True)
class DomainShape:
    """CPUs and memory that a domain takes of its host, and at which NUMA nodes.

    hugepages_kib: None for ordinary memory. hides_kvm: its guest cannot know that it runs in KVM.
    """

    vcpus: int
    memory_mib: int
    firmware: Firmware
    hugepages_kib: int | None = None
    tuning: Tuning = NO_TUNING
    hides_kvm: bool = False


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
    pages, tuning = _hugepages_kib(domain), _tuning(domain, vcpus, memory_mib)
    return DomainShape(vcpus, memory_mib, firmware, pages, tuning, _hides_kvm(domain))


def _hides_kvm(domain: ElementTree.Element) -> bool:
    """True if KVM's signature, or the bit of CPUID that tells of a hypervisor, is kept from the guest."""
    left = domain.iterfind("cpu/feature[@name='hypervisor']")
    return domain.find("features/kvm/hidden[@state='on']") is not None or any(
        one.get("policy") in ("disable", "forbid") for one in left
    )


def _tuning(domain: ElementTree.Element, vcpus: int, memory_mib: int) -> Tuning:
    """`vcpupin` before the `cpuset` of `vcpu`, `memnode` before the memory of `numatune` (libvirt: formatdomain)."""
    pins = {read_whole(one.get("vcpu")): cpu_numbers(one.get("cpuset")) for one in domain.iterfind("cputune/vcpupin")}
    vcpu = domain.find("vcpu")
    cpus = frozenset[int]() if vcpu is None else cpu_numbers(vcpu.get("cpuset"))
    sizes_kib = {one.get("id"): read_whole(one.get("memory")) or 0 for one in domain.iterfind("cpu/numa/cell")}
    bound = [
        (cpu_numbers(one.get("nodeset")), -(-sizes_kib.get(one.get("cellid"), 0) // _KIB_PER_MIB))
        for one in domain.iterfind("numatune/memnode")
    ]
    memory = domain.find("numatune/memory")
    left_mib = memory_mib - sum(mib for _, mib in bound)
    if memory is not None and left_mib > 0:
        bound.append((cpu_numbers(memory.get("nodeset")), left_mib))
    known = tuple(own for number, own in pins.items() if number is not None and number < vcpus and own)
    return Tuning(known, cpus, tuple((nodes, mib) for nodes, mib in bound if nodes and mib))


def cpu_numbers(text: str | None) -> frozenset[int]:
    """The CPUs or nodes of libvirt's `0-3,^2,8`; none without a text. Raises GuestError."""
    numbers: set[int] = set()
    for part in (text or "").split(",") if text else ():
        word = part.strip()
        first, dash, last = word.removeprefix("^").partition("-")
        begin, end = read_whole(first), read_whole(last if dash else first)
        if begin is None or end is None or begin > end:
            raise GuestError(f"the domain's XML has {text!a} where CPUs or NUMA nodes are named")
        end = min(end, _LARGEST_NUMBER)  # no host has those above
        if word.startswith("^"):
            numbers.difference_update(range(begin, end + 1))
        else:
            numbers.update(range(begin, end + 1))
    return frozenset(numbers)


def _hugepages_kib(domain: ElementTree.Element) -> int | None:
    """libvirt dumps the size in KiB; without a size the pages are of the usual one of x86.

    Raises GuestError for pages of several sizes: nobody could say how many of each the domain takes.
    """
    pages = domain.find("memoryBacking/hugepages")
    if pages is None:
        return None
    sizes = {read_whole(one.get("size")) or USUAL_PAGE_KIB for one in pages.iterfind("page")} or {USUAL_PAGE_KIB}
    if len(sizes) > 1:
        shown = ", ".join(format_page_size(one) for one in sorted(sizes))
        raise GuestError(f"its memory is made of huge pages of several sizes: {shown}")
    return sizes.pop()
