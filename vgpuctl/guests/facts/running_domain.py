# SPDX-License-Identifier: Apache-2.0
"""A running domain as its live XML has it, for the comparison with what was promised (vgpuctl/promises)."""

from collections.abc import Iterator
from xml.etree import ElementTree

from vgpuctl.guests.facts.domain_limits import cpu_limit
from vgpuctl.guests.facts.domain_shape import cpu_numbers, domain_shape
from vgpuctl.guests.xml_reader import read_whole, read_xml
from vgpuctl.promises.witnessed import SeenDisk, SeenDomain, SeenInterface

_KIB_PER_MIB = 1024


def running_domain(xml: str) -> SeenDomain:
    """Read the live XML of a domain. Raises GuestError when it does not say how large it is."""
    domain = read_xml(xml)
    shape = domain_shape(xml)
    vcpu, current = domain.find("vcpu"), read_whole(domain.findtext("currentMemory"))
    online = read_whole(vcpu.get("current")) if vcpu is not None else None
    has_less = current is not None and -(-current // _KIB_PER_MIB) < shape.memory_mib
    return SeenDomain(
        vcpus=shape.vcpus if online is None else online,
        memory_mib=-(-current // _KIB_PER_MIB) if has_less and current is not None else shape.memory_mib,
        hugepages_kib=shape.hugepages_kib,
        pins=dict(_pins(domain)),
        tuning=shape.tuning,
        disks=tuple(_disks(domain)),
        interfaces=tuple(_interfaces(domain)),
        graphics=frozenset(one.get("type", "") for one in domain.iterfind("devices/graphics")),
        video=tuple(one.get("type", "") for one in domain.iterfind("devices/video/model")),
        shown=tuple(_shown(domain)),
        cpu_weight=read_whole(domain.findtext("cputune/shares")),
        cpu_limit=cpu_limit(domain),
        tpm=next((one.get("version", "") for one in domain.iterfind("devices/tpm/backend")), None),
    )


def _pins(domain: ElementTree.Element) -> Iterator[tuple[int, frozenset[int]]]:
    for one in domain.iterfind("cputune/vcpupin"):
        number = read_whole(one.get("vcpu"))
        if number is not None:
            yield number, cpu_numbers(one.get("cpuset"))


def _disks(domain: ElementTree.Element) -> Iterator[SeenDisk]:
    for disk in domain.iterfind("devices/disk"):
        source = disk.find("source")
        yield SeenDisk(
            path=None if source is None else source.get("file") or source.get("dev"),
            serial=disk.findtext("serial"),
            bytes_s=read_whole(disk.findtext("iotune/total_bytes_sec")) or None,
            iops=read_whole(disk.findtext("iotune/total_iops_sec")) or None,
        )


def _interfaces(domain: ElementTree.Element) -> Iterator[SeenInterface]:
    for one in domain.iterfind("devices/interface"):
        mac, source, link = one.find("mac"), one.find("source"), one.find("link")
        port = one.find("virtualport/parameters")
        address = one.find("filterref/parameter[@name='IP']")
        yield SeenInterface(
            mac_address="" if mac is None else mac.get("address", "").lower(),
            network=None if source is None else source.get("network"),
            port=None if port is None else port.get("interfaceid"),
            is_up=link is None or link.get("state") != "down",
            kib_s=(_rate(one, "inbound"), _rate(one, "outbound")),
            address=None if address is None else address.get("value"),
        )


def _rate(interface: ElementTree.Element, direction: str) -> int | None:
    limit = interface.find(f"bandwidth/{direction}")
    return None if limit is None else read_whole(limit.get("average"))


def _shown(domain: ElementTree.Element) -> Iterator[str]:
    for one in domain.iterfind("devices/hostdev[@display='on']"):
        alias = one.find("alias")
        if alias is not None:
            yield alias.get("name", "") + ("+ramfb" if one.get("ramfb") == "on" else "")
