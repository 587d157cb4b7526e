# SPDX-License-Identifier: Apache-2.0
"""What a host's facts say is taken on a GPU: questions that both scheduler and planner ask."""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.facts import Gpu, Holder, HostFacts, VirtualFunction


@dataclass(frozen=True)
class ExistingVgpu:
    """One vGPU found on a host. function: the PF for an mdev on the PF, else the VF. type_id None: not readable."""

    function: str
    type_id: str | None
    mdev_uuid: str | None = None


def gpu_at(facts: HostFacts, address: str) -> Gpu | None:
    """The GPU with this physical function, None when the host has none."""
    return next((gpu for gpu in facts.gpus if gpu.address == address), None)


def vf_at(gpu: Gpu, address: str) -> VirtualFunction | None:
    """The VF of this address, None when the GPU has none."""
    return next((function for function in gpu.vfs if function.address == address), None)


def existing_vgpus(gpu: Gpu) -> list[ExistingVgpu]:
    """Every vGPU that exists on the GPU, whoever made it: mdevs on the PF or on VFs, and types set on VFs."""
    found = [ExistingVgpu(mdev.parent, mdev.type_id, mdev.uuid) for mdev in gpu.mdevs]
    uuids = {mdev.uuid for mdev in gpu.mdevs}
    for function in gpu.vfs:
        if function.mdev_uuid is not None:
            if function.mdev_uuid not in uuids:
                found.append(ExistingVgpu(function.address, None, function.mdev_uuid))
        elif has_type(function):
            found.append(ExistingVgpu(function.address, function.current_type))
    return found


def has_type(function: VirtualFunction) -> bool:
    """Whether a vGPU type is set on the VF (vendor VFIO)."""
    return function.current_type not in (None, "", "0")


def strangers_in_group(gpu: Gpu) -> tuple[str, ...]:
    """Members of the GPU's IOMMU group that do not belong to the card; bridges, which do no harm, among them."""
    own = {gpu.address, *(companion.address for companion in gpu.companions)}
    return tuple(member for member in gpu.iommu_group_members if member not in own)


def describe_holders(holders: Sequence[Holder]) -> str:
    """Who holds a device, in words: `qemu-system-x86 (pid 4711)`."""
    return ", ".join(f"{holder.command} (pid {holder.pid})" for holder in holders)
