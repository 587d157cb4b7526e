# SPDX-License-Identifier: Apache-2.0
"""What the host as a whole must have: the wanted name, vCPUs, memory, and a GPU at all."""

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.units import format_mib
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.codes import Code
from vgpuctl.scheduler.offer import Refusal

LARGEST_RESERVE_MIB = 2048


def host_reserve_mib(memory_mib: int) -> int:
    """Memory that is never promised to VMs: a sixteenth of the host's, at most 2 GiB."""
    return min(memory_mib // 16, LARGEST_RESERVE_MIB)


def room_mib(facts: HostFacts, promised_mib: int) -> int:
    """The memory that one more VM can have: what was free, and what is not promised to VMs."""
    limit = facts.memory_mib - host_reserve_mib(facts.memory_mib) - promised_mib
    return max(0, min(limit, facts.memory_available_mib))


def refuse_host(request: VmRequest, capacity: HostCapacity, promised_mib: int) -> Refusal | None:
    """Say why a host cannot run the VM, whatever its GPUs are; None when it can.

    vCPUs may be overcommitted among VMs, but one VM cannot have more than the host's CPUs. Memory is not
    overcommitted: VFIO pins all of the guest's memory.
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
    most = facts.memory_mib - host_reserve_mib(facts.memory_mib)
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
    if request.gpus and not facts.gpus:
        return Refusal(Code.NO_GPU, "the host has no GPU")
    return None
