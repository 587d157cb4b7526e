# SPDX-License-Identifier: Apache-2.0
"""A partition of an NVSwitch fabric in a few words."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vgpuctl.agent.wire.fabric import FabricPartition


def partition_text(partition: "FabricPartition") -> str:
    """`partition 3 of modules 1, 3`: its number, which GPUs of the baseboard it connects, and which of them fail."""
    modules = ", ".join(map(str, sorted(partition.modules)))
    return ", ".join((f"partition {partition.number} of modules {modules}", *partition.lost_links))


def with_partition(shares: str, partition: "FabricPartition | None") -> str:
    """The shares of a VM, and the partition that they are where they are one."""
    return shares if partition is None else f"{shares}; {partition_text(partition)}"
