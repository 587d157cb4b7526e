# SPDX-License-Identifier: Apache-2.0
"""Values the store tests work with, every field set."""

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import replace

from vgpuctl.agent.wire.facts import (
    CompanionFunction,
    Gpu,
    Holder,
    HostFacts,
    Mdev,
    VgpuType,
    VirtualFunction,
)
from vgpuctl.agent.wire.memory import NumaNode
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.disk import DiskRequest
from vgpuctl.model.gpu_request import GpuRequest, parse_gpu_request
from vgpuctl.model.lease import Lease, LeaseState, Share
from vgpuctl.model.network import Network, NetworkRequest, NetworkState
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import CloudInit, DirectKernel, Firmware, Vm, VmRequest, VmState
from vgpuctl.store.database import StoreConnection
from vgpuctl.store.schema import VERSION_TABLE
from vgpuctl.store.session import Session
from vgpuctl.store.store import Store


def some_uuid() -> str:
    """A new id."""
    return str(uuid.uuid4())


def full_request(name: str = "web-1", tenant: str = "acme") -> VmRequest:
    """A request with every field set."""
    return VmRequest(
        name,
        tenant,
        gpus=(parse_gpu_request("2*A40-8Q"), parse_gpu_request("memory>=16GiB,series=Q"), GpuRequest("passthrough")),
        vcpus=6,
        memory_mib=8192,
        disk=DiskRequest(20480, "debian-12.qcow2", "fast"),
        network=None,
        firmware=Firmware.UEFI,
        cloud_init=CloudInit(
            ("ssh-ed25519 AAAA ü",), SecretText.of("#cloud-config\nx: '<\"&'\n"), SecretText.of("version: 2\n"), "web-1"
        ),
        direct_kernel=DirectKernel("/boot/vmlinuz", "/boot/initrd", "console=ttyS0 quiet"),
        host="gpu1",
        autostart=True,
        hugepages_kib=2048,
    )


def vm(name: str = "web-1", tenant: str = "acme", host: str = "gpu1") -> Vm:
    """A VM that is being created."""
    return Vm(some_uuid(), VmRequest(name, tenant), host, VmState.CREATING)


def network(
    tenant: str = "acme", cidr: str = "10.0.0.0/24", *, dns: tuple[str, ...] = (), isolated: bool = False
) -> Network:
    """A network of a tenant on host gpu1, ready."""
    request = NetworkRequest("front", tenant, cidr, dns, isolated=isolated, host="gpu1")
    return Network(some_uuid(), request, NetworkState.CREATED)


def vf_share(function: str = "0000:41:00.4") -> Share:
    """A vendor-specific VFIO share."""
    return Share("0000:41:00.0", Sharing.VF_PROFILE, "A40-8Q", function, type_id="558", framebuffer_mib=8192)


def mdev_share(mdev_uuid: str) -> Share:
    """A mediated device on the physical function, with every field set."""
    return Share(
        "0000:41:00.0",
        Sharing.MDEV,
        "A40-8Q",
        "0000:41:00.0",
        type_id="nvidia-558",
        mdev_uuid=mdev_uuid,
        framebuffer_mib=8192,
        companions=("0000:41:00.1", "0000:41:00.2"),
        numa_node=1,
        first_drivers=(("0000:41:00.0", "nvidia"), ("0000:41:00.1", "snd_hda_intel")),
    )


def lease(
    held: Share | None = None,
    *,
    vm_uuid: str | None = None,
    host: str = "gpu1",
    index: int = 0,
    state: LeaseState = LeaseState.RESERVED,
) -> Lease:
    """A lease of tenant acme."""
    return Lease(some_uuid(), vm_uuid or some_uuid(), "acme", "web-1", host, index, held or vf_share(), state)


def host_facts(hostname: str = "gpu1", *, gpus: int = 2) -> HostFacts:
    """A host with A40s, 32 VFs and 20 types each."""
    return HostFacts(
        hostname=hostname,
        boot_id="5a8e2f0e-4d0f-4c5e-8f0e-0e0c6a0d3a11",
        kernel="6.1.0-18-amd64",
        kernel_command_line="BOOT_IMAGE=/vmlinuz intel_iommu=on",
        operating_system="Debian GNU/Linux 12 (bookworm)",
        python="3.11.2",
        cpus=64,
        memory_mib=515_000,
        memory_available_mib=402_111,
        numa_nodes=(NumaNode(0, "0-31", 257_000), NumaNode(1, "32-63", 258_000)),
        iommu_active=True,
        kvm=True,
        libvirt_version="10.0.0",
        qemu_version="7.2.9",
        nvidia_driver="550.90.05",
        nvml_version=None,
        nvml_problem="Driver/library version mismatch",
        gpus=tuple(_gpu(0x41 + number) for number in range(gpus)),
        read_at=1_700_000_000.125,
    )


def _gpu(bus: int) -> Gpu:
    address = f"0000:{bus:02x}:00.0"
    functions = tuple(
        VirtualFunction(
            f"0000:{bus:02x}:{(number + 4) // 8:02x}.{(number + 4) % 8}", number, "nvidia", 100 + number, "558"
        )
        for number in range(32)
    )
    held = replace(functions[3], mdev_uuid=None, holders=(Holder(4711, "qemu-system-x86", some_uuid()),))
    return Gpu(
        address=address,
        vendor_id="10de",
        device_id="2235",
        subsystem_id="10de:145a",
        pci_class="030200",
        name="NVIDIA A40",
        uuid="GPU-5d1a1f2c",
        driver="nvidia",
        iommu_group=27,
        iommu_group_members=(address, f"0000:{bus:02x}:00.1"),
        numa_node=None,
        local_cpus="0-31",
        companions=(CompanionFunction(f"0000:{bus:02x}:00.1", "040300", None, 27),),
        sharing=("passthrough", "vf-profile"),
        total_vfs=32,
        vfs=(*functions[:3], held, *functions[4:]),
        types=tuple(VgpuType(str(550 + n), f"A40-{n}Q", f"NVIDIA A40-{n}Q", 1024 * n, 48, 7) for n in range(1, 21)),
        mdevs=(Mdev(some_uuid(), address, "nvidia-558", None),),
        bars_bytes=(16_777_216, 68_719_476_736, 33_554_432),
        reset_methods=("flr", "bus"),
        memory_mib=46068,
        mig_mode=None,
        problems=("ECC says: 'ü' \u2028 \\ \"",),
    )


def reserve(session: Session, one: Lease) -> None:
    """Reserve one lease on its host as it is now."""
    session.reserve(one.host, session.generation(one.host), [one])


@contextlib.contextmanager
def bare(store: Store) -> Iterator[StoreConnection]:
    """A transaction on the store's database as another program has it, committed at the end of the block."""
    with store._database.transaction(f"SELECT * FROM {VERSION_TABLE}") as connection:
        yield connection
        connection.commit()


def fill(store: Store) -> None:
    """Something of each kind."""
    with store.transaction() as session:
        session.add_tenant("acme")
        session.add_vm(vm())
        session.save_facts("gpu1", host_facts(), 1.0)
        session.reserve("gpu1", 0, [lease()])
