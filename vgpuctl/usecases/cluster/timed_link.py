# SPDX-License-Identifier: Apache-2.0
"""A cluster's link with one time limit for everything that is asked through it."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from vgpuctl.errors import ClusterUnreachable
from vgpuctl.model.cluster_member import ClusterMember
from vgpuctl.model.times import format_duration
from vgpuctl.usecases.running.cluster_link import ClusterLink

T = TypeVar("T")


class TimedLink:
    """Implements ClusterLink by another link until the time is over: then every method raises ClusterUnreachable.

    limit_s: from now on. A question that has begun goes on in its thread, and its answer is not used.
    """

    def __init__(self, link: ClusterLink, limit_s: float) -> None:
        self._link = link
        self._limit_s = limit_s
        self._ends_at = time.monotonic() + limit_s

    def members(self) -> Sequence[ClusterMember]:
        """The nodes that the cluster knows."""
        return self._in_time(self._link.members)

    def cordon(self, node: str, reason: str) -> bool:
        """Let the node take no new work."""
        return self._in_time(lambda: self._link.cordon(node, reason))

    def uncordon(self, node: str) -> bool:
        """Let the node take work again."""
        return self._in_time(lambda: self._link.uncordon(node))

    def relabel(self, node: str, labels: Mapping[str, str | None]) -> None:
        """Set labels of the node."""
        self._in_time(lambda: self._link.relabel(node, labels))

    def drain(self, node: str) -> Sequence[str]:
        """Ask the work on a node to leave."""
        return self._in_time(lambda: self._link.drain(node))

    def refuse(self, node: str, reason: str) -> None:
        """Say that a wanted node does not come."""
        self._in_time(lambda: self._link.refuse(node, reason))

    def forget(self, node: str, provider_id: str) -> None:
        """Remove a node whose VM is gone."""
        self._in_time(lambda: self._link.forget(node, provider_id))

    def close(self) -> None:
        """Nothing: the other link goes on."""

    def _in_time(self, call: Callable[[], T]) -> T:
        """Call in a thread, since a link has limits for single exchanges and not for a question of several."""
        answers: list[T] = []
        errors: list[BaseException] = []

        def ask() -> None:
            try:
                answers.append(call())
            except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
                errors.append(error)

        left_s = self._ends_at - time.monotonic()
        if left_s > 0:
            thread = threading.Thread(target=ask, name="cluster", daemon=True)
            thread.start()
            thread.join(left_s)
        if errors:
            raise errors[0]
        if not answers:
            raise ClusterUnreachable(f"its cluster did not answer within {format_duration(self._limit_s)}")
        return answers[0]
