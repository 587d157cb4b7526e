# SPDX-License-Identifier: Apache-2.0
"""One Kubernetes cluster of a tenant: its nodes are read, cordoned, drained and forgotten by its API server."""

import re
from collections.abc import Iterator, Sequence
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
_MOST_OBJECTS = 100_000
_LONGEST_AMOUNT = 40
_OBJECT_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
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
        return self._server.ask("list nodes", lambda: [_member(one) for one in self._all(Node) if self._is_ours(one)])

    def cordon(self, node: str, reason: str) -> None:
        """Let the node take no new pods. One that is cordoned already stays as it is, by whomever."""
        there = self._find(node)
        if there is None or there.spec.unschedulable:
            return
        note = printable(reason)[:_LONGEST_REASON]
        self._patch(there, f"cordon node {node}", {CORDON_REASON: note}, is_cordoned=True)

    def uncordon(self, node: str) -> None:
        """Let the node take pods again, where vgpuctl has cordoned it."""
        there = self._find(node)
        if there is not None and there.spec.unschedulable and CORDON_REASON in (there.metadata.annotations or {}):
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
        leaving = self._server.ask(
            f"list the pods of node {node}",
            lambda: [_name_of(one) for one in self._all(Pod, namespace="*", fields=fields) if _has_to_leave(one, node)],
        )
        for namespace, name in leaving[:_MOST_PODS]:
            self._evict(namespace, name)
        return [f"{namespace}/{name}" for namespace, name in leaving]

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
        """Close the connections."""
        self._server.close()

    def _all(self, kind: Any, **which: Any) -> Iterator[Any]:
        """The objects of a list, page by page. Raises ClusterRefused for one that does not end."""
        for number, one in enumerate(self._server.client.list(kind, chunk_size=PAGE, **which)):
            if number >= _MOST_OBJECTS:
                raise ClusterRefused(f"the API server lists more than {_MOST_OBJECTS} objects")
            yield one

    def _find(self, name: str) -> Any:
        """The tenant's node of this name, None where the cluster has none."""

        def find() -> Any:
            found = self._server.client.get(Node, name)
            return found if found.metadata.name == name and self._is_ours(found) else None

        try:
            return self._server.ask(f"get node {name}", find)
        except ClusterMissing:
            return None

    def _is_ours(self, node: Any) -> bool:
        provider_id = (node.spec.providerID if node.spec is not None else None) or ""
        parts = provider_id.removeprefix("vgpuctl://").split("/")
        return provider_id.startswith("vgpuctl://") and len(parts) == 3 and parts[1] == self._tenant

    def _patch(self, node: Any, what: str, notes: dict[str, str | None], *, is_cordoned: bool | None) -> None:
        """Change the node as it was read; another's change in between is another's decision, and stays."""
        about = {"annotations": notes, "resourceVersion": node.metadata.resourceVersion}
        patch = {"metadata": about, "spec": {"unschedulable": is_cordoned}}
        name = node.metadata.name  # as it was asked for
        try:
            self._server.ask(what, lambda: self._server.client.patch(Node, name, patch, patch_type=PatchType.MERGE))
        except ClusterMissing:
            return
        except ClusterConflict as error:
            raise ClusterRefused(f"node {name} was just changed by another: {error.message}") from error

    def _evict(self, namespace: str, name: str) -> None:
        eviction = PodEviction(metadata=ObjectMeta(name=name, namespace=namespace))
        what = f"evict pod {namespace}/{name}"

        def create() -> None:
            from lightkube import ApiError

            try:
                self._server.client.create(eviction, name, namespace=namespace)
            except ApiError as error:
                if error.status.code != _TOO_MANY_REQUESTS:
                    raise

        try:
            self._server.ask(what, create)
        except (ClusterMissing, ClusterConflict):
            return


def _name_of(pod: Any) -> tuple[str, str]:
    """The namespace and name of a pod, which become a part of a path. Raises ClusterRefused for what no pod has."""
    names = pod.metadata.namespace, pod.metadata.name
    if not all(isinstance(one, str) and _OBJECT_NAME.fullmatch(one) for one in names):
        raise ClusterRefused("the API server lists a pod whose name no pod can have")
    return names


def _member(node: Any) -> ClusterMember:
    status = node.status
    conditions = (status.conditions if status is not None else None) or []
    is_ready = any(one.type == "Ready" and one.status == "True" for one in conditions)
    reason = next((one.message or "" for one in conditions if one.type == "Ready" and one.status != "True"), "")
    return ClusterMember(
        name=printable(str(node.metadata.name)),
        provider_id=node.spec.providerID,
        is_ready=is_ready,
        is_cordoned=bool(node.spec.unschedulable),
        reason=printable(reason[:_LONGEST_REASON]),
        allocatable={
            printable(str(name)): printable(str(amount)[:_LONGEST_AMOUNT])
            for name, amount in ((status.allocatable if status is not None else None) or {}).items()
        },
    )


def _has_to_leave(pod: Any, node: str) -> bool:
    """True if a pod is on the node and is one that a drain evicts."""
    if pod.spec is None or pod.spec.nodeName != node or _MIRROR in (pod.metadata.annotations or {}):
        return False
    if pod.status is not None and pod.status.phase in ("Succeeded", "Failed"):
        return False
    return not any(one.kind == "DaemonSet" and one.controller for one in pod.metadata.ownerReferences or [])
