# SPDX-License-Identifier: Apache-2.0
"""The limits of a domain that somebody else defined: of its vCPUs, disks and interfaces (libvirt: formatdomain)."""

from collections.abc import Iterator
from xml.etree import ElementTree

from vgpuctl.guests.xml_reader import read_whole, read_xml
from vgpuctl.model.cpu_time import PERIOD_US
from vgpuctl.quota.ceilings import Part
from vgpuctl.quota.resources import Limited

_BYTES_PER_MB = 1_000_000
_KIB_S_PER_MBIT_S = 1_000_000 / 8 / 1024


def domain_limits(xml: str) -> list[Part]:
    """Read the limits of a domain's XML as libvirt dumped it, rounded up. Raises GuestError for what is no XML."""
    domain = read_xml(xml)
    return [
        (Limited.CPU_LIMIT, "its vCPUs", cpu_limit(domain)),
        (Limited.CPU_WEIGHT, "its vCPUs", read_whole(domain.findtext("cputune/shares"))),
        *_of_disks(domain),
        *_of_interfaces(domain),
    ]


def cpu_limit(domain: ElementTree.Element) -> int | None:
    """Percent of one CPU; libvirt's quota of 0 or less is no limit, and its period is 100 ms where it says none."""
    quota = read_whole(domain.findtext("cputune/quota"))
    return None if not quota else -(-100 * quota // (read_whole(domain.findtext("cputune/period")) or PERIOD_US))


def _of_disks(domain: ElementTree.Element) -> Iterator[Part]:
    for disk in domain.iterfind("devices/disk"):
        target = disk.find("target")
        part = f"disk {'' if target is None else target.get('dev', '')}"
        if disk.get("device", "disk") == "disk":
            bytes_s = _most(disk, "bytes")
            yield Limited.DISK_IOPS, part, _most(disk, "iops")
            yield Limited.DISK_MBPS, part, None if bytes_s is None else -(-bytes_s // _BYTES_PER_MB)


def _most(disk: ElementTree.Element, what: str) -> int | None:
    """Reads and writes together; of limits for each by itself their sum."""
    total = read_whole(disk.findtext(f"iotune/total_{what}_sec"))
    each = [read_whole(disk.findtext(f"iotune/{way}_{what}_sec")) for way in ("read", "write")]
    known = [one for one in each if one]
    return total or (sum(known) if len(known) == len(each) else None)


def _of_interfaces(domain: ElementTree.Element) -> Iterator[Part]:
    for number, one in enumerate(domain.iterfind("devices/interface")):
        ways = [one.find(f"bandwidth/{way}") for way in ("inbound", "outbound")]
        rates = [read_whole(way.get("average")) for way in ways if way is not None]
        known = [rate for rate in rates if rate]
        most = None if len(known) < len(ways) else int(-(-max(known) // _KIB_S_PER_MBIT_S))
        yield Limited.NIC_MBPS, f"interface {number}", most
