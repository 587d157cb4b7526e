# SPDX-License-Identifier: Apache-2.0
"""Binding one pod so that HAMi's device plugin carries the decision out: node lock, annotations, Binding.

Undone in reverse when it fails. A successful bind leaves the node lock: the plugin finds the pod by it and removes it
in Allocate. Source: Project-HAMi/HAMi at 4707fb0, pkg/scheduler/scheduler.go Bind, pkg/util/nodelock/nodelock.go.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from vgpuctl.clusters.kubernetes import hami
from vgpuctl.clusters.kubernetes.hami import ContainerDevices, HamiFormatError, NodeLock
from vgpuctl.clusters.kubernetes.objects import Pod, is_name, read_node, read_pod
from vgpuctl.errors import (
    BindRefused,
    BindUnknown,
    ClusterConflict,
    ClusterError,
    ClusterMissing,
    ClusterUnreachable,
    VgpuctlError,
)

LOCK_WAIT_S = 3.0
"""Seconds that a bind waits for the plugin to take the pod before it."""

_LOOK_AGAIN_S = 0.1
_MOST_CONFLICTS = 8


class Cluster(Protocol):
    """The calls that are needed of the API server. Every call may raise ClusterError; objects are decoded JSON."""

    def list_nodes(self) -> Sequence[Any]: ...
    def list_pods(self) -> Sequence[Any]: ...
    def list_disruption_budgets(self) -> Sequence[Any]: ...
    def list_pod_groups(self) -> list[Any]: ...
    def get_pod_group(self, namespace: str, name: str) -> Any: ...
    def get_node(self, name: str) -> Any: ...
    def get_pod(self, namespace: str, name: str) -> Any: ...
    def patch_node(self, name: str, patch: Mapping[str, Any]) -> None: ...
    def patch_pod(self, namespace: str, name: str, patch: Mapping[str, Any]) -> None: ...
    def bind_pod(self, namespace: str, name: str, uid: str, node: str) -> None: ...


class PodBinder:
    """Binds pods of one cluster. now: wall clock. pause: waits seconds, True if the process is to end."""

    def __init__(
        self,
        cluster: Cluster,
        now: Callable[[], datetime],
        *,
        lock_wait_s: float = LOCK_WAIT_S,
        stop: threading.Event | None = None,
    ) -> None:
        self._cluster = cluster
        self._now = now
        self._stop = threading.Event() if stop is None else stop
        self._most_waits = int(lock_wait_s / _LOOK_AGAIN_S)

    def read(self, namespace: str, name: str, uid: str) -> Pod:
        """The pod as it is now. Raises BindRefused where it is gone or another one of this name, ClusterError."""
        try:
            pod = read_pod(self._cluster.get_pod(namespace, name))
        except ClusterMissing as error:
            raise BindRefused(f"pod {namespace}/{name} is gone") from error
        if pod.metadata.uid != uid:
            raise BindRefused(f"pod {namespace}/{name} is another one now, with uid {pod.metadata.uid}")
        return pod

    def bind(self, pod: Pod, node: str, devices: Sequence[ContainerDevices]) -> None:
        """Bind a pod with these devices of the node, none for a pod without GPU. Raises BindRefused, ClusterError.

        A pod that is on the node afterwards counts as bound, whatever was answered.
        """
        if not any(devices):
            self._create_binding(pod, node)
            return
        about = pod.metadata
        namespace, name = about.namespace, about.name
        self._lock(node, namespace, name)
        try:
            notes = hami.bind_annotations(node, devices, self._now())
            self._cluster.patch_pod(namespace, name, {"metadata": {"uid": about.uid, "annotations": notes}})
            try:
                self._create_binding(pod, node)
            except BindUnknown:
                raise
            except VgpuctlError:
                removed = dict.fromkeys(hami.WRITTEN_AT_BIND)
                self._cluster.patch_pod(namespace, name, {"metadata": {"uid": about.uid, "annotations": removed}})
                raise
        except BindUnknown:
            raise
        except VgpuctlError:
            self._unlock(node, namespace, name)
            raise

    def _create_binding(self, pod: Pod, node: str) -> None:
        about = pod.metadata
        try:
            self._cluster.bind_pod(about.namespace, about.name, about.uid, node)
        except ClusterError as error:
            # It may be bound though the answer was lost.
            try:
                now = self.read(about.namespace, about.name, about.uid).spec.node_name
            except ClusterUnreachable:
                raise BindUnknown(f"the API server was lost while it bound {about.namespace}/{about.name}") from error
            if now == node:
                return
            if now:
                raise BindRefused(f"pod {about.namespace}/{about.name} is bound to {now}, not to {node}") from None
            raise

    def _lock(self, node: str, namespace: str, name: str) -> None:
        waits = conflicts = 0
        while True:
            there = read_node(self._cluster.get_node(node))
            text = there.annotations.get(hami.LOCK, "")
            if text and not self._may_take(text, namespace, name):
                waits += 1
                if waits > self._most_waits or self._stop.wait(_LOOK_AGAIN_S):
                    raise BindRefused(
                        f"node {node} is locked for another pod that HAMi's device plugin has not taken: {text[:99]!a}"
                    )
                continue
            about = {
                "resourceVersion": there.metadata.resource_version,
                "annotations": {hami.LOCK: str(NodeLock(self._now(), namespace, name))},
            }
            try:
                self._cluster.patch_node(node, {"metadata": about})
                return
            except ClusterConflict as error:
                conflicts += 1
                if conflicts >= _MOST_CONFLICTS:
                    raise BindRefused(f"node {node} changed at each of {conflicts} attempts to lock it") from error

    def _may_take(self, text: str, namespace: str, name: str) -> bool:
        """True if a lock is the pod's own, is too old, or is of a pod that does not exist."""
        try:
            lock = hami.read_lock(text)
        except HamiFormatError:
            return False
        if lock.is_of(namespace, name) or lock.is_expired(self._now()):
            return True
        if not (is_name(lock.namespace) and is_name(lock.pod)):
            return False
        try:
            self._cluster.get_pod(lock.namespace, lock.pod)
        except ClusterMissing:
            return True
        return False

    def _unlock(self, node: str, namespace: str, name: str) -> None:
        """Remove the pod's own lock, and no other's."""
        for _ in range(_MOST_CONFLICTS):
            there = read_node(self._cluster.get_node(node))
            try:
                if not hami.read_lock(there.annotations.get(hami.LOCK, "")).is_of(namespace, name):
                    return
            except HamiFormatError:
                return
            about = {"resourceVersion": there.metadata.resource_version, "annotations": {hami.LOCK: None}}
            try:
                self._cluster.patch_node(node, {"metadata": about})
                return
            except ClusterConflict:
                continue
