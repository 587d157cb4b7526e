# SPDX-License-Identifier: Apache-2.0
"""The disks of a domain as its XML has them, and the XML by which one of them is attached to the running domain."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from xml.etree import ElementTree

from vgpuctl.errors import DomainRejected
from vgpuctl.guests.facts.spare_ports import port_address, take_port
from vgpuctl.guests.xml_reader import read_xml

_PREFIXES = {"virtio": "vd", "scsi": "sd", "sata": "sd"}


@dataclass(frozen=True)
class DiskFact:
    """One disk or CD drive. target: `vdb`. serial: a data disk's name. path: None for an empty drive."""

    target: str
    bus: str
    serial: str | None
    path: str | None
    is_cdrom: bool


def domain_disks(xml: str) -> list[DiskFact]:
    """Read the disks of a domain, in its order."""
    return [fact for _, fact in _disks(xml)]


def disk_of(xml: str, serial: str) -> DiskFact | None:
    """The disk with a serial number; None when the domain has none."""
    return next((fact for fact in domain_disks(xml) if fact.serial == serial), None)


def disk_xml(xml: str, target: str) -> str:
    """The element of one disk, by its target. Raises DomainRejected when the domain has none."""
    for element, fact in _disks(xml):
        if fact.target == target:
            return ElementTree.tostring(element, encoding="unicode")
    raise DomainRejected(f"the domain has no disk {target}")


def attachable_xml(definition: str, live: str, serial: str, *, domain: str) -> tuple[str, ...]:
    """The elements to attach, in their order, that give a running domain a disk of a definition.

    definition: the domain as it is defined with the disk. live: as it runs without it. The disk gets a free target, and
    on virtio a free port. On SCSI it takes no port where the guest has a SCSI controller; else the controller comes
    first, and takes one: libvirt would add an LSI controller, for which the guest has no port at all. Raises
    DomainRejected when no port is free, or when the bus takes no disk while the guest runs.
    """
    element, fact = next(one for one in _disks(definition) if one[1].serial == serial)
    if fact.bus not in ("virtio", "scsi"):
        raise DomainRejected(
            f"{domain} runs, and a disk on {fact.bus} cannot be attached to a running guest",
            hint="stop the VM first, or write bus=scsi or bus=virtio",
        )
    for part in ("address", "alias", "boot"):
        for child in element.findall(part):
            element.remove(child)
    target = element.find("target")
    assert target is not None
    target.set("dev", _free_target(domain_disks(live), fact.bus))
    before: tuple[str, ...] = ()
    if fact.bus == "virtio":
        element.append(port_address(take_port(live, domain=domain, device=f"disk {serial}")))
    elif not has_scsi_controller(live):
        controller = ElementTree.Element("controller", {"type": "scsi", "index": "0", "model": "virtio-scsi"})
        controller.append(port_address(take_port(live, domain=domain, device="a SCSI controller")))
        before = (ElementTree.tostring(controller, encoding="unicode"),)
    return (*before, ElementTree.tostring(element, encoding="unicode"))


def has_scsi_controller(xml: str) -> bool:
    """True if the guest has a SCSI controller, on which a disk needs no port."""
    return read_xml(xml).find("devices/controller[@type='scsi']") is not None


def without_medium(element: str) -> str:
    """The element of a CD drive with nothing in it."""
    drive = read_xml(element)
    for child in [one for one in drive if one.tag in ("source", "backingStore")]:
        drive.remove(child)
    return ElementTree.tostring(drive, encoding="unicode")


def has_caught_up(xml: str, target: str) -> bool:
    """True if the job that merges a disk has copied everything and only follows what the guest writes."""
    return any(
        fact.target == target and element.find("mirror[@ready='yes']") is not None for element, fact in _disks(xml)
    )


def _free_target(disks: Sequence[DiskFact], bus: str) -> str:
    taken = {disk.target for disk in disks}
    return next(name for number in count() if (name := f"{_PREFIXES[bus]}{_letters(number)}") not in taken)


def _letters(number: int) -> str:
    """`a` for 0, `z` for 25, `aa` for 26, as Linux and libvirt name disks."""
    text = ""
    while number >= 0:
        text = chr(ord("a") + number % 26) + text
        number = number // 26 - 1
    return text


def _disks(xml: str) -> list[tuple[ElementTree.Element, DiskFact]]:
    found = []
    for element in read_xml(xml).iterfind("devices/disk"):
        target, source = element.find("target"), element.find("source")
        if target is None:
            continue
        path = None if source is None else source.get("file") or source.get("dev")
        serial = element.findtext("serial")
        is_cdrom = element.get("device") == "cdrom"
        found.append((element, DiskFact(target.get("dev", ""), target.get("bus", ""), serial, path, is_cdrom)))
    return found
