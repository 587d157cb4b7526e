# SPDX-License-Identifier: Apache-2.0
"""The views whose XML lies in tests/data/domains/NAME.xml: together they take every branch of the template."""

from dataclasses import replace

from vgpuctl.agent.wire.facts import Gpu, GuestFirmware, HostFacts
from vgpuctl.agent.wire.memory import NumaNode
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.guests.domain.disk_view import BackingView, DiskView
from vgpuctl.guests.domain.view import DomainView, domain_view
from vgpuctl.model.disk import DataDisk, DiskBus, DiskCache, DiskRequest, InstallRequest
from vgpuctl.model.display import DisplayKind, DisplayRequest, VgpuDisplay, VideoModel
from vgpuctl.model.gpu_request import parse_gpu_request
from vgpuctl.model.guest_driver import DriverSource, GuestDriver
from vgpuctl.model.image import ImageFormat
from vgpuctl.model.lease import Lease, LeaseState, Share
from vgpuctl.model.network import Attachment, Backend, Network, NetworkRequest, NetworkState, Port
from vgpuctl.model.nic import NicModel, NicRequest
from vgpuctl.model.numa import GuestNuma, NumaCell
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import CloudInit, DirectKernel, Firmware, Vm, VmRequest, VmState

GIB = 2**30
MIB = 2**20
VM_UUID = "6f1f0a52-5a0c-4a3e-9d8c-0b6f5b0f6a01"
MDEV_UUID = "c73f1fa6-489e-4834-9476-d70dabd98c40"
A40_BARS = (16 * MIB, 64 * GIB, 32 * MIB)
H100_BARS = (16 * MIB, 128 * GIB, 32 * MIB)
T4_BARS = (16 * MIB, 256 * MIB, 32 * MIB)


def gpu(address: str, *, numa_node: int | None = 0, bars: tuple[int, ...] = A40_BARS) -> Gpu:
    """Make a GPU of which only what the view reads matters."""
    return Gpu(
        address=address,
        vendor_id="10de",
        device_id="2235",
        subsystem_id=None,
        pci_class="0x030200",
        name="NVIDIA A40",
        uuid=None,
        driver="nvidia",
        iommu_group=None,
        iommu_group_members=(),
        numa_node=numa_node,
        local_cpus=None,
        companions=(),
        sharing=(),
        total_vfs=0,
        vfs=(),
        types=(),
        mdevs=(),
        bars_bytes=bars,
        reset_methods=(),
        memory_mib=None,
        mig_mode=None,
    )


def facts(*gpus: Gpu, kvm: bool = True, numa_nodes: int = 1, libvirt_version: str | None = "10.0.0") -> HostFacts:
    """Make a host with 8 CPUs and 16 GiB in each NUMA node."""
    return HostFacts(
        hostname="gpu1",
        boot_id="b",
        kernel="6.8.0",
        kernel_command_line="",
        operating_system="Ubuntu 24.04",
        python="3.12.3",
        cpus=8 * numa_nodes,
        memory_mib=16384 * numa_nodes,
        memory_available_mib=16384 * numa_nodes,
        numa_nodes=tuple(NumaNode(node, f"{node * 8}-{node * 8 + 7}", 16384) for node in range(numa_nodes)),
        iommu_active=True,
        kvm=kvm,
        libvirt_version=libvirt_version,
        qemu_version="8.2.2",
        nvidia_driver=None,
        nvml_version=None,
        nvml_problem=None,
        gpus=gpus,
        read_at=0.0,
    )


REQUEST = VmRequest(name="web-1", tenant="acme", network=None)


def vm(request: VmRequest = REQUEST) -> Vm:
    """Make the VM of a request on host gpu1."""
    return Vm(uuid=VM_UUID, request=request, host="gpu1", state=VmState.CREATING)


def on(request: VmRequest, *cells: NumaCell, gpu_cells: tuple[int, ...] = ()) -> Vm:
    """Make the VM of a request that has this of its host's NUMA nodes."""
    return replace(vm(request), numa=GuestNuma(cells, has_vnuma=len(cells) > 1, gpu_cells=gpu_cells))


def leases(*shares: Share) -> list[Lease]:
    """Make the leases of these shares, in order."""
    return [
        Lease(
            id=f"lease-{index}",
            vm_uuid=VM_UUID,
            tenant="acme",
            vm_name="web-1",
            host="gpu1",
            index=index,
            share=share,
            state=LeaseState.BUILT,
        )
        for index, share in enumerate(shares)
    ]


def whole(address: str, *companions: str) -> Share:
    """Make a whole card."""
    return Share(address, Sharing.PASSTHROUGH, "passthrough", address, companions=companions)


def vgpu(address: str, sharing: Sharing, function: str, mdev_uuid: str | None = None) -> Share:
    """Make an A40-8Q."""
    return Share(address, sharing, "A40-8Q", function, type_id="nvidia-562", mdev_uuid=mdev_uuid, framebuffer_mib=8192)


FULL_REQUEST = replace(
    REQUEST,
    gpus=(parse_gpu_request("A40-8Q"),),
    vcpus=4,
    memory_mib=8192,
    network="default",
    firmware=Firmware.UEFI,
    cloud_init=CloudInit(
        ssh_authorized_keys=("ssh-ed25519 AAAA me",), user_data=SecretText.of("#cloud-config\npassword: secret\n")
    ),
)
A40 = gpu("0000:41:00.0")
NETWORK = Network(
    "8d0c6f0e-5a1b-4a44-9d0b-0e0c0d0e0f00",
    NetworkRequest("front", "acme", "10.0.0.0/24", host="gpu1"),
    NetworkState.CREATED,
)
OVN_NETWORK = replace(NETWORK, request=replace(NETWORK.request, backend=Backend.OVN, host=None))
PORT = Port("8d0c6f0e-5a1b-4a44-9d0b-0e0c0d0e0f01", NETWORK.id, VM_UUID, 0, "52:00:00:00:00:07", "10.0.0.7")
_DISK = DiskView("/var/lib/libvirt/images/acme.web-1.qcow2")
_SEED = "/var/lib/libvirt/images/acme.web-1-seed.iso"
_PINNED = replace(REQUEST, vcpus=2, memory_mib=4096)
_FLOATING = {0: tuple(range(2, 8)), 1: tuple(range(10, 16))}
_FULL_VGPU = Share("0000:41:00.0", Sharing.MDEV, "A40-48Q", "0000:41:00.0", mdev_uuid=MDEV_UUID, framebuffer_mib=49152)
_TWO_MDEVS = (("0000:41:00.4", MDEV_UUID), ("0000:41:00.5", "c73f1fa6-489e-4834-9476-d70dabd98c41"))
SECOND_PORT = replace(PORT, id="8d0c6f0e-5a1b-4a44-9d0b-0e0c0d0e0f02", position=1)


def _shows(kind: DisplayKind, video: VideoModel, vgpu: VgpuDisplay = VgpuDisplay.OFF) -> VmRequest:
    return replace(REQUEST, display=DisplayRequest(kind, video, vgpu))


CASES: dict[str, DomainView] = {
    "no_gpu_kvm": domain_view(vm(), [], facts()),
    "no_gpu_tcg": domain_view(vm(), [], facts(kvm=False)),
    "hugepages": domain_view(vm(replace(REQUEST, hugepages_kib=2048)), [], facts()),
    "disk_seed_network": domain_view(vm(replace(REQUEST, network="default")), [], facts(), disk=_DISK, seed_path=_SEED),
    "seed_of_a_linux_profile": domain_view(
        vm(replace(REQUEST, os="debian-12", guest_driver=GuestDriver(DriverSource.IMAGE))),
        [],
        facts(),
        disk=_DISK,
        seed_path=_SEED,
    ),
    "tenant_network": domain_view(
        vm(replace(REQUEST, network="front", bandwidth_mbps=100)), [], facts(), attachments=[Attachment(NETWORK, PORT)]
    ),
    "tenant_network_by_ovn": domain_view(
        vm(replace(REQUEST, network="front", security_groups=("web",))),
        [],
        facts(),
        attachments=[Attachment(OVN_NETWORK, PORT)],
    ),
    "several_interfaces": domain_view(
        vm(
            replace(
                REQUEST,
                network="front",
                nic_model=NicModel.E1000E,
                nics=(
                    NicRequest("inner", bandwidth_mbps=100, security_groups=("web",)),
                    NicRequest("default", NicModel.E1000E, bandwidth_mbps=100, position=3),
                    NicRequest("default", spare_port=1),
                ),
            )
        ),
        [],
        facts(),
        attachments=[
            Attachment(NETWORK, PORT),
            Attachment(OVN_NETWORK, SECOND_PORT),
        ],
    ),
    "cpu_weight_and_limit": domain_view(vm(replace(REQUEST, cpu_weight=200, cpu_limit=25)), [], facts()),
    "kernel_alone": domain_view(
        vm(replace(REQUEST, direct_kernel=DirectKernel("linux"))),
        [],
        facts(),
        direct_kernel=DirectKernel("/boot/vmlinuz"),
    ),
    "kernel_initrd_command_line": domain_view(
        vm(replace(REQUEST, direct_kernel=DirectKernel("linux", "initrd", "console=ttyS0 root=/dev/vda"))),
        [],
        facts(),
        disk=_DISK,
        direct_kernel=DirectKernel("/boot/vmlinuz", "/boot/initrd", "console=ttyS0 root=/dev/vda"),
    ),
    "disk_on_a_raw_base": domain_view(
        vm(),
        [],
        facts(),
        disk=DiskView("/var/lib/libvirt/images/acme.web-1.qcow2", BackingView("/srv/debian.img", ImageFormat.RAW)),
    ),
    "uefi_no_gpu": domain_view(vm(replace(REQUEST, firmware=Firmware.UEFI)), [], facts(), disk=_DISK),
    "passthrough_with_companions": domain_view(
        vm(), leases(whole("0000:41:00.0", "0000:41:00.2", "0000:41:00.1")), facts(A40)
    ),
    "uefi_only_secure_builds": domain_view(
        vm(replace(REQUEST, firmware=Firmware.UEFI)),
        [],
        replace(facts(), guest_firmwares=(GuestFirmware("40-sb.json", ("requires-smm", "secure-boot")),)),
        disk=_DISK,
    ),
    "passthrough_uefi_window": domain_view(
        vm(replace(REQUEST, firmware=Firmware.UEFI)), leases(whole("0000:41:00.0")), facts(A40), disk=_DISK
    ),
    "passthrough_large_bars": domain_view(
        vm(replace(REQUEST, firmware=Firmware.UEFI)),
        leases(*(whole(f"0000:{bus:02x}:00.0") for bus in range(0x10, 0x18))),
        facts(*(gpu(f"0000:{bus:02x}:00.0", bars=H100_BARS) for bus in range(0x10, 0x18))),
    ),
    "passthrough_nine_cards": domain_view(
        vm(),
        leases(*(whole(f"0000:{bus:02x}:00.0") for bus in range(0x10, 0x19))),
        facts(*(gpu(f"0000:{bus:02x}:00.0", bars=T4_BARS) for bus in range(0x10, 0x19))),
    ),
    "mdev": domain_view(
        vm(FULL_REQUEST),
        leases(vgpu("0000:41:00.0", Sharing.MDEV, "0000:41:00.0", MDEV_UUID)),
        facts(A40),
        disk=_DISK,
        seed_path=_SEED,
    ),
    "mdev_full_size": domain_view(vm(), leases(_FULL_VGPU), facts(A40)),
    "mdev_on_vf": domain_view(
        vm(), leases(vgpu("0000:41:00.0", Sharing.MDEV_VF, "0000:41:00.4", MDEV_UUID)), facts(A40)
    ),
    "vf_profile": domain_view(vm(), leases(vgpu("0000:41:00.0", Sharing.VF_PROFILE, "0000:41:00.4")), facts(A40)),
    "vf": domain_view(
        vm(), leases(Share("0000:41:00.0", Sharing.VF, "vf", "0000:41:00.1")), facts(gpu("0000:41:00.0", bars=T4_BARS))
    ),
    "several_kinds": domain_view(
        vm(),
        leases(
            vgpu("0001:c1:00.0", Sharing.VF_PROFILE, "0001:c1:1f.7"),
            whole("0000:41:00.0", "0000:41:00.1"),
            vgpu("0000:81:00.0", Sharing.MDEV, "0000:81:00.0", MDEV_UUID),
        ),
        facts(A40, gpu("0001:c1:00.0"), gpu("0000:81:00.0")),
    ),
    "numa_pinned": domain_view(
        on(_PINNED, NumaCell(1, 2, 4096, (8, 11))),
        leases(whole("0000:41:00.0")),
        facts(gpu("0000:41:00.0", numa_node=1), numa_nodes=2),
        floating=_FLOATING,
    ),
    "numa_floating": domain_view(on(_PINNED, NumaCell(1, 2, 4096)), [], facts(numa_nodes=2), floating=_FLOATING),
    "vnuma": domain_view(
        on(
            replace(_PINNED, vcpus=4, memory_mib=8192, hugepages_kib=2048, firmware=Firmware.UEFI),
            NumaCell(0, 2, 4096, (0, 1)),
            NumaCell(1, 2, 4096, (8, 9)),
            gpu_cells=(0, 1, 1),
        ),
        leases(whole("0000:41:00.0", "0000:41:00.1"), whole("0000:81:00.0"), whole("0000:82:00.0")),
        facts(gpu("0000:41:00.0"), *(gpu(f"0000:{bus}:00.0", numa_node=1) for bus in (81, 82)), numa_nodes=2),
        floating=_FLOATING,
    ),
    "vnuma_floating": domain_view(
        on(replace(_PINNED, vcpus=3, memory_mib=20480), NumaCell(0, 1, 8192), NumaCell(1, 2, 12288)),
        [],
        facts(numa_nodes=2),
        floating=_FLOATING,
    ),
    "disks_on_every_bus": domain_view(
        vm(
            replace(
                REQUEST,
                disk=DiskRequest(bus=DiskBus.SCSI, cache=DiskCache.NONE, iops=5000, mbps=200),
                data_disks=(
                    DataDisk("fast"),
                    DataDisk("large", bus=DiskBus.SCSI, mbps=100),
                    DataDisk("old", bus=DiskBus.SATA, iops=100),
                    DataDisk("second", bus=DiskBus.VIRTIO),
                ),
                install=InstallRequest("windows", "virtio-win"),
                spare_ports=2,
            )
        ),
        [],
        facts(),
        disk=_DISK,
        data_disks={name: DiskView(f"/images/{name}.qcow2") for name in ("fast", "large", "old", "second")},
        seed_path=_SEED,
        install_paths=("/images/windows.iso", "/images/virtio-win.iso"),
    ),
    "display_of_a_bios_guest": domain_view(vm(_shows(DisplayKind.VNC, VideoModel.VGA)), [], facts()),
    "display_spice": domain_view(
        vm(replace(_shows(DisplayKind.SPICE, VideoModel.QXL), firmware=Firmware.UEFI)), [], facts()
    ),
    "display_beside_the_vgpu": domain_view(
        vm(_shows(DisplayKind.VNC, VideoModel.BOCHS, VgpuDisplay.ON)),
        leases(vgpu("0000:41:00.0", Sharing.MDEV, "0000:41:00.0", MDEV_UUID)),
        facts(A40),
    ),
    "display_of_the_first_vgpu_alone": domain_view(
        vm(_shows(DisplayKind.VNC, VideoModel.NONE, VgpuDisplay.RAMFB)),
        leases(whole("0000:42:00.0"), *(vgpu("0000:41:00.0", Sharing.MDEV_VF, *one) for one in _TWO_MDEVS)),
        facts(A40, gpu("0000:42:00.0")),
    ),
    "characters_that_need_escaping": domain_view(
        vm(
            replace(
                REQUEST,
                tenant="a<b>&c",
                name="""x"y'z""",
                network="""net<'">&""",
            )
        ),
        [],
        facts(),
        disk=DiskView("/images/<a>&'\".qcow2", BackingView("/images/<b>&'\".img", ImageFormat.QCOW2)),
        direct_kernel=DirectKernel("/boot/a&b", "/boot/<c>", """x="<&>'" ]]> {{ 7 * 7 }} é 漢"""),
        seed_path="/images/&seed;.iso",
    ),
}
