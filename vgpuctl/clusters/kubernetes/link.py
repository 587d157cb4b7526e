# SPDX-License-Identifier: Apache-2.0
"""One Kubernetes cluster of a tenant: its nodes are read, cordoned, drained and forgotten by its API server."""

from collections.abc import Sequence
from typing import Any

from lightkube import KubeConfig
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node, Pod, PodEviction
from lightkube.types import PatchType

from vgpuctl.clusters.kubernetes.api_server import PAGE, TIMEOUT_S, ApiServer
from vgpuctl.errors import ClusterConflict, ClusterMissing, ClusterRefused
from vgpuctl.model.cluster_member import ClusterMember
from vgpuctl.model.printable import printable

CORDON_REASON = "vgpuctl.io/cordon-reason"
"""The annotation by which vgpuctl knows its own cordons."""

_MIRROR = "kubernetes.io/config.mirror"
"""Of a pod that the kubelet runs from a file: it cannot be evicted."""

_MOST_PODS = 1000
_LONGEST_REASON = 200
_TOO_MANY_REQUESTS = 429


class KubernetesLink:
    """One cluster. Implements vgpuctl.usecases.support.cluster_link.ClusterLink.

    Only nodes whose provider id is one of this tenant's are read or changed: `vgpuctl://ZONE/TENANT/UUID`.
    """

    def __init__(self, config: KubeConfig, *, tenant: str, name: str, timeout_s: float = TIMEOUT_S) -> None:
        where = f"cluster {name} of tenant {tenant}"
        self._server = ApiServer(config, where=where, rights="docs/kubernetes.md", timeout_s=timeout_s)
        self._tenant = tenant

    def members(self) -> Sequence[ClusterMember]:
        """The tenant's nodes that the cluster knows."""
        nodes = self._server.ask("list nodes", lambda: list(self._server.client.list(Node, chunk_size=PAGE)))
        return [_member(one) for one in nodes if self._is_ours(one)]

    def cordon(self, node: str, reason: str) -> None:
        """Let the node take no new pods. One that is cordoned already stays as it is, by whomever."""
        there = self._find(node)
        if there is None or (there.spec is not None and there.spec.unschedulable):
            return
        note = printable(reason)[:_LONGEST_REASON]
        self._patch(there, f"cordon node {node}", {CORDON_REASON: note}, is_cordoned=True)

    def uncordon(self, node: str) -> None:
        """Let the node take pods again, where vgpuctl has cordoned it."""
        there = self._find(node)
        if there is not None and CORDON_REASON in (there.metadata.annotations or {}):
            self._patch(there, f"uncordon node {node}", {CORDON_REASON: None}, is_cordoned=None)

    def drain(self, node: str) -> Sequence[str]:
        """Evict the pods of a cordoned node, without waiting. Returns those that are still there.

        Pods of DaemonSets, pods of the kubelet and finished ones stay, as with `kubectl drain`. A pod whose
        PodDisruptionBudget does not allow it now stays until the next call. `safe-to-evict` annotations are advice for
        the cluster-autoscaler and do not count here: the VM stops.
        """
        if self._find(node) is None:
            return []
        fields = {"spec.nodeName": node}
        pods = self._server.ask(
            f"list the pods of node {node}",
            lambda: list(self._server.client.list(Pod, namespace="*", fields=fields, chunk_size=PAGE)),
        )
        leaving = [one for one in pods if _has_to_leave(one, node)]
        for pod in leaving[:_MOST_PODS]:
            self._evict(pod)
        return [printable(f"{one.metadata.namespace}/{one.metadata.name}") for one in leaving]

    def refuse(self, node: str, reason: str) -> None:
        """Nothing: a node that never came has no object, and the autoscaler reads the reason of its node group."""

    def forget(self, node: str, provider_id: str) -> None:
        """Delete the Node object of a VM that is gone; one with another provider id is another node."""
        there = self._find(node)
        if there is None or there.spec.providerID != provider_id:
            return
        try:
            self._server.ask(f"delete node {node}", lambda: self._server.client.delete(Node, node))
        except ClusterMissing:
            return

    def close(self) -> None:
        """Close nothing: each call ends its own connection."""

    def _find(self, name: str) -> Any:
        """The tenant's node of this name, None where the cluster has none."""
        try:
            found = self._server.ask(f"get node {name}", lambda: self._server.client.get(Node, name))
        except ClusterMissing:
            return None
        return found if self._is_ours(found) else None

    def _is_ours(self, node: Any) -> bool:
        provider_id = (node.spec.providerID if node.spec is not None else None) or ""
        parts = provider_id.removeprefix("vgpuctl://").split("/")
        return provider_id.startswith("vgpuctl://") and len(parts) == 3 and parts[1] == self._tenant

    def _patch(self, node: Any, what: str, notes: dict[str, str | None], *, is_cordoned: bool | None) -> None:
        """Change the node as it was read; another's change in between is another's decision, and stays."""
        about = {"annotations": notes, "resourceVersion": node.metadata.resourceVersion}
        patch = {"metadata": about, "spec": {"unschedulable": is_cordoned}}
        name = node.metadata.name
        try:
            self._server.ask(what, lambda: self._server.client.patch(Node, name, patch, patch_type=PatchType.MERGE))
        except ClusterMissing:
            return
        except ClusterConflict as error:
            raise ClusterRefused(f"node {name} was just changed by another: {error.message}") from error

    def _evict(self, pod: Any) -> None:
        about = pod.metadata
        eviction = PodEviction(metadata=ObjectMeta(name=about.name, namespace=about.namespace))
        what = f"evict pod {printable(about.namespace)}/{printable(about.name)}"

        def create() -> None:
            from lightkube import ApiError

            try:
                self._server.client.create(eviction, about.name, namespace=about.namespace)
            except ApiError as error:
                if error.status.code != _TOO_MANY_REQUESTS:
                    raise

        try:
            self._server.ask(what, create)
        except (ClusterMissing, ClusterConflict):
            return


def _member(node: Any) -> ClusterMember:
    status = node.status
    conditions = (status.conditions if status is not None else None) or []
    is_ready = any(one.type == "Ready" and one.status == "True" for one in conditions)
    reason = next((one.message or "" for one in conditions if one.type == "Ready" and one.status != "True"), "")
    return ClusterMember(
        name=node.metadata.name,
        provider_id=node.spec.providerID,
        is_ready=is_ready,
        is_cordoned=bool(node.spec.unschedulable),
        reason=printable(reason[:_LONGEST_REASON]),
        allocatable=dict((status.allocatable if status is not None else None) or {}),
    )


def _has_to_leave(pod: Any, node: str) -> bool:
    """True if a pod is on the node and is one that a drain evicts."""
    if pod.spec is None or pod.spec.nodeName != node or _MIRROR in (pod.metadata.annotations or {}):
        return False
    if pod.status is not None and pod.status.phase in ("Succeeded", "Failed"):
        return False
    return not any(one.kind == "DaemonSet" and one.controller for one in pod.metadata.ownerReferences or [])
