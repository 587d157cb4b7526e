# SPDX-License-Identifier: Apache-2.0
"""What the host as a whole must have: the wanted name, vCPUs, memory or huge pages, and a GPU at all."""

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.model.guest_memory import format_page_size
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.units import format_mib
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.codes import Code
from vgpuctl.scheduler.host_memory import most_mib, pool_of
from vgpuctl.scheduler.offer import Refusal


def refuse_host(request: VmRequest, capacity: HostCapacity, promised_mib: int) -> Refusal | None:
    """Say why a host cannot run the VM, whatever its GPUs are; None when it can.

    vCPUs may be overcommitted among VMs, but one VM cannot have more than the host's CPUs. Memory is not
    overcommitted: VFIO pins all of the guest's memory. promised_mib: of the kind of memory that the VM wants.
    """
    facts = capacity.facts
    if request.host is not None and request.host != capacity.name:
        return Refusal(Code.HOST_WANTED_OTHER, f"the VM must run on {request.host}")
    if capacity.traits.maintenance is not None:
        return Refusal(
            Code.HOST_MAINTENANCE,
            f"in maintenance: {capacity.traits.maintenance}",
            "take the maintenance out of the inventory's vgpu_placing",
        )
    missing = [label for label in request.wishes.required if label not in capacity.traits.labels]
    if missing and not request.gpus:
        return Refusal(
            Code.HOST_LABELS,
            f"it has no label {', '.join(f'{key}={value}' for key, value in missing)}",
            "ask for other labels, or give it this one in the inventory's vgpu_placing",
        )
    if request.vcpus > facts.cpus:
        return Refusal(
            Code.HOST_CPUS,
            f"the VM wants {request.vcpus} vCPUs, the host has {facts.cpus} CPUs",
            f"ask for at most {facts.cpus} vCPUs",
        )
    refusal = _refuse_memory(request, facts, promised_mib)
    if refusal is not None:
        return refusal
    if request.gpus and not facts.gpus:
        return Refusal(Code.NO_GPU, "the host has no GPU")
    return None


def _refuse_memory(request: VmRequest, facts: HostFacts, promised_mib: int) -> Refusal | None:
    if request.hugepages_kib is not None:
        return _refuse_pages(request.memory_mib, request.hugepages_kib, facts, promised_mib)
    most = most_mib(facts)
    if request.memory_mib > most:
        return Refusal(
            Code.HOST_MEMORY,
            f"the VM wants {format_mib(request.memory_mib)} of memory, the host can give {format_mib(most)}"
            f" of its {format_mib(facts.memory_mib)}",
            f"ask for at most {format_mib(most)}",
        )
    left = most - promised_mib
    if request.memory_mib > left:
        return Refusal(
            Code.HOST_MEMORY,
            f"the VM wants {format_mib(request.memory_mib)} of memory, {format_mib(promised_mib)}"
            f" of the {format_mib(most)} that the host can give are promised to its VMs",
            "delete a VM on the host",
        )
    if request.memory_mib > facts.memory_available_mib:
        return Refusal(
            Code.HOST_MEMORY,
            f"the VM wants {format_mib(request.memory_mib)} of memory, {format_mib(facts.memory_available_mib)}"
            f" of {format_mib(facts.memory_mib)} were free when the host was read",
            "stop or delete a VM on the host",
        )
    return None


def _refuse_pages(wanted_mib: int, page_kib: int, facts: HostFacts, promised_mib: int) -> Refusal | None:
    wanted, promised = (mib * 1024 // page_kib for mib in (wanted_mib, promised_mib))
    size, pool = format_page_size(page_kib), pool_of(facts, page_kib)
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
