# SPDX-License-Identifier: Apache-2.0
"""The requests to an API server that the placement of shared GPUs makes: nodes, pods, node locks, bindings.

Objects are returned as decoded JSON, to be read by objects.py beside this file.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightkube import KubeConfig
from lightkube.config.models import User

from vgpuctl.clusters.kubernetes.api_server import TIMEOUT_S, ApiServer
from vgpuctl.errors import FileNotTrusted, UsageError
from vgpuctl.specs.document import read_document
from vgpuctl.trusted_files import NAMED, NAMED_SECRET, judge
from vgpuctl.trusted_programs import judge_program
from vgpuctl.typed_json import decode

_POD_GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1"


def _read(kubeconfig: Path) -> KubeConfig:
    """Read the operator's file. Raises FileNotTrusted for it, and for a file or program that it names."""
    config = KubeConfig.from_dict(read_document(str(kubeconfig), NAMED).data, fname=kubeconfig)
    one = config.get()
    if one is None:
        return config
    user = one.user or User()
    if user.token or user.password or user.client_key_data:
        judge(kubeconfig, NAMED_SECRET)
    for path, trust in (
        (one.cluster.certificate_auth, NAMED),
        (user.client_cert, NAMED),
        (user.client_key, NAMED_SECRET),
    ):
        if path:
            judge(one.abs_file(path), trust)
    if user.token_file:
        judge(user.token_file, NAMED_SECRET)
    if user.exec:
        judge_program(user.exec.command)
    return config


class GpuApi:
    """One cluster, for many threads."""

    def __init__(self, kubeconfig: Path | None, *, timeout_s: float = TIMEOUT_S) -> None:
        """kubeconfig: None for the service account of the pod that this process runs in.

        Raises UsageError where the file, or the service account, cannot be used.
        """
        where = "the pod's service account" if kubeconfig is None else str(kubeconfig)
        try:
            config = KubeConfig.from_service_account() if kubeconfig is None else _read(kubeconfig)
            self._server = ApiServer(config, where=where, rights="docs/extender.md", timeout_s=timeout_s)
        except FileNotTrusted:
            raise
        except Exception as error:
            # The library lets its YAML reader's and decoder's errors through.
            raise UsageError(
                f"{where} gives no access to an API server: {error}", hint="give --kubeconfig FILE"
            ) from error

    def list_nodes(self) -> list[Any]:
        """Every node."""
        return self._list("list nodes", "/api/v1/nodes")

    def list_pods(self) -> list[Any]:
        """Every pod of every namespace."""
        return self._list("list pods", "/api/v1/pods")

    def list_disruption_budgets(self) -> list[Any]:
        """Every PodDisruptionBudget."""
        return self._list("list disruption budgets", "/apis/policy/v1/poddisruptionbudgets")

    def list_pod_groups(self) -> list[Any]:
        """Every PodGroup of the coscheduling plugin. Raises ClusterMissing where the resource is not installed."""
        return self._list("list pod groups", f"{_POD_GROUPS}/podgroups")

    def get_pod_group(self, namespace: str, name: str) -> Any:
        """One PodGroup. Raises ClusterMissing."""
        path = f"{_POD_GROUPS}/namespaces/{namespace}/podgroups/{name}"
        return self._server.get(f"get pod group {namespace}/{name}", path)

    def get_node(self, name: str) -> Any:
        """One node. Raises ClusterMissing."""
        return self._server.get(f"get node {name}", f"/api/v1/nodes/{name}")

    def get_pod(self, namespace: str, name: str) -> Any:
        """One pod. Raises ClusterMissing."""
        return self._server.get(f"get pod {namespace}/{name}", _path_of(namespace, name))

    def patch_node(self, name: str, patch: Mapping[str, Any]) -> None:
        """Merge a patch into a node. Raises ClusterConflict where its resourceVersion is another one."""
        self._server.patch(f"patch node {name}", f"/api/v1/nodes/{name}", patch)

    def patch_pod(self, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        """Merge a patch into a pod. Raises ClusterConflict where its uid is another one."""
        self._server.patch(f"patch pod {namespace}/{name}", _path_of(namespace, name), patch)

    def bind_pod(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Create the Binding of a pod. Raises ClusterConflict where it is bound or of another uid."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self._server.create(f"bind pod {namespace}/{name}", f"{_path_of(namespace, name)}/binding", binding)

    def _list(self, what: str, path: str) -> list[Any]:
        return [decode(bytes(one), Any) for one in self._server.list(what, path)]


def _path_of(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"
