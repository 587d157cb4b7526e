# SPDX-License-Identifier: Apache-2.0
"""One Kubernetes cluster of a tenant: its nodes are read, cordoned, drained and forgotten by its API server."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from lightkube import KubeConfig

from vgpuctl.clusters.kubernetes.api_server import TIMEOUT_S, ApiServer
from vgpuctl.clusters.kubernetes.bounded_transport import IpAddress
from vgpuctl.clusters.kubernetes.node_objects import (
    CORDON_REASON,
    LONGEST_REASON,
    JoinedNode,
    PlacedPod,
    UnreadableObject,
    read_joined_node,
    read_placed_pod,
)
from vgpuctl.errors import ClusterConflict, ClusterMissing, ClusterRefused
from vgpuctl.model.cluster_member import ClusterMember
from vgpuctl.model.plural import counted
from vgpuctl.model.printable import printable

_MOST_PODS = 1000
_EVICTIONS_S = 30.0
"""Of one call; the pods that are left are for the next."""
_TOO_MANY_REQUESTS = 429
_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")


class KubernetesLink:
    """One cluster. Implements vgpuctl.usecases.running.cluster_link.ClusterLink.

    Only nodes whose provider id is one of this tenant's are read or changed: `vgpuctl://ZONE/TENANT/UUID`. An object
    that cannot be read is logged and passed over; on a node that is drained it counts as a pod that is still there.
    """

    def __init__(
        self,
        config: KubeConfig,
        *,
        tenant: str,
        name: str,
        timeout_s: float = TIMEOUT_S,
        check: Callable[[IpAddress], None] | None = None,
    ) -> None:
        where = f"cluster {name} of tenant {tenant}"
        self._server = ApiServer(config, where=where, rights="docs/kubernetes.md", timeout_s=timeout_s, check=check)
        self._where = where
        self._tenant = tenant

    def members(self) -> Sequence[ClusterMember]:
        """The tenant's nodes that the cluster knows."""
        unreadable: list[str] = []
        nodes = self._readable(self._server.list("list nodes", "/api/v1/nodes"), read_joined_node, unreadable)
        return [node.member() for node in nodes if node.is_of(self._tenant)]

    def cordon(self, node: str, reason: str) -> bool:
        """Let the node take no new pods. One that is cordoned already stays as it is, by whomever."""
        there = self._find(node)
        if there is None or there.is_cordoned:
            return False
        note = printable(reason)[:LONGEST_REASON]
        return self._cordon(there, f"cordon node {node}", note, is_cordoned=True)

    def uncordon(self, node: str) -> bool:
        """Let the node take pods again, where vgpuctl has cordoned it."""
        there = self._find(node)
        if there is None or not there.has_our_cordon:
            return False
        return self._cordon(there, f"uncordon node {node}", None, is_cordoned=None)

    def relabel(self, node: str, labels: Mapping[str, str | None]) -> None:
        """Set labels of the node, and remove those that are None."""
        there = self._find(node)
        if there is not None:
            self._patch(there, f"label node {node}", {"metadata": {"labels": dict(labels)}})

    def drain(self, node: str) -> Sequence[str]:
        """Evict the pods of a cordoned node, without waiting. Returns those that are still there.

        Pods of DaemonSets, pods of the kubelet and finished ones stay, as with `kubectl drain`. A pod whose
        PodDisruptionBudget does not allow it now stays until the next call. `safe-to-evict` annotations are advice for
        the cluster-autoscaler and do not count here: the VM stops.
        """
        if self._find(node) is None:
            return []
        unreadable: list[str] = []
        listed = self._server.list(
            f"list the pods of node {node}", "/api/v1/pods", fieldSelector=f"spec.nodeName={node}"
        )
        leaving = [pod for pod in self._readable(listed, read_placed_pod, unreadable) if pod.has_to_leave(node)]
        give_up = time.monotonic() + _EVICTIONS_S
        for pod in leaving[:_MOST_PODS]:
            if time.monotonic() < give_up:
                self._evict(pod)
        left = [f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in leaving]
        return [*left, *([counted(len(unreadable), "unreadable pod")] if unreadable else [])]

    def refuse(self, node: str, reason: str) -> None:
        """Nothing: a node that never came has no object, and the autoscaler reads the reason of its node group."""

    def forget(self, node: str, provider_id: str) -> None:
        """Delete the Node object of a VM that is gone; one with another provider id is another node."""
        there = self._find(node)
        if there is None or there.provider_id != provider_id:
            return
        try:
            self._server.delete(f"delete node {node}", _path_of(node), there.metadata.uid)
        except (ClusterMissing, ClusterConflict):
            return  # It is gone, or a node of this name has registered since.

    def close(self) -> None:
        """Close the connections."""
        self._server.close()

    def _readable(
        self, listed: Iterable[msgspec.Raw], read: Callable[[msgspec.Raw], T], unreadable: list[str]
    ) -> Iterator[T]:
        """The objects of a list that can be read. unreadable: gets what is wrong with each other one."""
        for one in listed:
            try:
                yield read(one)
            except UnreadableObject as error:
                unreadable.append(str(error))
        if unreadable:
            about = {"cluster": self._where, "objects": len(unreadable), "error": unreadable[0]}
            _LOGGER.warning("unreadable-objects", extra={"fields": about})

    def _find(self, name: str) -> JoinedNode | None:
        """The tenant's node of this name, None where the cluster has none."""
        what = f"get node {name}"
        try:
            found = read_joined_node(self._server.get(what, _path_of(name), msgspec.Raw))
        except ClusterMissing:
            return None
        except UnreadableObject as error:
            raise ClusterRefused(f"the API server's answer to {what} cannot be read: {error}") from error
        return found if found.metadata.name == name and found.is_of(self._tenant) else None

    def _cordon(self, node: JoinedNode, what: str, note: str | None, *, is_cordoned: bool | None) -> bool:
        change: dict[str, dict[str, Any]] = {
            "metadata": {"annotations": {CORDON_REASON: note}},
            "spec": {"unschedulable": is_cordoned},
        }
        return self._patch(node, what, change)

    def _patch(self, node: JoinedNode, what: str, change: Mapping[str, Mapping[str, Any]]) -> bool:
        """Change the node as it was read; another's change in between is another's decision, and stays.

        Returns False for a node that is gone.
        """
        about = {**change["metadata"], "resourceVersion": node.metadata.resource_version}
        try:
            self._server.patch(what, _path_of(node.metadata.name), {**change, "metadata": about})
        except ClusterMissing:
            return False
        except ClusterConflict as error:
            message = f"node {node.metadata.name} was just changed by another: {error.message}"
            raise ClusterRefused(message) from error
        return True

    def _evict(self, pod: PlacedPod) -> None:
        """Ask for the eviction of the pod that was listed; a new pod of its name stays."""
        about = pod.metadata
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": about.name, "namespace": about.namespace},
            "deleteOptions": {"preconditions": {"uid": about.uid}},
        }
        path = f"/api/v1/namespaces/{about.namespace}/pods/{about.name}/eviction"
        what = f"evict pod {about.namespace}/{about.name}"
        try:
            self._server.create(what, path, eviction, accepted=(_TOO_MANY_REQUESTS,))
        except (ClusterMissing, ClusterConflict):
            return


def _path_of(node: str) -> str:
    return f"/api/v1/nodes/{node}"
