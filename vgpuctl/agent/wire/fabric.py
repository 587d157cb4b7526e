# SPDX-License-Identifier: Apache-2.0
"""Fabric Manager of a host with NVSwitches, and its partitions. Python 3.9, standard library only."""

from typing import Optional, Tuple

from vgpuctl.agent.wire.values import dataclass


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
    """A partition that Fabric Manager can activate. gpus: in its order, which is that of the VFs."""

    number: int
    is_active: bool
    gpus: Tuple[FabricGpu, ...]


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
    in mode 0, or did not answer; problem says why then.
    """

    mode: Optional[int]
    address: str
    partitions: Optional[Tuple[FabricPartition, ...]] = None
    failed: Optional[Tuple[FailedDevice, ...]] = None
    problem: Optional[str] = None
