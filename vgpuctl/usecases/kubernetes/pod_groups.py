# SPDX-License-Identifier: Apache-2.0
"""The size of a gang from its PodGroup, for pods of the coscheduling plugin that do not say it themselves.

Source: scheduler-plugins.sigs.k8s.io, Coscheduling: the label `scheduling.x-k8s.io/pod-group`, `spec.minMember`.
"""

from typing import Any, Protocol

import msgspec

from vgpuctl.clusters.kubernetes.objects import ObjectError, Pod, is_name
from vgpuctl.errors import ClusterMissing, ClusterRefused, VgpuctlError
from vgpuctl.usecases.kubernetes.pod_demand import GANG_SIZE

GROUP_LABEL = "scheduling.x-k8s.io/pod-group"


class GroupCluster(Protocol):
    """The calls that are needed of the API server. Every call may raise ClusterError; objects are decoded JSON."""

    def list_pod_groups(self) -> list[Any]: ...
    def get_pod_group(self, namespace: str, name: str) -> Any: ...


class _GroupMetadata(msgspec.Struct):
    name: str
    namespace: str


class _GroupSpec(msgspec.Struct, rename="camel"):
    min_member: int = 0


class _PodGroup(msgspec.Struct):
    metadata: _GroupMetadata
    spec: _GroupSpec = msgspec.field(default_factory=_GroupSpec)


class PodGroups:
    """The PodGroups of one cluster, for many threads: those of the last refresh, and new ones when a pod names them."""

    def __init__(self, cluster: GroupCluster) -> None:
        self._cluster = cluster
        self._sizes: dict[tuple[str, str], int] = {}

    def refresh(self) -> None:
        """Read all. A cluster without the resource has none. Raises ClusterUnreachable."""
        try:
            listed = self._cluster.list_pod_groups()
        except ClusterRefused:  # also ClusterMissing: the resource is not installed
            listed = []
        sizes = {}
        for one in listed:
            try:
                found = _read(one)
            except ObjectError:
                continue
            sizes[found.metadata.namespace, found.metadata.name] = found.spec.min_member
        self._sizes = sizes

    def sized(self, pod: Pod) -> Pod:
        """The pod with the size of its PodGroup as the size of its gang, where it has none of its own.

        A pod whose PodGroup is missing stays alone. Raises ObjectError for one that cannot be read, so that no gang is
        split.
        """
        name = pod.labels.get(GROUP_LABEL, "")
        if not name or (pod.labels | pod.annotations).get(GANG_SIZE):
            return pod
        size = self._size(pod.metadata.namespace or "default", name)
        if size < 2:
            return pod
        about = msgspec.structs.replace(pod.metadata, annotations=pod.annotations | {GANG_SIZE: str(size)})
        return msgspec.structs.replace(pod, metadata=about)

    def sized_if_known(self, pod: Pod) -> Pod:
        """The same for a pod of a list, which stays as it is where its PodGroup is not at hand."""
        key = pod.metadata.namespace or "default", pod.labels.get(GROUP_LABEL, "")
        return self.sized(pod) if key in self._sizes else pod

    def _size(self, namespace: str, name: str) -> int:
        if (namespace, name) in self._sizes:
            return self._sizes[namespace, name]
        if not is_name(name):
            raise ObjectError(f"{GROUP_LABEL} {name[:60]!a} is no name of a PodGroup")
        try:
            size = _read(self._cluster.get_pod_group(namespace, name)).spec.min_member
        except ClusterMissing:
            return 0
        except VgpuctlError as error:
            raise ObjectError(f"its PodGroup {namespace}/{name} cannot be read: {error.message}") from error
        self._sizes[namespace, name] = size
        return size


def _read(value: Any) -> _PodGroup:
    try:
        return msgspec.convert(value, _PodGroup)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ObjectError(f"a PodGroup cannot be read: {error}") from error
