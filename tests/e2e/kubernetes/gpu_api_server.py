# SPDX-License-Identifier: Apache-2.0
"""The API server of tests/unit/usecases/kubernetes/gpu_cluster.py behind HTTP: the requests of serve extender alone."""

import contextlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.kubernetes_api import kubeconfig_of, serving_api, status_object
from tests.unit.usecases.kubernetes.gpu_cluster import GpuCluster
from vgpuctl.errors import ClusterConflict, ClusterError, ClusterMissing

_POD = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)(/binding)?")
_NODE = re.compile(r"/api/v1/nodes/([^/]+)")


class _Answers:
    def __init__(self, cluster: GpuCluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()

    def answer(self, method: str, path: str, _query: dict[str, str], body: Any) -> tuple[int, Any]:
        try:
            with self._lock:
                return 200, self._call(method, path, body)
        except ClusterError as error:
            code = 404 if isinstance(error, ClusterMissing) else 409 if isinstance(error, ClusterConflict) else 403
            return code, status_object(code, error.message)

    def _call(self, method: str, path: str, body: Any) -> Any:
        cluster = self._cluster
        lists = {
            "/api/v1/nodes": ("NodeList", cluster.list_nodes),
            "/api/v1/pods": ("PodList", cluster.list_pods),
            "/apis/policy/v1/poddisruptionbudgets": ("PodDisruptionBudgetList", cluster.list_disruption_budgets),
        }
        if path in lists:
            kind, read = lists[path]
            return {"kind": kind, "metadata": {"resourceVersion": "1"}, "items": list(read())}
        if found := _NODE.fullmatch(path):
            if method == "PATCH":
                cluster.patch_node(found[1], body)
            return cluster.get_node(found[1])
        if (found := _POD.fullmatch(path)) is None:
            raise ClusterMissing(f"{path} is unknown")
        namespace, name, binding = found.groups()
        if binding:
            assert (body["kind"], body["target"]["kind"]) == ("Binding", "Node")
            cluster.bind_pod(namespace, name, body["metadata"]["uid"], body["target"]["name"])
            return status_object(200, "bound")
        if method == "PATCH":
            cluster.patch_pod(namespace, name, body)
        return cluster.get_pod(namespace, name)


@contextlib.contextmanager
def served(cluster: GpuCluster, folder: Path) -> Iterator[Path]:
    """Serve a cluster during the block. Yields a kubeconfig with the right token."""
    with serving_api(_Answers(cluster).answer) as address:
        file = folder / "kubeconfig.json"
        file.touch(0o600)
        file.write_text(kubeconfig_of(address))
        yield file
