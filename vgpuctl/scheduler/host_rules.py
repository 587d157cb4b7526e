# SPDX-License-Identifier: Apache-2.0
"""Requirements on the host as a whole: the wanted name, vCPUs, memory or huge pages, and a GPU at all."""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.model.distribution import describe_missing_mount, mount_huge_pages
from vgpuctl.model.guest_memory import format_page_size
from vgpuctl.model.host_parts import HostPart, missing_parts, parts_needed
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.units import format_mib
from vgpuctl.model.vm import HostOfNetwork, VmRequest
from vgpuctl.scheduler.cell_choice import CellReach, choose_cells, may_take
from vgpuctl.scheduler.guest_place import need_of, rooms_of
from vgpuctl.scheduler.host_cells import ORDINARY, CellBooks, books_of, host_memory_mib, host_pools, unmounted_sizes
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.gate import refuse_closed_host, refuse_unread_host
from vgpuctl.sharing.offer import Refusal

_CODES = {
    HostPart.UEFI: Code.HOST_FIRMWARE,
    HostPart.SECURE_UEFI: Code.HOST_FIRMWARE,
    HostPart.TPM: Code.HOST_TPM,
    HostPart.CHASSIS: Code.HOST_CHASSIS,
}


def refuse_host(request: VmRequest, capacity: HostCapacity, cells: Sequence[CellBooks]) -> Refusal | None:
    """Say why a host cannot run the VM, whatever its GPUs are; None when it can.

    cells: with what is promised of them. One VM cannot have more vCPUs than the host has CPUs, whatever the ratio.
    """
    facts = capacity.facts
    if request.host is not None and request.host != capacity.name:
        host = request.host
        return Refusal(
            Code.HOST_WANTED_OTHER, host.why if isinstance(host, HostOfNetwork) else f"the VM must run on {host}"
        )
    closed = refuse_closed_host(capacity.rules) or refuse_unread_host(facts)
    if closed is not None:
        return closed
    missing = [label for label in request.constraints.required if label not in capacity.constraints.labels]
    if missing and not request.gpus:
        return Refusal(
            Code.HOST_LABELS,
            f"it has no label {', '.join(f'{key}={value}' for key, value in missing)}",
            "ask for other labels, or give it this one in the inventory's vgpu_placing",
        )
    refusal = _refuse_size(request, facts, cells) or _refuse_unmounted(request, facts) or _refuse_parts(request, facts)
    if refusal is not None:
        return refusal
    refusal = _refuse_pool(request, capacity, cells[0]) if len(cells) == 1 else _refuse_cells(request, cells)
    if refusal is not None:
        return refusal
    if request.gpus and not facts.gpus:
        return Refusal(Code.NO_GPU, "the host has no GPU")
    return None


def _refuse_size(request: VmRequest, facts: HostFacts, cells: Sequence[CellBooks]) -> Refusal | None:
    """Say what the host lacks even when nothing of it is taken."""
    if request.vcpus > facts.cpus:
        return Refusal(
            Code.HOST_TOO_SMALL,
            f"the VM wants {request.vcpus} vCPUs, the host has {facts.cpus} CPUs",
            f"ask for at most {facts.cpus} vCPUs",
        )
    total_mib, most_mib = host_memory_mib(facts), most_memory_mib(request, cells)
    if request.memory_mib > total_mib:
        return Refusal(
            Code.HOST_TOO_SMALL,
            f"the VM wants {format_mib(request.memory_mib)} of memory, the host has {format_mib(total_mib)}",
            f"ask for at most {format_mib(most_mib)}" if most_mib else "ask for less memory",
        )
    return None


def most_memory_mib(request: VmRequest, cells: Sequence[CellBooks]) -> int:
    """The memory of a VM's kind that the host can give one VM when it has no other; 0 for huge pages that it lacks."""
    return sum(cell.bounds_mib.get(request.hugepages_kib or ORDINARY, (0, 0))[0] for cell in cells)


def _refuse_unmounted(request: VmRequest, facts: HostFacts) -> Refusal | None:
    """Say that libvirt could not give the pages; that there are none of the size is said where they are counted."""
    page_kib = request.hugepages_kib
    if page_kib is None or page_kib not in unmounted_sizes(facts):
        return None
    return Refusal(Code.HOST_HUGEPAGES, describe_missing_mount(page_kib), mount_huge_pages(page_kib))


def _refuse_parts(request: VmRequest, facts: HostFacts) -> Refusal | None:
    """Say that the host has no firmware build, no TPM emulator or no working OVN chassis for the VM."""
    for one in missing_parts(facts, parts_needed(request)):
        return Refusal(_CODES[one.part], one.read, one.fix)
    return None


@dataclass(frozen=True)
class CellLeft:
    """The rest of one NUMA node for one more VM. most_vcpus, most_memory_mib: without any VM.

    page_kib: of which huge pages the memory is, None for ordinary memory.
    """

    numa_node: int
    is_pinned: bool
    vcpus: int
    most_vcpus: int
    memory_mib: int
    most_memory_mib: int
    page_kib: int | None = None

    def __str__(self) -> str:
        """As in `node 0: 12 of 32 pinned vCPUs, 56 GiB of 126 GiB`."""
        kind = "pinned" if self.is_pinned else "shared"
        cpus = f"node {self.numa_node}: {self.vcpus} of {self.most_vcpus} {kind} vCPUs"
        if self.page_kib is None:
            return f"{cpus}, {format_mib(self.memory_mib)} of {format_mib(self.most_memory_mib)}"
        pages, most = (mib * 1024 // self.page_kib for mib in (self.memory_mib, self.most_memory_mib))
        return f"{cpus}, {pages} of {most} huge pages of {format_page_size(self.page_kib)}"


def left_on(request: VmRequest, capacity: HostCapacity) -> tuple[CellLeft, ...]:
    """The rest of each NUMA node of a host for a VM of this kind."""
    return tuple(_left(one, request) for one in books_of(capacity))


def _left(cell: CellBooks, request: VmRequest) -> CellLeft:
    page_kib, is_pinned = request.hugepages_kib, bool(request.gpus) and cell.pins_guests
    room = cell.room(page_kib, pinned=is_pinned)
    each = (cell.ratio.pinned or 1) if is_pinned else cell.ratio.shared
    most_mib = cell.bounds_mib.get(page_kib or ORDINARY, (0, 0))[0]
    return CellLeft(cell.number, is_pinned, room.vcpus, each * cell.cpu_count, room.memory_mib, most_mib, page_kib)


def _refuse_cells(request: VmRequest, cells: Sequence[CellBooks]) -> Refusal | None:
    """Say what each NUMA node has left when they do not take the VM, alone or together."""
    has_gpus, page_kib = bool(request.gpus), request.hugepages_kib
    need, rooms = need_of(request), rooms_of(cells, page_kib, has_gpus=has_gpus)
    if choose_cells(need, (), rooms, CellReach.ANYWHERE) is not None:
        return None
    left = "; ".join(str(_left(cell, request)) for cell in cells)
    is_pinned = has_gpus and cells[0].pins_guests
    pinned = " on CPUs of their own" if is_pinned else ""
    pages = "" if page_kib is None else f" in huge pages of {format_page_size(page_kib)}"
    count = f"{request.vcpus} vCPU{'s' if request.vcpus != 1 else ''}"
    wants = f"{count}{pinned} and {format_mib(request.memory_mib)}{pages}"
    if may_take(need, rooms):
        reason = f"the VM wants {wants}, which no NUMA nodes have together; left are {left}"
        return Refusal(Code.HOST_NUMA, reason, "ask for less, or delete a VM on the host")
    if need.vcpus > sum(room.vcpus for room in rooms):
        ratio = "pinned" if is_pinned else "shared"
        remedy = (
            f"ask for fewer vCPUs, delete a VM on the host, or raise `cpus.{ratio}` in the inventory's vgpu_placing"
        )
        return Refusal(Code.HOST_CPUS, f"the VM wants {wants}; left are {left}", remedy)
    if page_kib is None:
        most_mib = most_memory_mib(request, cells)
        helps = "ask for less memory, or delete a VM on the host"
        if request.memory_mib > most_mib:
            helps = f"ask for at most {format_mib(most_mib)}"
        return Refusal(Code.HOST_MEMORY, f"the VM wants {wants}; left are {left}", helps)
    remedy = "raise `hugepages` in the host's layout, which its NUMA nodes share equally, or delete a VM on the host"
    return Refusal(Code.HOST_HUGEPAGES, f"the VM wants {wants}; left are {left}", remedy)


def _refuse_pool(request: VmRequest, capacity: HostCapacity, cell: CellBooks) -> Refusal | None:
    refusal = _refuse_memory(request, capacity, cell)
    if refusal is not None or request.vcpus <= cell.room_shared():
        return refusal
    most = cell.ratio.shared * cell.cpu_count
    return Refusal(
        Code.HOST_CPUS,
        f"the VM wants {request.vcpus} vCPUs, {cell.shared_vcpus} of the {most} that {cell.cpu_count} CPUs give"
        f" ({cell.ratio.shared} for each) are promised to its VMs",
        "delete a VM on the host, or raise `cpus.shared` in the inventory's vgpu_placing",
    )


def _refuse_memory(request: VmRequest, capacity: HostCapacity, cell: CellBooks) -> Refusal | None:
    facts = capacity.facts
    if request.hugepages_kib is not None:
        return _refuse_pages(request.memory_mib, request.hugepages_kib, capacity, cell)
    most, available_mib = cell.bounds_mib[ORDINARY]
    promised_mib, total_mib = cell.promised_mib[ORDINARY], host_memory_mib(facts)
    if request.memory_mib > most:
        return Refusal(
            Code.HOST_MEMORY,
            f"the VM wants {format_mib(request.memory_mib)} of memory, the host can give {format_mib(most)}"
            f" of its {format_mib(total_mib)}",
            f"ask for at most {format_mib(most)}",
        )
    if request.memory_mib > most - promised_mib:
        return Refusal(
            Code.HOST_MEMORY,
            f"the VM wants {format_mib(request.memory_mib)} of memory, {format_mib(promised_mib)}"
            f" of the {format_mib(most)} that the host can give are promised to its VMs",
            "delete a VM on the host",
        )
    if request.memory_mib > available_mib:
        return Refusal(
            Code.HOST_MEMORY,
            f"the VM wants {format_mib(request.memory_mib)} of memory, {format_mib(available_mib)}"
            f" of {format_mib(total_mib)} were free when the host was read",
            "stop or delete a VM on the host",
        )
    return None


def _refuse_pages(wanted_mib: int, page_kib: int, capacity: HostCapacity, cell: CellBooks) -> Refusal | None:
    wanted, promised = (mib * 1024 // page_kib for mib in (wanted_mib, cell.promised_mib[page_kib]))
    size = format_page_size(page_kib)
    pool = next((one for one in host_pools(capacity.facts) if one.size_kib == page_kib and one.total), None)
    needs = f"the VM wants {wanted} huge pages of {size}"
    if pool is None:
        return Refusal(
            Code.HOST_HUGEPAGES,
            f"{needs}, the host has none of this size",
            f"keep at least {wanted} there with `hugepages` in the host's layout (docs/layout.md)",
        )
    if wanted > pool.total:
        return Refusal(
            Code.HOST_HUGEPAGES,
            f"{needs}, the host has {pool.total}",
            f"raise `hugepages` in the host's layout to {wanted} or more (docs/layout.md)",
        )
    if wanted > pool.total - promised:
        return Refusal(
            Code.HOST_HUGEPAGES,
            f"{needs}, {promised} of the host's {pool.total} are promised to its VMs",
            f"raise `hugepages` in the host's layout to {promised + wanted} or more, or delete a VM on the host",
        )
    if wanted > pool.free:
        return Refusal(
            Code.HOST_HUGEPAGES,
            f"{needs}, {pool.free} of the host's {pool.total} were free when it was read",
            "stop what uses them on the host",
        )
    return None
