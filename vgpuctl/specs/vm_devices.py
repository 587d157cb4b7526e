# SPDX-License-Identifier: Apache-2.0
"""The fields of a VM that its virtual machine is made of: firmware, disks, network interfaces, display and ports."""

from vgpuctl.catalog.guest_os import GUEST_OSES, parse_guest_os
from vgpuctl.errors import UsageError
from vgpuctl.model.disk import DataDisk, DiskBus, DiskCache
from vgpuctl.model.display import DisplayKind, VgpuDisplay, VideoModel
from vgpuctl.model.nic import MOST_NICS, NicModel, NicRequest
from vgpuctl.model.switch import Switch
from vgpuctl.model.units import SIZE_HINT, exact_mib, parse_mib
from vgpuctl.model.vgpu_params import parse_vgpu_param, show_vgpu_param
from vgpuctl.model.vm import Firmware, VmRequest, check_name, named_network
from vgpuctl.specs.compact import compact
from vgpuctl.specs.field import Choice, Field, Repeated, Section, Table, Text, Truth, Type, Whole

_NAME = Text(check_name)
SIZE = Text(parse_mib, exact_mib, hint=SIZE_HINT)


def _parse_network(text: str, /, *, what: str) -> str | None:
    return named_network(text)


MOST_DATA_DISKS, MOST_SATA_DISKS = 16, 2
MOST_SERIAL = 20
"""Characters of a serial number in virtio-blk (VIRTIO_BLK_ID_BYTES, linux/virtio_blk.h); QEMU cuts off the others."""
_IOPS = Whole(1, 10_000_000)
_MBPS = Whole(1, 1_000_000)
_BANDWIDTH = Whole(1, 400_000)


def _disk_fields(section: str = "", flag: str | None = None) -> tuple[Field, ...]:
    """The fields of every disk. section: `disk.` for the first one. flag: the beginning of its flags."""

    def one(key: str, kind: Type, text: str, metavar: str | None = None, example: str = "") -> Field:
        name = None if flag is None else f"{flag}-{key}"
        return Field(section + key, kind, text, flag=name, metavar=metavar if flag else None, example=example)

    return (
        one("bus", Choice(DiskBus), "Bus of the disk; as the operating system's profile says without it"),
        one("cache", Choice(DiskCache), "QEMU's cache mode of the disk"),
        one("iops", _IOPS, "Most operations a second", "NUMBER", "5000"),
        one("mbps", _MBPS, "Most megabytes a second", "MB/S", "200"),
    )


DATA_DISK = Table(
    "data_disks",
    DataDisk,
    (
        Field(
            "name",
            _NAME,
            "Name of the disk, of which the tenant has one; its serial number in the guest, at most 20 characters",
            is_required=True,
        ),
        Field("size", SIZE, "Size; a disk that the tenant kept needs none", "size_mib", example="100GiB"),
        Field("pool", Text(), "libvirt storage pool of the disk"),
        *_disk_fields(),
        Field("keep", Truth(), "Keep the disk when its VM is deleted"),
    ),
)
NIC = Table(
    "nics",
    NicRequest,
    (
        Field("network", _NAME, "Network of the tenant, or else a libvirt network of the host", is_required=True),
        Field("model", Choice(NicModel), "Model; as the operating system's profile says without it"),
        Field("security_groups", Text(), "Security group of the tenant, in an OVN network", is_list=True),
        Field("bandwidth_mbps", _BANDWIDTH, "Limit of its bandwidth in each direction, in Mbit/s"),
    ),
)

DEVICE_FIELDS = (
    Field(
        "disk.size",
        SIZE,
        "Size of the disk; no disk without it and without a base image",
        "disk.size_mib",
        "--disk",
        metavar="SIZE",
        example="40GiB",
    ),
    Field(
        "disk.base_image",
        Text(),
        "Base image of the disk, by its name in `list-images`; an empty disk without it",
        flag="--base-image",
        metavar="IMAGE",
        example="debian-12",
    ),
    Field("disk.pool", Text(), "libvirt storage pool of the disk", flag="--storage-pool", metavar="NAME"),
    *_disk_fields("disk.", "--disk"),
    Field(
        "data_disks",
        compact(DATA_DISK),
        "One more disk: NAME,size=SIZE[,pool=…][,bus=…][,cache=…][,iops=…][,mbps=…][,keep]",
        flag="--data-disk",
        metavar="DISK",
        is_list=True,
        repeated=Repeated.REFUSED,
        example="[{name: data, size: 100GiB, keep: true}]",
    ),
    Field(
        "network",
        Text(_parse_network),
        "Network of the tenant, or else a libvirt network of the host; `none` for no network",
        flag="--network",
        metavar="NAME",
    ),
    Field(
        "security_groups",
        Text(),
        "Security group of the tenant for the port, in an OVN network; the group `default` without it",
        flag="--security-group",
        metavar="NAME",
        is_list=True,
        example="[web]",
    ),
    Field(
        "bandwidth_mbps",
        _BANDWIDTH,
        "Limit of the port's bandwidth in each direction, in Mbit/s",
        flag="--bandwidth",
        metavar="MBIT/S",
        example="1000",
    ),
    Field(
        "nics",
        compact(NIC),
        "One more network interface: NETWORK[,model=…][,security_groups=…][,bandwidth_mbps=…]",
        flag="--nic",
        metavar="NIC",
        is_list=True,
        repeated=Repeated.COUNTED,
        example="[{network: storage}]",
    ),
    Field("nic_model", Choice(NicModel), "Model of the first network interface", flag="--nic-model"),
    Field(
        "os",
        Text(parse_guest_os),
        f"Operating system of the guest, whose profile sets what it needs: {', '.join(sorted(GUEST_OSES))}",
        flag="--os",
        metavar="NAME",
        example="ubuntu-24.04",
    ),
    Field(
        "firmware",
        Choice(Firmware),
        "Firmware; as the operating system's profile says, else bios",
        flag="--firmware",
        example="uefi",
    ),
    Field("secure_boot", Choice(Switch), "Secure Boot with Microsoft's keys", flag="--secure-boot", example="on"),
    Field("tpm", Choice(Switch), "A virtual TPM 2.0", flag="--tpm", example="on"),
    Field("display.kind", Choice(DisplayKind), "Picture of the console, for `vgpuctl view`", flag="--display"),
    Field("display.video", Choice(VideoModel), "Emulated graphics adapter", flag="--video"),
    Field("display.vgpu", Choice(VgpuDisplay), "Show the vGPU's picture in the console", flag="--vgpu-display"),
    Field(
        "vgpu_params",
        Text(parse_vgpu_param, show_vgpu_param),
        "Parameter of the VM's vGPUs or VFs, beside those of the host's layout: enable_uvm=1, exec_quantum_ms=20",
        flag="--vgpu-param",
        metavar="NAME=VALUE",
        is_list=True,
        is_set=True,
        example="[frame_rate_limiter=0]",
    ),
    Field(
        "spare_ports",
        Whole(0, 16),
        "PCIe ports for devices that are attached while the VM runs; default: 4",
        flag="--spare-ports",
        metavar="NUMBER",
        example="4",
    ),
    Field(
        "kernel.image",
        Text(),
        "Kernel to boot directly, by its name in `list-images`",
        "direct_kernel.kernel",
        "--kernel",
        metavar="IMAGE",
        is_required=True,
        example="debian-12-kernel",
    ),
    Field(
        "kernel.initrd",
        Text(),
        "Initial RAM disk of the kernel, by its name in `list-images`",
        "direct_kernel.initrd",
        "--initrd",
        metavar="IMAGE",
        example="debian-12-initrd",
    ),
    Field(
        "kernel.command_line",
        Text(),
        "Command line of the kernel",
        "direct_kernel.command_line",
        "--kernel-args",
        without_placement="the guest's kernel reads it",
        metavar="TEXT",
        example="console=ttyS0",
    ),
)
DEVICE_SECTIONS = (
    Section("disk", "The disk", opened_by=("size", "base_image")),
    Section("display", "What the VM shows"),
    Section("kernel", "Boot a kernel directly, without a boot loader", "direct_kernel", opened_by=("image",)),
)


def check_devices(request: VmRequest) -> None:
    """Refuse devices that no virtual machine has room for, and names that stand twice. Raises UsageError."""
    names = [disk.name for disk in request.data_disks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"two data disks have the name {twice[0]}", hint="give each disk a name of its own")
    long = next((one for one in request.data_disks if one.size_mib is not None and len(one.name) > MOST_SERIAL), None)
    if long is not None:
        raise UsageError(
            f"the name of data disk {long.name!a} has {len(long.name)} characters, and is its serial number",
            hint=f"a serial number has at most {MOST_SERIAL} characters in the guest",
        )
    first = () if request.disk is None else (request.disk.bus,)
    buses = [bus or DiskBus.VIRTIO for bus in (*first, *(disk.bus for disk in request.data_disks))]
    if buses.count(DiskBus.SATA) > MOST_SATA_DISKS:
        raise UsageError(
            f"{buses.count(DiskBus.SATA)} disks on sata, where {MOST_SATA_DISKS} have room beside the media",
            hint="use bus virtio or scsi",
        )
    if len(names) > MOST_DATA_DISKS or len(request.nics) > MOST_NICS:
        raise UsageError(f"at most {MOST_DATA_DISKS} data disks and {MOST_NICS} more network interfaces fit one VM")
