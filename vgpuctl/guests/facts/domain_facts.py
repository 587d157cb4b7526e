# SPDX-License-Identifier: Apache-2.0
"""Facts of libvirt and QEMU about domains, as typed values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from xml.etree import ElementTree

from vgpuctl.agent.wire.strict_json import read_strict_json
from vgpuctl.errors import GuestError
from vgpuctl.guests.domain.metadata import DomainMetadata, find_metadata
from vgpuctl.guests.xml_reader import read_hex, read_xml


class DomainState(StrEnum):
    """libvirt's virDomainState by name."""

    NO_STATE = "no-state"
    RUNNING = "running"
    BLOCKED = "blocked"
    PAUSED = "paused"
    SHUTTING_DOWN = "shutting-down"
    SHUT_OFF = "shut-off"
    CRASHED = "crashed"
    SUSPENDED = "suspended"

    def is_active(self) -> bool:
        """True if a hypervisor process exists, which holds the domain's devices."""
        return self not in (DomainState.SHUT_OFF, DomainState.CRASHED)

    def is_paused(self) -> bool:
        """True if the process waits: somebody or an I/O error paused the guest, or it suspended itself."""
        return self in (DomainState.PAUSED, DomainState.SUSPENDED)


@dataclass(frozen=True)
class NamedState:
    """A domain's name and state. has_failed: True if it is off and neither its guest nor anybody else ended it."""

    name: str
    state: DomainState
    has_failed: bool = False


# In the order of enum virDomainState (include/libvirt/libvirt-domain.h).
_STATES = tuple(DomainState)


@dataclass(frozen=True)
class HostdevFact:
    """A host device in a domain's XML: `device` is a PCI address `dddd:bb:dd.f` or an mdev's UUID."""

    kind: str
    device: str
    alias: str | None
    managed: bool


@dataclass(frozen=True)
class DiskSource:
    """The source of a disk: a path of the host, or a volume of a pool."""

    path: str | None = None
    pool: str | None = None
    volume: str | None = None


@dataclass(frozen=True)
class DomainFact:
    """One domain of a host. metadata: None when it is not ours.

    disks: files, devices and volumes of its disks, by path or name. writable_disks: the sources that the guest may
    write. networks: libvirt networks its interfaces are in. macs: MAC addresses of all interfaces, in lower case.
    """

    name: str
    uuid: str
    state: DomainState
    metadata: DomainMetadata | None
    hostdevs: tuple[HostdevFact, ...]
    disks: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    writable_disks: tuple[DiskSource, ...] = ()
    macs: tuple[str, ...] = ()


@dataclass(frozen=True)
class GuestPciDevice:
    """One PCI function as the guest's QEMU sees it: the guest's address, ids in hex, QEMU's device id (`ua-gpu0`)."""

    address: str
    vendor_id: str
    device_id: str
    pci_class: str
    identifier: str | None
    bars_bytes: tuple[int, ...]


def domain_state(number: int) -> DomainState:
    """Name a virDomainState."""
    return _STATES[number] if 0 <= number < len(_STATES) else DomainState.NO_STATE


def has_failed(state: DomainState, reason: int) -> bool:
    """True if a domain is off after a crash, a start that failed, or for a reason that libvirt does not know any more.

    reason: virDomainShutoffReason (include/libvirt/libvirt-domain.h): 1 shutdown, 2 destroyed, 4 migrated, 5 saved and
    7 from a snapshot are somebody's wish; 0 unknown (libvirtd or the host was started since), 3 crashed, 6 failed and
    8 daemon are not.
    """
    return state is DomainState.CRASHED or (state is DomainState.SHUT_OFF and reason in (0, 3, 6, 8))


def domain_fact(xml: str, state: DomainState) -> DomainFact:
    """Read a domain's XML as libvirt dumped it."""
    domain = read_xml(xml)
    return DomainFact(
        name=domain.findtext("name", ""),
        uuid=domain.findtext("uuid", ""),
        state=state,
        metadata=find_metadata(domain),
        hostdevs=tuple(_hostdevs(domain)),
        disks=tuple(_attributes(domain, "devices/disk//source", "file", "dev", "name", "volume")),
        networks=tuple(_attributes(domain, "devices/interface/source", "network")),
        writable_disks=tuple(_writable_disks(domain)),
        macs=tuple(mac.lower() for mac in _attributes(domain, "devices/interface/mac", "address")),
    )


def _writable_disks(domain: ElementTree.Element) -> Iterator[DiskSource]:
    for disk in domain.iterfind("devices/disk"):
        source = disk.find("source")
        if source is not None and disk.find("readonly") is None:
            yield DiskSource(source.get("file") or source.get("dev"), source.get("pool"), source.get("volume"))


def _attributes(domain: ElementTree.Element, path: str, *names: str) -> Iterator[str]:
    for element in domain.iterfind(path):
        yield from (value for name in names if (value := element.get(name)))


def _hostdevs(domain: ElementTree.Element) -> Iterator[HostdevFact]:
    for hostdev in domain.iterfind("devices/hostdev[@mode='subsystem']"):
        address = hostdev.find("source/address")
        kind = hostdev.get("type", "")
        if address is None or kind not in ("pci", "mdev"):
            continue
        alias = hostdev.find("alias")
        yield HostdevFact(
            kind=kind,
            device=address.get("uuid", "") if kind == "mdev" else _pci_address(address.attrib),
            alias=None if alias is None else alias.get("name"),
            managed=hostdev.get("managed") == "yes",
        )


def _pci_address(attributes: Mapping[str, str]) -> str:
    parts = [read_hex(attributes.get(part, "0")) for part in ("domain", "bus", "slot", "function")]
    if None in parts:
        raise GuestError(f"a hostdev of a domain has the PCI address {dict(attributes)!a}, which is none")
    domain, bus, slot, function = parts
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def network_interfaces(xml: str) -> list[tuple[str, str]]:
    """MAC address and libvirt network of each interface that is in one, in their order."""
    interfaces = read_xml(xml).findall("devices/interface[@type='network']")
    pairs = [(one.find("mac"), one.find("source")) for one in interfaces]
    return [
        (mac.get("address", ""), source.get("network", ""))
        for mac, source in pairs
        if mac is not None and source is not None
    ]


def guest_pci_devices(answer: str) -> list[GuestPciDevice]:
    """Read the answer of QEMU's `query-pci`, by address; devices behind bridges are included.

    Raises GuestError when it is not what QEMU documents (qapi/pci.json).
    """
    try:
        buses = read_strict_json(answer)["return"]
        devices = [device for bus in buses for device in _bus_devices(bus["devices"])]
    except (ValueError, LookupError, TypeError, AttributeError) as broken:
        raise GuestError(f"QEMU's answer to query-pci cannot be read: {answer[:200]!r}") from broken
    return sorted(devices, key=lambda device: device.address)


def _bus_devices(devices: list[dict[str, Any]]) -> Iterator[GuestPciDevice]:
    for device in devices:
        yield GuestPciDevice(
            address=f"0000:{device['bus']:02x}:{device['slot']:02x}.{device['function']:x}",
            vendor_id=f"{device['id']['vendor']:04x}",
            device_id=f"{device['id']['device']:04x}",
            pci_class=f"{device['class_info']['class']:04x}",
            identifier=device["qdev_id"] or None,
            bars_bytes=tuple(region["size"] for region in device["regions"]),
        )
        yield from _bus_devices(device.get("pci_bridge", {}).get("devices", []))
