# SPDX-License-Identifier: Apache-2.0
"""Everything the domain template needs, decided and typed; the template itself decides nothing but syntax."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.catalog.guest_os import is_windows
from vgpuctl.errors import GuestError, UsageError
from vgpuctl.guests.domain.disk_view import DiskView, MediumView, disk_views, has_scsi_seed, medium_views
from vgpuctl.guests.domain.display_view import DisplayView, display_view, hostdev_display, shown_device
from vgpuctl.guests.domain.firmware_view import NVRAM_FOLDER, TpmView, UefiView, tpm_view, uefi_view
from vgpuctl.guests.domain.metadata import DomainMetadata, domain_metadata
from vgpuctl.guests.domain.mmio_window import LARGE_WINDOW_GIB, TCG_WINDOW_GIB, window_gib
from vgpuctl.guests.domain.nic_view import NicView, bus_of, nic_views
from vgpuctl.guests.domain.numa import CpusByCell, NumaView, numa_view
from vgpuctl.guests.domain.pci_layout import (
    ExpanderBusView,
    Extras,
    RootPortView,
    expander_buses,
    extra_buses,
    first_gpu_bus,
    guest_bus,
    root_ports,
)
from vgpuctl.guests.domain.windows_view import WindowsView, windows_view
from vgpuctl.model.cpu_time import PERIOD_US, quota_us
from vgpuctl.model.disk import DiskBus
from vgpuctl.model.display import DisplayRequest, VgpuDisplay
from vgpuctl.model.gpu_positions import gpu_ports, spare_ports_of_gpus
from vgpuctl.model.guest_firmware import Variables
from vgpuctl.model.interfaces import Interface, port_count, spare_ports_taken
from vgpuctl.model.lease import Lease, Share
from vgpuctl.model.network import Attachment
from vgpuctl.model.texts import texts_of
from vgpuctl.model.version import version_of
from vgpuctl.model.vm import DirectKernel, Vm, VmRequest
from vgpuctl.sharing.kinds import kind_of

LOG_FOLDER = "/var/log/libvirt/qemu"
_PCI_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([01][0-9a-f])\.([0-7])")
_NOT_FOR_XML = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_MAXPHYSADDR_SINCE = (8, 7)
_SPARE_PORTS = 4
NO_CPUS: CpusByCell = {}
NO_DISKS: Mapping[str, DiskView] = {}


class CpuMode(StrEnum):
    """libvirt's CPU mode: the host's own under KVM, all that QEMU can emulate without."""

    HOST_PASSTHROUGH = "host-passthrough"
    MAXIMUM = "maximum"


@dataclass(frozen=True)
class PciAddress:
    """A PCI function in the parts libvirt wants."""

    domain: int
    bus: int
    slot: int
    function: int


@dataclass(frozen=True)
class HostdevView:
    """One device given to the guest: a PCI function (source) or a mediated device (mdev_uuid).

    managed: whether libvirt binds the function to vfio-pci; None for a mediated device, which has no such attribute.
    display: how the console shows its picture.
    """

    alias: str
    source: PciAddress | None
    mdev_uuid: str | None
    managed: bool | None
    guest_bus: int
    guest_function: int
    multifunction: bool
    display: VgpuDisplay = VgpuDisplay.OFF


@dataclass(frozen=True)
class DomainView:
    """One domain, ready to be rendered.

    kvm: whether the host runs it by KVM, else QEMU emulates (TCG). mmio_window_gib: the 64-bit window for the
    GPUs' BARs, None when QEMU's default suffices. seed_path: the NoCloud image on the host.
    hugepages_kib: size of the pages that its memory is made of, None for ordinary memory. uefi: None for BIOS.
    windows: None for other guests.
    """

    name: str
    uuid: str
    kvm: bool
    memory_mib: int
    hugepages_kib: int | None
    vcpus: int
    cpu_weight: int | None
    cpu_period_us: int
    cpu_quota_us: int | None
    cpu_mode: CpuMode
    maxphysaddr_passthrough: bool
    uefi: UefiView | None
    tpm: TpmView | None
    windows: WindowsView | None
    direct_kernel: DirectKernel | None
    numa: NumaView | None
    mmio_window_gib: int | None
    expander_buses: tuple[ExpanderBusView, ...]
    root_ports: tuple[RootPortView, ...]
    scsi_bus: int | None
    disks: tuple[DiskView, ...]
    media: tuple[MediumView, ...]
    nics: tuple[NicView, ...]
    hostdevs: tuple[HostdevView, ...]
    display: DisplayView | None
    serial_log_path: str
    metadata: DomainMetadata


def domain_view(
    vm: Vm,
    leases: Sequence[Lease],
    facts: HostFacts,
    *,
    disk: DiskView | None = None,
    data_disks: Mapping[str, DiskView] = NO_DISKS,
    seed_path: str | None = None,
    install_paths: Sequence[str] = (),
    answers_path: str | None = None,
    attachments: Sequence[Attachment] = (),
    direct_kernel: DirectKernel | None = None,
    floating: CpusByCell = NO_CPUS,
    hyperv: Collection[str] | None = None,
    log_folder: str = LOG_FOLDER,
    nvram_folder: str = NVRAM_FOLDER,
    variables: Variables | None = None,
) -> DomainView:
    """Decide the whole domain of one VM on one host.

    leases: the VM's own, one per GPU. facts: the host's, read under its lock. disk/seed_path: the volumes made
    before. answers_path: of an unattended installation, in the run that installs. direct_kernel: with paths on the
    host. attachments: the VM's places in tenants' networks; its other interfaces are in networks of the host.
    floating: the CPUs of each NUMA node that no vCPU is pinned to.
    hyperv: the enlightenments that the host's libvirt reports, None where it reports none. variables: the UEFI
    variables that the VM has on the host, None before its first start.
    Raises UsageError for text that XML cannot carry, GuestError for a lease on a GPU that facts lack.
    """
    ordered = sorted(leases, key=lambda lease: lease.index)
    gpus = [_gpu_of(lease, facts) for lease in ordered]
    shares = [lease.share for lease in ordered]
    window = window_gib(list(zip(gpus, shares, strict=True)))
    if window is not None and not facts.kvm:
        window = min(window, TCG_WINDOW_GIB)
    request, numa = vm.request, numa_view(vm.numa, floating)
    if numa is not None and is_windows(request.os):
        numa = replace(numa, sockets=1)  # its client editions use no more than two
    extras = extras_of(request)
    ports = max(gpu_ports(request.gpus), *_own_ports(ordered, request), 0)
    buses = extra_buses(ports, vm.numa, extras)
    spare = {position: buses.spare[port] for position, port in spare_ports_of_gpus(request.gpus).items()}
    gpu_buses = [spare.get(lease.index, first_gpu_bus(vm.numa) + lease.index) for lease in ordered]
    view = DomainView(
        name=vm.domain_name,
        uuid=vm.uuid,
        kvm=facts.kvm,
        memory_mib=request.memory_mib,
        hugepages_kib=request.hugepages_kib,
        vcpus=request.vcpus,
        cpu_weight=request.cpu_weight,
        cpu_period_us=PERIOD_US,
        cpu_quota_us=None if request.cpu_limit is None else quota_us(request.cpu_limit),
        cpu_mode=CpuMode.HOST_PASSTHROUGH if facts.kvm else CpuMode.MAXIMUM,
        maxphysaddr_passthrough=facts.kvm
        and window is not None
        and window > LARGE_WINDOW_GIB
        and version_of(facts.libvirt_version) >= _MAXPHYSADDR_SINCE,
        uefi=uefi_view(vm, facts, window_gib=window, nvram_folder=nvram_folder, variables=variables),
        tpm=tpm_view(vm, facts),
        windows=windows_view(facts, hyperv) if is_windows(request.os) else None,
        direct_kernel=direct_kernel,
        numa=numa,
        mmio_window_gib=window,
        expander_buses=expander_buses(vm.numa),
        root_ports=root_ports(ports, vm.numa, extras),
        scsi_bus=buses.scsi,
        disks=disk_views(request, disk, data_disks, buses),
        media=tuple(medium_views(request, seed_path, install_paths, answers_path)),
        nics=nic_views(vm, attachments, buses),
        hostdevs=tuple(_hostdevs(ordered, gpu_buses, request.display, facts)),
        display=display_view(request.display, buses.usb),
        serial_log_path=f"{log_folder}/{vm.domain_name}-serial.log",
        metadata=domain_metadata(vm, ordered),
    )
    for path, text in texts_of(view):
        _check_text(text, what=f"{path} of VM {request.name!r}")
    return view


def guest_bus_of(vm: Vm, interface: Interface) -> int:
    """The number of the bus that an interface is on in the guest of a new VM."""
    ports = gpu_ports(vm.request.gpus)
    return guest_bus(bus_of(interface, extra_buses(ports, vm.numa, extras_of(vm.request))), ports, vm.numa)


def extras_of(request: VmRequest) -> Extras:
    """The further devices of a VM, with spare ports as asked for, else a few: QEMU adds no port to a running guest."""
    first = () if request.disk is None else (request.disk.bus,)
    buses = (*first, *(disk.bus for disk in request.data_disks))
    spare = _SPARE_PORTS if request.spare_ports is None else request.spare_ports
    return Extras(
        has_scsi=DiskBus.SCSI in buses or has_scsi_seed(request),
        has_usb=request.display.has_picture,
        nics=port_count(request),
        disks=sum(one.bus in (None, DiskBus.VIRTIO) for one in request.data_disks),
        spare=max(
            spare, spare_ports_taken(request), *(port + 1 for port in spare_ports_of_gpus(request.gpus).values())
        ),
    )


def parse_pci_address(text: str) -> PciAddress:
    """Read `dddd:bb:dd.f`. Raises GuestError for anything else."""
    match = _PCI_ADDRESS.fullmatch(text)
    if match is None:
        raise GuestError(f"{text!r} is not a PCI address", hint="addresses look like 0000:41:00.4, in lower case")
    domain, bus, slot, function = (int(part, 16) for part in match.groups())
    return PciAddress(domain, bus, slot, function)


def _own_ports(leases: Sequence[Lease], request: VmRequest) -> list[int]:
    """The ports up to that of each GPU; an adopted VM has shares that its request does not count."""
    spare = spare_ports_of_gpus(request.gpus)
    return [lease.index + 1 for lease in leases if lease.index not in spare]


def _hostdevs(
    leases: Sequence[Lease], buses: Sequence[int], display: DisplayRequest, facts: HostFacts
) -> Iterator[HostdevView]:
    shown = shown_device(display, leases, facts)
    for number, (lease, bus) in enumerate(zip(leases, buses, strict=True)):
        yield from gpu_functions(lease.index, lease.share, bus, hostdev_display(display, is_shown=number == shown))


def gpu_functions(index: int, share: Share, bus: int, display: VgpuDisplay) -> Iterator[HostdevView]:
    """The host devices of one GPU behind a port. index: its position among the VM's."""
    devices = kind_of(share.sharing).guest_devices(share)
    for number, device in enumerate(devices):
        yield HostdevView(
            alias=f"ua-gpu{index}-{number}" if number else f"ua-gpu{index}",
            source=None if device.address is None else parse_pci_address(device.address),
            mdev_uuid=device.mdev_uuid,
            managed=device.managed,
            guest_bus=bus,
            guest_function=number,
            multifunction=number == 0 and len(devices) > 1,
            display=VgpuDisplay.OFF if number else display,
        )


def _gpu_of(lease: Lease, facts: HostFacts) -> Gpu:
    for gpu in facts.gpus:
        if gpu.address == lease.share.gpu:
            return gpu
    raise GuestError(
        f"lease {lease.id} is for GPU {lease.share.gpu}, which host {lease.host} does not have",
        context=[f"found: {gpu.address} {gpu.name or ''}".rstrip() for gpu in facts.gpus],
        hint=f"run `vgpuctl inspect-host {lease.host}`; PCI addresses move when cards are added or removed",
    )


def _check_text(text: str, *, what: str) -> None:
    """Refuse what XML 1.0 cannot carry or would change: control characters, surrogates, non-characters."""
    refused = _NOT_FOR_XML.search(text)
    if refused is not None:
        raise UsageError(
            f"{what} contains the character {refused[0]!a}, which cannot be written into a domain",
            hint="remove control characters and line ends",
        )
