# SPDX-License-Identifier: Apache-2.0
"""The requests to an API server that the placement of shared GPUs makes: nodes, pods, node locks, bindings.

Objects are returned as decoded JSON, to be read by objects.py beside this file.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightkube import KubeConfig
from lightkube.models.core_v1 import ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Binding, Node, Pod, PodBinding
from lightkube.resources.policy_v1 import PodDisruptionBudget
from lightkube.types import PatchType

from vgpuctl.clusters.kubernetes.api_server import PAGE, TIMEOUT_S, ApiServer
from vgpuctl.errors import UsageError


class GpuApi:
    """One cluster, for many threads."""

    def __init__(self, kubeconfig: Path | None, *, timeout_s: float = TIMEOUT_S) -> None:
        """kubeconfig: None for the service account of the pod that this process runs in.

        Raises UsageError where the file, or the service account, cannot be used.
        """
        where = "the pod's service account" if kubeconfig is None else str(kubeconfig)
        try:
            config = KubeConfig.from_service_account() if kubeconfig is None else KubeConfig.from_file(kubeconfig)
            server = ApiServer(config, where=where, rights="docs/extender.md", timeout_s=timeout_s)
        except Exception as error:
            # The library lets its YAML reader's and decoder's errors through.
            raise UsageError(
                f"{where} gives no access to an API server: {error}", hint="give --kubeconfig FILE"
            ) from error
        self._client, self._ask = server.client, server.ask

    def list_nodes(self) -> list[Any]:
        """Every node."""
        return self._ask("list nodes", lambda: [one.to_dict() for one in self._client.list(Node, chunk_size=PAGE)])

    def list_pods(self) -> list[Any]:
        """Every pod of every namespace."""
        return self._ask(
            "list pods",
            lambda: [one.to_dict() for one in self._client.list(Pod, namespace="*", chunk_size=PAGE)],
        )

    def list_disruption_budgets(self) -> list[Any]:
        """Every PodDisruptionBudget."""
        return self._ask(
            "list disruption budgets",
            lambda: [one.to_dict() for one in self._client.list(PodDisruptionBudget, namespace="*", chunk_size=PAGE)],
        )

    def get_node(self, name: str) -> Any:
        """One node. Raises ClusterMissing."""
        return self._ask(f"get node {name}", lambda: self._client.get(Node, name).to_dict())

    def get_pod(self, namespace: str, name: str) -> Any:
        """One pod. Raises ClusterMissing."""
        return self._ask(
            f"get pod {namespace}/{name}", lambda: self._client.get(Pod, name, namespace=namespace).to_dict()
        )

    def patch_node(self, name: str, patch: Mapping[str, Any]) -> None:
        """Merge a patch into a node. Raises ClusterConflict where its resourceVersion is another one."""
        self._ask(f"patch node {name}", lambda: self._client.patch(Node, name, patch, patch_type=PatchType.MERGE))

    def patch_pod(self, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        """Merge a patch into a pod. Raises ClusterConflict where its uid is another one."""
        self._ask(
            f"patch pod {namespace}/{name}",
            lambda: self._client.patch(Pod, name, patch, namespace=namespace, patch_type=PatchType.MERGE),
        )

    def bind_pod(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Create the Binding of a pod. Raises ClusterConflict where it is bound or of another uid."""
        binding = Binding(
            metadata=ObjectMeta(name=name, namespace=namespace, uid=uid),
            target=ObjectReference(apiVersion="v1", kind="Node", name=node),
        )
        self._ask(f"bind pod {namespace}/{name}", lambda: self._bind(binding, name, namespace))

    def _bind(self, binding: Binding, name: str, namespace: str) -> None:
        body = binding.to_dict() | {"apiVersion": "v1", "kind": "Binding"}
        self._client.create(PodBinding.from_dict(body), name, namespace=namespace)
