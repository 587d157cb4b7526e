# SPDX-License-Identifier: Apache-2.0
"""Hosts, leases and requests for tests, made from the catalogue: `a40_host("gpu1")`, `lease_of(placement)`."""

from collections.abc import Sequence
from dataclasses import replace

from tests.unit.emulated_gpu import EmulatedGpu, with_audio
from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.agent.wire.memory import HugepageFacts, NumaNode
from vgpuctl.model.constraints import NO_CONSTRAINTS, Constraints
from vgpuctl.model.gpu_request import parse_gpu_request
from vgpuctl.model.guest_memory import GuestMemory
from vgpuctl.model.lease import Lease, LeaseState, Share
from vgpuctl.model.numa import Footprint
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.vm import VmRequest

GIB = 1024


def emulated_a40(address: str = "0000:41:00.0", sharing: str = "vf-profile") -> EmulatedGpu:
    """An A40 with its 32 VFs and no vGPU."""
    return EmulatedGpu(catalog.board("nvidia-a40"), address, sharing, vf_count=32)


def emulated_t4(address: str = "0000:3b:00.0") -> EmulatedGpu:
    """A T4, whose vGPUs are mdevs on the PF."""
    return EmulatedGpu(catalog.board("nvidia-t4"), address, "mdev")


def host_facts(
    gpus: Sequence[Gpu],
    *,
    hostname: str = "gpu1",
    cpus: int = 32,
    memory_mib: int = 256 * GIB,
    memory_available_mib: int | None = None,
    iommu_active: bool = True,
) -> HostFacts:
    """A host with these GPUs."""
    return HostFacts(
        hostname=hostname,
        boot_id="0f0f0f0f-0000-4000-8000-000000000001",
        kernel="6.8.0",
        kernel_command_line="quiet",
        operating_system="Debian GNU/Linux 12",
        python="3.11.2",
        cpus=cpus,
        memory_mib=memory_mib,
        memory_available_mib=memory_mib if memory_available_mib is None else memory_available_mib,
        numa_nodes=(NumaNode(0, f"0-{cpus - 1}", memory_mib),),
        iommu_active=iommu_active,
        kvm=True,
        libvirt_version="10.0.0",
        qemu_version="7.2.0",
        nvidia_driver="580.105.06",
        nvml_version="13.580.105.06",
        nvml_problem=None,
        gpus=tuple(gpus),
        read_at=0.0,
    )


def numa_host(
    name: str,
    *cards: int,
    nodes: int = 2,
    cpus: int = 16,
    memory_mib: int = 128 * GIB,
    pages: int = 0,
    threads: int = 1,
) -> HostCapacity:
    """A host with several NUMA nodes. cards: the node of each of its A40s.

    cpus, memory, pages of 1 GiB: of a node. threads: of each core, whose CPUs are far apart as on most servers.
    """
    gpus = [
        replace(emulated_a40(f"0000:{0x41 + 0x10 * index:02x}:00.0").facts(), numa_node=node)
        for index, node in enumerate(cards)
    ]
    facts = host_facts(gpus, hostname=name, cpus=cpus * nodes, memory_mib=memory_mib * nodes)
    pool = (HugepageFacts(1 << 20, pages, pages),) if pages else ()
    there = tuple(
        NumaNode(
            node,
            f"{node * cpus}-{(node + 1) * cpus - 1}",
            memory_mib,
            memory_mib - pages * GIB,
            pool,
            _cores(node * cpus, cpus, threads) if threads > 1 else (),
        )
        for node in range(nodes)
    )
    pools = (HugepageFacts(1 << 20, pages * nodes, pages * nodes),) if pages else ()
    return HostCapacity(name, replace(facts, numa_nodes=there, hugepages=pools))


def _cores(first: int, cpus: int, threads: int) -> tuple[str, ...]:
    cores = cpus // threads
    return tuple(",".join(str(first + core + cores * one) for one in range(threads)) for core in range(cores))


def taking(memory_mib: int, page_kib: int | None = None, *, vcpus: int = 0) -> Footprint:
    """The charge of a VM without a certain node."""
    return Footprint(GuestMemory(memory_mib, page_kib), vcpus)


def host(name: str, *gpus: Gpu | EmulatedGpu, cpus: int = 32, memory_mib: int = 256 * GIB) -> HostCapacity:
    """A host as the store knows it."""
    read = [gpu.facts() if isinstance(gpu, EmulatedGpu) else gpu for gpu in gpus]
    return HostCapacity(name, host_facts(read, hostname=name, cpus=cpus, memory_mib=memory_mib))


def a40_host(
    name: str = "gpu1", sharing: str = "vf-profile", *, vgpus: Sequence[str] = (), cards: int = 1
) -> HostCapacity:
    """A host with A40s; the first carries these types on its first VFs, unknown to the store."""
    gpus = [emulated_a40(f"0000:{0x41 + 0x10 * card:02x}:00.0", sharing) for card in range(cards)]
    for function, type_name in zip(gpus[0].functions, vgpus, strict=False):
        gpus[0].create(type_name, function)
    return host(name, *gpus)


def t4_host(name: str = "gpu1", *, vgpus: Sequence[str] = (), cards: int = 1) -> HostCapacity:
    """A host with T4s; the first carries these types, unknown to the store."""
    gpus = [emulated_t4(f"0000:{0x3B + 0x10 * card:02x}:00.0") for card in range(cards)]
    for number, type_name in enumerate(vgpus):
        gpus[0].create(type_name, f"00000000-0000-4000-8000-{number:012d}")
    return host(name, *gpus)


def whole_card(address: str = "0000:81:00.0", board: str = "nvidia-geforce-rtx-3090") -> Gpu:
    """A card with its audio function, for passthrough."""
    return with_audio(EmulatedGpu(catalog.board(board), address, "passthrough").facts())


def passthrough_host(name: str = "gpu1", *, board: str = "nvidia-geforce-rtx-3090", cards: int = 1) -> HostCapacity:
    """A host with whole cards."""
    return host(name, *(whole_card(f"0000:{0x81 + 0x10 * card:02x}:00.0", board) for card in range(cards)))


def intel_vf_host(name: str = "gpu1", *, vfs: int = 7, board: str = "intel-flex-170") -> HostCapacity:
    """A host with an Intel GPU whose VFs are enabled."""
    return host(name, EmulatedGpu(catalog.board(board), "0000:9a:00.0", "vf", vf_count=vfs))


def vm(
    *gpus: str,
    name: str = "web-1",
    on: str | None = None,
    vcpus: int = 2,
    memory_mib: int = 2 * GIB,
    constraints: Constraints = NO_CONSTRAINTS,
) -> VmRequest:
    """A VM that asks for these GPUs, as a user writes them."""
    requests = tuple(parse_gpu_request(text) for text in gpus)
    return VmRequest(name, "acme", requests, vcpus=vcpus, memory_mib=memory_mib, host=on, constraints=constraints)


def lease(
    on: str, held: Share, *, vm_name: str = "web-0", state: LeaseState = LeaseState.RUNNING, index: int = 0
) -> Lease:
    """A lease of one share."""
    identity = f"{on}/{held.device}/{vm_name}"
    return Lease(identity, f"uuid-of-{vm_name}", "acme", vm_name, on, index, held, state)


def leases_of(placement: Placement, *, vm_name: str = "web-0") -> list[Lease]:
    """The leases a use case would store for a placement; its mdevs have no UUID yet."""
    return [lease(placement.host, one, vm_name=vm_name, index=index) for index, one in enumerate(placement.shares)]
