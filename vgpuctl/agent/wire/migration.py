# SPDX-License-Identifier: Apache-2.0
"""What NVML tells about moving vGPUs of running VMs to another host. Python 3.9, standard library only."""

from typing import Optional, Tuple

from vgpuctl.agent.wire.values import dataclass

LONGEST_METADATA = 65_536
"""Bytes of one structure of metadata. NVIDIA does not publish how long its opaque part is."""


@dataclass(frozen=True)
class VgpuMigration:
    """One vGPU of a running VM, for a move. None: the host does not tell.

    device: the mdev's UUID; of a vGPU without mdev the VF, or None. vm_uuid: of the VM that runs with it. metadata: of
    nvmlVgpuInstanceGetMetadata, in Base64. guest_driver: None without one. guest_version: the vGPU version that guest
    and host have agreed on. can_migrate: the metadata's migration bit. state_bytes: what a move carries now.
    """

    device: Optional[str] = None
    vm_uuid: Optional[str] = None
    metadata: Optional[str] = None
    guest_driver: Optional[str] = None
    guest_version: Optional[int] = None
    can_migrate: Optional[bool] = None
    state_bytes: Optional[int] = None

    def is_of(self, vm_uuid: str, device: Optional[str]) -> bool:
        """Tell whether this is the VM's vGPU, or one that the host does not tell from it."""
        return self.vm_uuid == vm_uuid and (device is None or self.device in (None, device))


@dataclass(frozen=True)
class GpuMigration:
    """One GPU, for a move of its vGPUs or to it. None: the host does not tell.

    metadata: of nvmlDeviceGetVgpuMetadata, in Base64. signature: the same for people; GPUs with equal ones can pass
    vGPUs to each other. versions: the lowest and the highest vGPU version that the host accepts. can_migrate: the
    metadata's migration bit. read_mb_s, write_mb_s: how fast a vGPU's state is read and written, in MB/s. streams: its
    memory can be copied while it runs. warm_update: the host's driver can be replaced while vGPUs are suspended.
    ecc: as it is in effect. gsp: the GPU runs its GSP firmware. vgpus: those of running VMs. problems: of what did not
    answer; they keep nothing but a move from the GPU.
    """

    metadata: Optional[str] = None
    signature: Optional[str] = None
    host_driver: Optional[str] = None
    versions: Optional[Tuple[int, int]] = None
    can_migrate: Optional[bool] = None
    read_mb_s: Optional[int] = None
    write_mb_s: Optional[int] = None
    streams: Optional[bool] = None
    warm_update: Optional[bool] = None
    ecc: Optional[bool] = None
    gsp: Optional[bool] = None
    vgpus: Tuple[VgpuMigration, ...] = ()
    problems: Tuple[str, ...] = ()


@dataclass(frozen=True)
class VgpuComparison:
    """A question: can a running VM's vGPU of this host's GPU go to a GPU with this metadata, in Base64?

    device: as in VgpuMigration, for a VM with several vGPUs of one GPU.
    """

    gpu: str
    vm_uuid: str
    metadata: str
    device: Optional[str] = None


@dataclass(frozen=True)
class VgpuCompatibility:
    """NVML's answer to a VgpuComparison, as its bits: nvmlVgpuVmCompatibility_t and the code of what limits it."""

    ways: int
    limit_code: int
