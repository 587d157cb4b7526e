# SPDX-License-Identifier: Apache-2.0
"""Fabric Manager of a host with NVSwitches, its partitions, and steps for them. Python 3.9, standard library only."""

from typing import ClassVar, FrozenSet, Optional, Tuple

from vgpuctl.agent.wire.values import dataclass

UNIT = "nvidia-fabricmanager.service"


@dataclass(frozen=True)
class FabricGpu:
    """A GPU of a partition. module: its number by NVML. uuid, address: None from H100 on, which do not tell them.

    links: its NVLinks in this partition now, and most_links without failures; line_rate_mb_s: of each.
    """

    module: int
    links: int
    most_links: int
    line_rate_mb_s: int
    uuid: Optional[str] = None
    address: Optional[str] = None


@dataclass(frozen=True)
class FabricPartition:
    """A partition that Fabric Manager can activate. gpus: in its order, which is that of the VFs.

    vm: UUID of the VM that the agent activated it for, None where it is not active or somebody else activated it.
    activated_at: when that was, in seconds of the host's uptime.
    """

    number: int
    is_active: bool
    gpus: Tuple[FabricGpu, ...]
    vm: Optional[str] = None
    activated_at: Optional[float] = None

    @property
    def modules(self) -> FrozenSet[int]:
        """Its GPUs by their numbers."""
        return frozenset(gpu.module for gpu in self.gpus)

    @property
    def lost_links(self) -> Tuple[str, ...]:
        """Its GPUs that have lost NVLinks, in words. A GPU alone needs none."""
        gpus = sorted(self.gpus, key=lambda one: one.module) if len(self.gpus) > 1 else ()
        return tuple(
            f"module {one.module} has lost {one.most_links - one.links} of {one.most_links} NVLinks"
            for one in gpus
            if one.links < one.most_links
        )


@dataclass(frozen=True)
class FailedDevice:
    """A GPU or an NVSwitch with failed NVLinks. ports: their numbers."""

    is_switch: bool
    address: str
    uuid: str
    ports: Tuple[int, ...]


@dataclass(frozen=True)
class FabricManagerFacts:
    """Fabric Manager as its configuration and its SDK tell.

    mode: FABRIC_MODE: 0 for the host itself or one VM with all GPUs, 1 for VMs with whole GPUs, 2 for VMs with vGPUs;
    None where the configuration names none. address: where it listens. partitions, failed: None where it was not asked,
    in mode 0, or did not answer; problem says why then. is_starting: it does not answer yet.
    keeps_partitions: FABRIC_MODE_RESTART is 1. is_active: systemd runs it; needs_restart: it was started before its
    configuration was last written. Both are None where systemd does not tell.
    """

    mode: Optional[int]
    address: str
    partitions: Optional[Tuple[FabricPartition, ...]] = None
    failed: Optional[Tuple[FailedDevice, ...]] = None
    problem: Optional[str] = None
    keeps_partitions: bool = False
    is_active: Optional[bool] = None
    needs_restart: Optional[bool] = None
    is_starting: bool = False


@dataclass(frozen=True)
class UsedPartition:
    """The partition of exactly these GPUs, and the VM that it is for.

    gpus: addresses. vfs: in FABRIC_MODE 2 one VF of each GPU, in the same order; empty in mode 1. vm: its UUID.
    """

    gpus: Tuple[str, ...]
    vfs: Tuple[str, ...]
    vm: str

    @property
    def target(self) -> str:
        """What a step about it changes, which is not the functions themselves."""
        return f"partition of {', '.join(self.gpus)}"


@dataclass(frozen=True)
class ActivatePartition:
    """Activate the partition of a VM, before its start; its GPUs reach no memory of others' (fabric reference 4.1).

    In FABRIC_MODE 2 one that is active although no process holds its GPUs is activated again, with these VFs.
    """

    op: ClassVar[str] = "partition.activate"
    used: UsedPartition


@dataclass(frozen=True)
class DeactivatePartition:
    """Deactivate the partition of a VM whose guest has ended. Refused while a process holds one of its GPUs.

    Nothing changes where it is not active, or was activated for another VM meanwhile, or by somebody else.
    activated_at: of the activation that is meant, None for any. least_age_s: nothing changes before it is so old: its
    VM, which is not the caller's, may be starting.
    """

    op: ClassVar[str] = "partition.deactivate"
    used: UsedPartition
    activated_at: Optional[float] = None
    least_age_s: float = 0.0


@dataclass(frozen=True)
class RestorePartitions:
    """Have the partitions of running VMs active after Fabric Manager was restarted, within the 60 s that it waits.

    used: all of them. Others that were active before the restart are not afterwards; no partition that is active in a
    Fabric Manager that waits for nothing is touched.
    """

    op: ClassVar[str] = "partition.restore"
    used: Tuple[UsedPartition, ...]


PARTITION_STEPS = (ActivatePartition, DeactivatePartition, RestorePartitions)
