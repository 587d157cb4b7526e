# SPDX-License-Identifier: Apache-2.0
"""A cluster's link for one round over one pool: one time limit for everything that the round asks the cluster."""

import time
from collections.abc import Mapping, Sequence

from vgpuctl.errors import ClusterUnreachable
from vgpuctl.model.cluster_member import ClusterMember
from vgpuctl.model.times import format_duration
from vgpuctl.usecases.support.cluster_link import ClusterLink


class TimedLink:
    """Implements ClusterLink by another link until the time is over; each call is bounded by that link itself."""

    def __init__(self, link: ClusterLink, limit_s: float) -> None:
        self._link = link
        self._limit_s = limit_s
        self._ends_at = time.monotonic() + limit_s

    def members(self) -> Sequence[ClusterMember]:
        """The nodes that the cluster knows."""
        return self._in_time().members()

    def cordon(self, node: str, reason: str) -> bool:
        """Let the node take no new work."""
        return self._in_time().cordon(node, reason)

    def uncordon(self, node: str) -> bool:
        """Let the node take work again."""
        return self._in_time().uncordon(node)

    def relabel(self, node: str, labels: Mapping[str, str | None]) -> None:
        """Set labels of the node, and remove those that are None."""
        self._in_time().relabel(node, labels)

    def drain(self, node: str) -> Sequence[str]:
        """Ask the work on a node to leave."""
        return self._in_time().drain(node)

    def refuse(self, node: str, reason: str) -> None:
        """Say that a wanted node does not come."""
        self._in_time().refuse(node, reason)

    def forget(self, node: str, provider_id: str) -> None:
        """Remove a node whose VM is gone."""
        self._in_time().forget(node, provider_id)

    def close(self) -> None:
        """Nothing: the other link goes on in the next round."""

    def _in_time(self) -> ClusterLink:
        if time.monotonic() >= self._ends_at:
            raise ClusterUnreachable(
                f"its cluster took more than {format_duration(self._limit_s)} of this round; the rest is for the next"
            )
        return self._link
