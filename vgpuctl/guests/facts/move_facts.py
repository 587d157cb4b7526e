# SPDX-License-Identifier: Apache-2.0
"""What libvirt tells about a move: of the running domain, and of the processor and machine types of a host."""

import re
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any
from xml.etree import ElementTree

from vgpuctl.guests.facts.capabilities import Connected
from vgpuctl.guests.facts.domain_facts import domain_fact, domain_state
from vgpuctl.guests.libvirt_errors import error_code, libvirt_module, translated
from vgpuctl.guests.xml_reader import read_whole, read_xml
from vgpuctl.logs import timed
from vgpuctl.model.units import MIB
from vgpuctl.planner.moves.case import HostProcessor, MovedDomain

_NO_MODEL = "default"
"""Mode of a CPU that the domain does not describe: QEMU's own default, which every host has."""
_MOST_MACHINES = 4096
_MOST_FEATURES = 4096
_MOVED_BY_LIBVIRT = re.compile("pci|mdev|usb")
_DIRTY_RATE_S = 1
_DIRTY_RATE_POLLS = 30


def read_moved_domain(connected: Connected, uuid: str, *, own: Collection[str]) -> MovedDomain:
    """Read the running domain. own: its shares' devices, as libvirt names them. Raises GuestError."""
    what = f"read domain {uuid} on {connected.host}"
    with translated(what):
        domain = connected.connection.lookupByUUIDString(uuid)
        state = domain_state(domain.state()[0])
        xml = str(domain.XMLDesc(0))
        snapshots = _unless_unsupported(lambda: int(domain.snapshotNum()), 0)
        job = _unless_unsupported(lambda: int(domain.jobInfo()[0]), 0)
        root = read_xml(xml)
        targets = [name for one in root.iterfind("devices/disk/target") if (name := one.get("dev"))]
        busy = [name for name in targets if _unless_unsupported(lambda: domain.blockJobInfo(name, 0), None)]  # noqa: B023
    devices = [one.device for one in domain_fact(xml, state).hostdevs]
    return MovedDomain(
        machine=None if (kind := root.find("os/type")) is None else kind.get("machine"),
        cpu_mode=_cpu_mode(root),
        has_free_invtsc=_has_free_invtsc(root),
        has_viommu=root.find("devices/iommu") is not None,
        has_virtiofs=any(one.get("type") == "virtiofs" for one in root.iterfind("devices/filesystem/driver")),
        snapshots=snapshots,
        block_jobs=tuple(busy),
        job=f"its job of type {job}" if job else "",
        # QEMU drops the host's caches itself since 4.0, and live moves of GPUs need 8.1.
        unsafe_disks=(),
        transient_disks=tuple(_transient(root)),
        other_devices=(*sorted(set(devices) - set(own)), *_unmovable(root)),
    )


def iommufd_devices(xml: str) -> frozenset[str]:
    """Read which host devices QEMU has by an iommufd (libvirt 12.2)."""
    root = read_xml(xml)
    hostdevs = [one for one in root.iterfind("devices/hostdev[@mode='subsystem']") if one.get("type") == "pci"]
    facts = [one for one in domain_fact(xml, domain_state(1)).hostdevs if one.kind == "pci"]
    pairs = zip(hostdevs, facts, strict=True)
    return frozenset(
        fact.device
        for one, fact in pairs
        if (driver := one.find("driver")) is not None and driver.get("iommufd") == "yes"
    )


def read_host(connected: Connected) -> tuple[frozenset[str] | None, HostProcessor | None]:
    """Read the machine types that QEMU of a host has, and its processor; None for what libvirt does not tell."""
    text = _unless_unsupported(lambda: str(connected.connection.getCapabilities()), None)
    if text is None:
        return None, None
    root = read_xml(text)
    machines = {
        name
        for one in root.iterfind("guest/arch[@name='x86_64']//machine")
        for name in (one.text, one.get("canonical"))
        if name
    }
    return (frozenset(machines) if 0 < len(machines) <= _MOST_MACHINES else None), _processor(root)


def runs_cpu(connected: Connected, xml: str) -> bool | None:
    """Ask libvirt of a host whether it can run a domain's CPU; None where it does not say."""
    library, cpu = libvirt_module(), read_xml(xml).find("cpu")
    if cpu is None:
        return True
    text = ElementTree.tostring(cpu, encoding="unicode")
    found = _unless_unsupported(
        lambda: int(connected.connection.compareHypervisorCPU(None, None, None, None, text, 0)), None
    )
    if found is None:
        return None
    return found in (library.VIR_CPU_COMPARE_IDENTICAL, library.VIR_CPU_COMPARE_SUPERSET)


def read_dirty_rate(connected: Connected, uuid: str) -> int | None:
    """Let QEMU sample for a second how fast the guest writes its memory, in bytes a second; None where it cannot."""
    library = libvirt_module()

    def measure() -> int | None:
        domain = connected.connection.lookupByUUIDString(uuid)
        domain.startDirtyRateCalc(_DIRTY_RATE_S, 0)
        for _poll in range(_DIRTY_RATE_POLLS):
            time.sleep(_DIRTY_RATE_S / 5)
            found = next(
                rates
                for one, rates in connected.connection.getAllDomainStats(library.VIR_DOMAIN_STATS_DIRTYRATE, 0)
                if one.UUIDString() == uuid
            )
            if found.get("dirtyrate.calc_status") == library.VIR_DOMAIN_DIRTYRATE_MEASURED:
                rate = found.get("dirtyrate.megabytes_per_second")
                return rate * MIB if isinstance(rate, int) and rate >= 0 else None
        return None

    found: int | None = _unless_unsupported(measure, None)
    return found


def _unless_unsupported(ask: Callable[[], Any], missing: Any) -> Any:
    """Ask libvirt; `missing` where its driver has no such call, as libvirt's test driver. Raises libvirtError."""
    library = libvirt_module()
    try:
        with timed("libvirt-call", action="ask libvirt about a move"):
            return ask()
    except library.libvirtError as refused:
        absent = (library.VIR_ERR_NO_SUPPORT, library.VIR_ERR_OPERATION_UNSUPPORTED, library.VIR_ERR_CONFIG_UNSUPPORTED)
        if error_code(refused) not in absent:
            raise
        return missing


def _cpu_mode(root: ElementTree.Element) -> str:
    cpu = root.find("cpu")
    if cpu is None:
        return _NO_MODEL
    return cpu.get("mode") or ("custom" if cpu.find("model") is not None else _NO_MODEL)


def _has_free_invtsc(root: ElementTree.Element) -> bool:
    wanted = [one for one in root.iterfind("cpu/feature[@name='invtsc']") if one.get("policy", "require") == "require"]
    is_fixed = any(one.get("frequency") for one in root.iterfind("clock/timer[@name='tsc']"))
    return bool(wanted) and not is_fixed


def _transient(root: ElementTree.Element) -> Iterator[str]:
    for disk in root.iterfind("devices/disk"):
        target = disk.find("target")
        if disk.find("transient") is not None:
            yield "a disk" if target is None else target.get("dev", "a disk")


def _unmovable(root: ElementTree.Element) -> Iterator[str]:
    """Host devices that are neither PCI, mdev nor USB, of which libvirt moves the latter."""
    for one in root.iterfind("devices/hostdev"):
        if _MOVED_BY_LIBVIRT.fullmatch(one.get("type", "")) is None:
            yield f"a host device of type {one.get('type')}"


def _processor(root: ElementTree.Element) -> HostProcessor | None:
    cpu = root.find("host/cpu")
    if cpu is None:
        return None
    vendor, model = cpu.findtext("vendor"), cpu.findtext("model")
    features = [name for one in cpu.iterfind("feature") if (name := one.get("name"))]
    if vendor is None or model is None or len(features) > _MOST_FEATURES:
        return None
    microcode, size = cpu.find("microcode"), cpu.find("maxphysaddr")
    return HostProcessor(
        vendor,
        model,
        frozenset(features),
        None if microcode is None else microcode.get("version"),
        None if size is None else read_whole(size.get("bits")),
    )


def has_address_bits(xml: str) -> bool:
    """True if the domain's firmware uses as many address bits as its host's processor has."""
    return read_xml(xml).find("cpu/maxphysaddr[@mode='passthrough']") is not None
