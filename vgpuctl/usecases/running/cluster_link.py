# SPDX-License-Identifier: Apache-2.0
"""The way to a tenant's cluster, the same for Kubernetes and Slurm."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from vgpuctl.model.cluster_member import ClusterMember


class ClusterLink(Protocol):
    """One cluster. Nodes are named as their VMs are.

    Every method raises ClusterUnreachable when the cluster does not answer in time, and ClusterRefused when it does
    not allow what was asked. A node that the cluster does not know is passed over.
    """

    def members(self) -> Sequence[ClusterMember]:
        """The nodes that the cluster knows."""

    def cordon(self, node: str, reason: str) -> bool:
        """Let the node take no new work. reason: for who looks at the node there. Returns False if it took none."""

    def uncordon(self, node: str) -> bool:
        """Let the node take work again, where vgpuctl has cordoned it. Returns False if not: another's cordon stays."""

    def relabel(self, node: str, labels: Mapping[str, str | None]) -> None:
        """Set labels of the node, and remove those that are None. Slurm has none: slurm.conf has its features."""

    def drain(self, node: str) -> Sequence[str]:
        """Ask the work on a cordoned node to leave, without waiting. Returns what is still there; empty: drained."""

    def refuse(self, node: str, reason: str) -> None:
        """Say that a wanted node does not come, and why, so that its work is queued again."""

    def forget(self, node: str, provider_id: str) -> None:
        """Remove the node, whose VM is gone, from the cluster's list; one with another provider id stays there."""

    def close(self) -> None:
        """Close connections."""
