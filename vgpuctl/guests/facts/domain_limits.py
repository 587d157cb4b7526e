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
# The types of interfaces whose `<bandwidth>` libvirt sets (virNetDevSupportsBandwidth); of others it is ignored.
_WITH_BANDWIDTH = ("bridge", "direct", "ethernet", "network")


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
    """Percent of one CPU; None where libvirt's quota is 0 or less. Its period is 100 ms by default."""
    quota = read_whole(domain.findtext("cputune/quota"))
    return None if not quota else -(-100 * quota // (read_whole(domain.findtext("cputune/period")) or PERIOD_US))


def _of_disks(domain: ElementTree.Element) -> Iterator[Part]:
    for disk in domain.iterfind("devices/disk"):
        target = disk.find("target")
        part = f"disk {'' if target is None else target.get('dev', '')}"
        device = disk.get("device", "disk")
        if device in ("disk", "lun"):
            # QEMU sends the commands of a `lun` on by SG_IO, past its own throttling (hw/scsi/scsi-disk.c, scsi-block).
            bytes_s = None if device == "lun" else _most(disk, "bytes")
            yield Limited.DISK_IOPS, part, None if device == "lun" else _most(disk, "iops")
            yield Limited.DISK_MBPS, part, None if bytes_s is None else -(-bytes_s // _BYTES_PER_MB)
    for number, one in enumerate(domain.iterfind("devices/hostdev")):
        if one.get("type") in ("scsi", "scsi_host"):  # the same, and there is no limit to write
            yield Limited.DISK_IOPS, f"hostdev {number}", None
            yield Limited.DISK_MBPS, f"hostdev {number}", None


def _most(disk: ElementTree.Element, what: str) -> int | None:
    """Reads and writes together, with their bursts; of limits for each by itself their sum."""
    total = _with_burst(disk, f"total_{what}_sec")
    each = [_with_burst(disk, f"{way}_{what}_sec") for way in ("read", "write")]
    known = [one for one in each if one]
    return total or (sum(known) if len(known) == len(each) else None)


def _with_burst(disk: ElementTree.Element, limit: str) -> int | None:
    """A limit, or what goes through in a burst where that is more; a burst alone limits nothing."""
    usual = read_whole(disk.findtext(f"iotune/{limit}"))
    return max(usual, read_whole(disk.findtext(f"iotune/{limit}_max")) or 0) if usual else None


def _of_interfaces(domain: ElementTree.Element) -> Iterator[Part]:
    for number, one in enumerate(domain.iterfind("devices/interface")):
        rates = [_rate(one.find(f"bandwidth/{way}"), way) for way in ("inbound", "outbound")]
        known = [rate for rate in rates if rate]
        holds = one.get("type") in _WITH_BANDWIDTH and len(known) == len(rates)
        yield Limited.NIC_MBPS, f"interface {number}", -int(-max(known) // _KIB_S_PER_MBIT_S) if holds else None


def _rate(bandwidth: ElementTree.Element | None, way: str) -> int | None:
    """The most KiB that go in a second: a burst goes at the peak, and at any speed where there is none.

    Outbound traffic has no peak (libvirt: formatnetwork, Quality of service).
    """
    average, peak, burst = (
        None if bandwidth is None else read_whole(bandwidth.get(name)) for name in ("average", "peak", "burst")
    )
    if not average:
        return None
    return max(average, peak) if peak and way == "inbound" else average + (burst or 0)
