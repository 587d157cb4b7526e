# SPDX-License-Identifier: Apache-2.0
"""An API server in memory for the extender's unit tests, and HAMi's device plugin as a model that consumes annotations.

The model follows GetPendingPod and Allocate of Project-HAMi/HAMi at 4707fb0 (plugin/server.go, pkg/util/util.go).
"""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from vgpuctl.clusters.kubernetes import hami
from vgpuctl.errors import ClusterConflict, ClusterMissing, VgpuctlError

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
A40 = "NVIDIA-NVIDIA A40"


class GpuCluster:
    """Objects as the API has them. faults: what a call is to raise, by its name, once each."""

    def __init__(self) -> None:
        self.nodes: dict[str, Any] = {}
        self.pods: dict[str, Any] = {}
        self.budgets: list[Any] = []
        self.pod_groups: dict[str, Any] = {}
        self.calls: list[str] = []
        self.faults: dict[str, list[VgpuctlError | Callable[[], None]]] = {}
        self._version = 0

    def add_node(
        self,
        name: str,
        gpus: int = 1,
        *,
        mib: int = 40_000,
        count: int = 10,
        kind: str = A40,
        numa: int = 8,
        **more: Any,
    ) -> None:
        """A node with equal GPUs `NAME-0`, …; numa: GPUs of one NUMA node."""
        devices = [
            {"id": f"{name}-{at}", "index": at, "count": count, "devmem": mib, "devcore": 100, "type": kind,
             "numa": at // numa, "health": True, **more.get("device", {})}
            for at in range(gpus)
        ]  # fmt: skip
        notes = {hami.REGISTER: json.dumps(devices), **more.get("annotations", {})}
        allocatable = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": str(gpus * count)}
        about = {"name": name, "resourceVersion": "0", "annotations": notes, "labels": more.get("labels", {})}
        self.nodes[name] = {"metadata": about, "status": {"allocatable": allocatable}}

    def add_pod(self, name: str, *, priority: int = 0, **more: Any) -> Any:
        """A pending pod. gpu, mem, cores: of its only container; containers, init: limits of each instead."""
        limits = {"nvidia.com/gpu": str(more.get("gpu", 1)), "nvidia.com/gpucores": str(more.get("cores", 0))}
        if "mem" in more:
            limits["nvidia.com/gpumem"] = str(more["mem"])
        made = [
            {"name": f"c{at}", "resources": {"limits": one}} for at, one in enumerate(more.get("containers", [limits]))
        ]
        self.pods[name] = {
            "metadata": {
                "name": name, "namespace": "ml", "uid": f"uid-{name}", "resourceVersion": "0",
                "labels": more.get("labels", {}), "annotations": dict(more.get("annotations", {})),
            },
            "spec": {
                "priority": priority, "containers": made, "schedulerName": "vgpuctl-scheduler",
                "initContainers": [
                    {"name": f"i{at}", "resources": {"limits": one}} for at, one in enumerate(more.get("init", []))
                ],
            },
            "status": {"phase": "Pending", "startTime": more.get("start", "2026-03-01T00:00:00Z")},
        }  # fmt: skip
        return self.pods[name]

    def list_nodes(self) -> Sequence[Any]:
        self._call("list_nodes")
        return copy.deepcopy(list(self.nodes.values()))

    def list_pods(self) -> Sequence[Any]:
        self._call("list_pods")
        return copy.deepcopy(list(self.pods.values()))

    def list_disruption_budgets(self) -> Sequence[Any]:
        return self.budgets

    def list_pod_groups(self) -> list[Any]:
        self._call("list_pod_groups")
        return copy.deepcopy(list(self.pod_groups.values()))

    def get_pod_group(self, namespace: str, name: str) -> Any:
        self._call("get_pod_group")
        if name not in self.pod_groups:
            raise ClusterMissing(f"pod group {namespace}/{name} is missing")
        return copy.deepcopy(self.pod_groups[name])

    def get_node(self, name: str) -> Any:
        self._call("get_node")
        if name not in self.nodes:
            raise ClusterMissing(f"node {name} is missing")
        return copy.deepcopy(self.nodes[name])

    def get_pod(self, namespace: str, name: str) -> Any:
        self._call("get_pod")
        if name not in self.pods:
            raise ClusterMissing(f"pod {namespace}/{name} is missing")
        return copy.deepcopy(self.pods[name])

    def patch_node(self, name: str, patch: Mapping[str, Any]) -> None:
        self._call("patch_node")
        self._merge(self.nodes[name], patch)

    def patch_pod(self, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        self._call("patch_pod")
        self._merge(self.pods[name], patch)

    def bind_pod(self, namespace: str, name: str, uid: str, node: str) -> None:
        self._call("bind_pod")
        pod = self.pods[name]
        if pod["metadata"]["uid"] != uid or pod["spec"].get("nodeName"):
            raise ClusterConflict(f"pod {name} is bound")
        pod["spec"]["nodeName"] = node

    def allocate(self, node: str) -> list[tuple[str, int, int]]:
        """The devices that HAMi's plugin gives to the next container on a node; the last one removes its lock."""
        notes = self.nodes[node]["metadata"]["annotations"]
        lock = hami.read_lock(notes[hami.LOCK])
        pod = self.pods[lock.pod]
        assert pod["spec"]["nodeName"] == node == pod["metadata"]["annotations"][hami.NODE]
        mine = pod["metadata"]["annotations"]
        assert mine[hami.BIND_PHASE] == "allocating"
        left = list(hami.read_devices(mine[hami.TO_ALLOCATE]))
        at = next(number for number, devices in enumerate(left) if devices)
        given, left[at] = left[at], ()
        wanted = [*pod["spec"]["initContainers"], *pod["spec"]["containers"]][at]["resources"]["limits"]
        assert len(given) == int(wanted["nvidia.com/gpu"])
        mine[hami.TO_ALLOCATE] = hami.write_devices(left)
        if hami.VENDOR not in mine[hami.TO_ALLOCATE]:
            mine[hami.BIND_PHASE] = "success"
            del notes[hami.LOCK]
        return [(one.id, one.memory_mib, one.cores) for one in given]

    def _merge(self, target: Any, patch: Mapping[str, Any]) -> None:
        about, wanted = target["metadata"], patch["metadata"]
        for key in ("resourceVersion", "uid"):
            if key in wanted and wanted[key] != about[key]:
                raise ClusterConflict(f"{key} differs")
        for key, value in wanted["annotations"].items():
            if value is None:
                about["annotations"].pop(key, None)
            else:
                about["annotations"][key] = value
        self._version += 1
        about["resourceVersion"] = str(self._version)

    def _call(self, name: str) -> None:
        self.calls.append(name)
        for fault in [self.faults[name].pop(0)] if self.faults.get(name) else []:
            if isinstance(fault, VgpuctlError):
                raise fault
            fault()
