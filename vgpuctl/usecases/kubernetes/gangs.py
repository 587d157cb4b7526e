# SPDX-License-Identifier: Apache-2.0
"""Pods that are bound all or none: each waits in its bind, with its devices reserved, until all members are there.

An extender sees one pod at a time, so members are taken to be equal when the room for all of them is counted. Once the
wait is over each member is bound by itself; a member that the API server then refuses stays behind alone.
"""

import threading
import time
from collections.abc import Callable, Sequence

from vgpuctl.errors import BindRefused
from vgpuctl.model import place_labels
from vgpuctl.usecases.kubernetes.pod_demand import Gang, PodDemand
from vgpuctl.usecases.kubernetes.shared_gpus import SharedGpus
from vgpuctl.usecases.kubernetes.shared_node import SharedNode

NEAR = (place_labels.NVLINK_DOMAIN, place_labels.HOST, place_labels.RACK)
"""Labels of nodes by which members are placed near each other, the nearest first."""


class Gangs:
    """The members of each gang that have their devices. changed: a condition of the lock that the caller holds."""

    def __init__(self, changed: threading.Condition, wait_s: float) -> None:
        self._changed = changed
        self._wait_s = wait_s
        self._is_over = False

    def end(self) -> None:
        """Let every waiting member fail."""
        self._is_over = True
        self._changed.notify_all()

    def placed(self, gang: Gang, gpus: SharedGpus) -> dict[str, SharedNode]:
        """The nodes of the members that have their devices, by UID."""
        return {
            uid: node for node in gpus.nodes.values() for uid, pod in node.pods.items() if pod.demand.gang == gang
        }  # fmt: skip

    def missing(self, demand: PodDemand, gpus: SharedGpus, fitting: Sequence[SharedNode]) -> str:
        """Why the members that have no devices yet do not fit together on these nodes; empty where they do."""
        gang = demand.gang
        assert gang is not None
        needed = gang.size - len(self.placed(gang, gpus).keys() - {demand.uid})
        free = 0
        for node in fitting:
            if free >= needed:
                break
            free += gpus.room_for(demand, node, needed - free)
        if free >= needed:
            return ""
        return f"gang {gang.name} needs {needed} places at the same time, {free} are free"

    def nearness(self, demand: PodDemand, gpus: SharedGpus) -> Callable[[SharedNode], int]:
        """How near a node is to the members that have their devices: 0 for any node where none has."""
        if demand.gang is None:
            return lambda _node: 0
        placed = list(self.placed(demand.gang, gpus).values())
        values = [(key, {node.labels[key] for node in placed if node.labels.get(key)}) for key in NEAR]

        def near(node: SharedNode) -> int:
            return next((len(NEAR) - at for at, (key, known) in enumerate(values) if node.labels.get(key) in known), 0)

        return near

    def wait_for_all(self, demand: PodDemand, gpus: SharedGpus) -> None:
        """Wait until all members have their devices. Raises BindRefused after the limit, and the member has left."""
        gang = demand.gang
        if gang is None:
            return
        self._changed.notify_all()
        until = time.monotonic() + self._wait_s
        while (count := len(self.placed(gang, gpus))) < gang.size:
            left = until - time.monotonic()
            if self._is_over or left <= 0:
                raise BindRefused(
                    f"gang {gang.name} has {count} of {gang.size} members after {self._wait_s:g} s;"
                    " none of those that wait is bound"
                )
            self._changed.wait(left)
