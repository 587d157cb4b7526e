# SPDX-License-Identifier: Apache-2.0
"""The limits of a domain: of its vCPUs, disks and interfaces (libvirt: formatdomain)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from xml.etree import ElementTree

from vgpuctl.guests.xml_reader import read_whole, read_xml
from vgpuctl.model.cpu_time import PERIOD_US
from vgpuctl.quota.resources import Limited
from vgpuctl.quota.vm_limits import Part

_BYTES_PER_MB = 1_000_000
_KIB_S_PER_MBIT_S = 1_000_000 / 8 / 1024
# The types of interfaces whose `<bandwidth>` libvirt sets (virNetDevSupportsBandwidth); of others it is ignored.
_WITH_BANDWIDTH = ("bridge", "direct", "ethernet", "network")
_WAYS = ("inbound", "outbound")
_DISK_LIMITS = ("total_bytes_sec", "total_iops_sec")


class LimitedPart(StrEnum):
    """A part of a running domain whose limits libvirt changes."""

    VCPUS = "vCPUs"
    DISK = "disk"
    INTERFACE = "interface"


@dataclass(frozen=True)
class LimitChange:
    """Limits of one part that are to be others. device: the target of a disk, the MAC address of an interface.

    values: by the names of virDomainSetBlockIoTune, virDomainSetInterfaceParameters and
    virDomainSetSchedulerParameters; 0, and of a quota -1, for no limit.
    """

    part: LimitedPart
    device: str
    values: Mapping[str, int]

    def __str__(self) -> str:
        """`disk vda`, or `vCPUs`."""
        return f"{self.part} {self.device}".strip()


def limit_changes(live: str, definition: str) -> list[LimitChange]:
    """The changes that give a running domain the limits of its definition. Raises GuestError for what is no XML.

    Parts that only one of them has are left out: they come or go at the next start. A weight of the CPUs that the
    definition does not have stays too, since nobody knows what the host gives without one.
    """
    runs, defined = read_xml(live), read_xml(definition)
    found = [*_changed_vcpus(runs, defined)]
    for part, read in ((LimitedPart.DISK, _rates_of_disks), (LimitedPart.INTERFACE, _rates_of_interfaces)):
        wanted = {key: values for key, _device, values in read(defined)}
        for key, device, values in read(runs):
            if key in wanted and wanted[key] != values:
                found.append(LimitChange(part, device, wanted[key]))
    return found


def _changed_vcpus(runs: ElementTree.Element, defined: ElementTree.Element) -> Iterator[LimitChange]:
    values: dict[str, int] = {}
    weight = read_whole(defined.findtext("cputune/shares"))
    if weight is not None and weight != read_whole(runs.findtext("cputune/shares")):
        values["cpu_shares"] = weight
    if cpu_limit(runs) != cpu_limit(defined):
        values["vcpu_period"] = read_whole(defined.findtext("cputune/period")) or PERIOD_US
        values["vcpu_quota"] = read_whole(defined.findtext("cputune/quota")) or -1
    if values:
        yield LimitChange(LimitedPart.VCPUS, "", values)


_Rates = tuple[str, str, dict[str, int]]
"""What tells one from the others in the domain and its definition, its name in libvirt, its limits."""


def _rates_of_disks(domain: ElementTree.Element) -> Iterator[_Rates]:
    """A data disk has a serial number, and the first disk has none: its path and its target may be others."""
    for disk in domain.iterfind("devices/disk"):
        target = disk.find("target")
        if disk.get("device", "disk") == "disk" and target is not None:
            limits = {name: read_whole(disk.findtext(f"iotune/{name}")) or 0 for name in _DISK_LIMITS}
            yield disk.findtext("serial") or "", target.get("dev", ""), limits


def _rates_of_interfaces(domain: ElementTree.Element) -> Iterator[_Rates]:
    """Without those that libvirt does not limit, as the ports of OVN."""
    for one in domain.iterfind("devices/interface"):
        mac, rates = one.find("mac"), [one.find(f"bandwidth/{way}") for way in _WAYS]
        if mac is not None and one.find("virtualport") is None and one.get("type") in _WITH_BANDWIDTH:
            limits = [0 if rate is None else read_whole(rate.get("average")) or 0 for rate in rates]
            address = mac.get("address", "").lower()
            yield address, address, {f"{way}.average": limit for way, limit in zip(_WAYS, limits, strict=True)}


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
        rates = [_rate(one.find(f"bandwidth/{way}"), way) for way in _WAYS]
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
