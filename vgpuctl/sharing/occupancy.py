# SPDX-License-Identifier: Apache-2.0
"""One GPU of a host as its facts show it, and the vGPUs on it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from vgpuctl.agent.wire.facts import Gpu, Holder, HostFacts, VirtualFunction
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.lease import OnFunction


@dataclass(frozen=True)
class ExistingVgpu(OnFunction):
    """One vGPU found on a host. function: the PF for an mdev on the PF, else the VF. type_id None: not readable.

    params: the text of its parameters as read, or as wanted; None where it has none. profile: the short name of its
    type as the driver that runs tells it, or as wanted; None where it does not tell.
    """

    gpu: str
    sharing: Sharing
    function: str
    type_id: str | None
    mdev_uuid: str | None = None
    params: str | None = field(default=None, compare=False)
    profile: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class LiveGpu:
    """A GPU of a host that was read right before building. vgpus: all on it, whoever made them."""

    gpu: Gpu
    facts: HostFacts
    vgpus: tuple[ExistingVgpu, ...]


def gpu_at(facts: HostFacts, address: str) -> Gpu | None:
    """The GPU with this physical function, None when the host has none."""
    return next((gpu for gpu in facts.gpus if gpu.address == address), None)


def vf_at(gpu: Gpu, address: str) -> VirtualFunction | None:
    """The VF of this address, None when the GPU has none."""
    return next((function for function in gpu.vfs if function.address == address), None)


def strangers_in_group(gpu: Gpu) -> tuple[str, ...]:
    """Members of the GPU's IOMMU group that do not belong to the card; bridges, which do no harm, among them."""
    own = {gpu.address, *(companion.address for companion in gpu.companions)}
    return tuple(member for member in gpu.iommu_group_members if member not in own)


def describe_holders(holders: Sequence[Holder]) -> str:
    """Say who holds a device: `qemu-system-x86 (pid 4711)`."""
    return ", ".join(f"{holder.command} (pid {holder.pid})" for holder in holders)
