# SPDX-License-Identifier: Apache-2.0
"""The parts of a tenant's nodes, and of the pods on them, that vgpuctl reads, one object at a time.

The extender reads other parts of the same objects (objects.py).
"""

from typing import Any

import msgspec

from vgpuctl.clusters.kubernetes.objects import is_name, is_uid
from vgpuctl.model.cluster_member import ClusterMember
from vgpuctl.model.place_labels import PLACE_LABELS
from vgpuctl.model.printable import printable
from vgpuctl.typed_json import decode

CORDON_REASON = "vgpuctl.io/cordon-reason"
"""The annotation by which vgpuctl knows its own cordons."""

_MIRROR = "kubernetes.io/config.mirror"
"""Of a pod that the kubelet runs from a file: it cannot be evicted."""

LONGEST_REASON = 200
_MOST_RESOURCES = 100
_LONGEST_AMOUNT = 40
_LONGEST_RESOURCE = 317
"""A domain of 253 characters, a stroke, and a name of 63."""


class UnreadableObject(ValueError):
    """An object of a list cannot be read."""


class _Owner(msgspec.Struct):
    kind: str = ""
    controller: bool | None = None


class _About(msgspec.Struct, rename="camel"):
    """The metadata."""

    name: str
    uid: str = ""
    namespace: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class _JoinedSpec(msgspec.Struct):
    provider_id: str | None = msgspec.field(name="providerID", default=None)
    unschedulable: bool | None = None


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    message: str | None = None


class _JoinedStatus(msgspec.Struct):
    conditions: list[_Condition] | None = None
    allocatable: dict[str, str | int | float] | None = None


class JoinedNode(msgspec.Struct):
    """A node that joined a tenant's cluster."""

    metadata: _About
    spec: _JoinedSpec = msgspec.field(default_factory=_JoinedSpec)
    status: _JoinedStatus | None = None

    @property
    def provider_id(self) -> str:
        """As its kubelet registered it; "" for none."""
        return self.spec.provider_id or ""

    @property
    def is_cordoned(self) -> bool:
        """True if it takes no new pods."""
        return bool(self.spec.unschedulable)

    @property
    def annotations(self) -> dict[str, str]:
        """Its annotations."""
        return self.metadata.annotations or {}

    @property
    def has_our_cordon(self) -> bool:
        """True if vgpuctl has cordoned it."""
        return self.is_cordoned and CORDON_REASON in self.annotations

    def is_of(self, tenant: str) -> bool:
        """True if its VM is this tenant's: `vgpuctl://ZONE/TENANT/UUID`."""
        parts = self.provider_id.removeprefix("vgpuctl://").split("/")
        return self.provider_id.startswith("vgpuctl://") and len(parts) == 3 and parts[1] == tenant

    def member(self) -> ClusterMember:
        """The node as every cluster tells of one."""
        status = self.status or _JoinedStatus()
        conditions = [one for one in status.conditions or () if one.type == "Ready"]
        bad = next((one.message or "" for one in conditions if one.status != "True"), "")
        amounts = list((status.allocatable or {}).items())[:_MOST_RESOURCES]
        ours = [(key, value) for key, value in (self.metadata.labels or {}).items() if key in PLACE_LABELS]
        return ClusterMember(
            name=printable(self.metadata.name),
            provider_id=self.provider_id,
            is_ready=any(one.status == "True" for one in conditions),
            is_cordoned=self.is_cordoned,
            has_our_cordon=self.has_our_cordon,
            reason=printable(bad[:LONGEST_REASON]),
            allocatable={
                printable(name[:_LONGEST_RESOURCE]): printable(str(amount)[:_LONGEST_AMOUNT])
                for name, amount in amounts
            },
            labels={key: printable(value[:LONGEST_REASON]) for key, value in ours},
        )


class _PlacedSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _PlacedStatus(msgspec.Struct):
    phase: str = ""


class PlacedPod(msgspec.Struct):
    """A pod on a node."""

    metadata: _About
    spec: _PlacedSpec
    status: _PlacedStatus = msgspec.field(default_factory=_PlacedStatus)

    def has_to_leave(self, node: str) -> bool:
        """True if it is on the node and is one that a drain evicts."""
        if self.spec.node_name != node or _MIRROR in (self.metadata.annotations or {}):
            return False
        if self.status.phase in ("Succeeded", "Failed"):
            return False
        return not any(one.kind == "DaemonSet" and one.controller for one in self.metadata.owner_references or [])


def read_joined_node(content: msgspec.Raw | bytes) -> JoinedNode:
    """A node out of JSON. Raises UnreadableObject."""
    node: JoinedNode = _decoded(content, JoinedNode)
    if not is_name(node.metadata.name):
        raise UnreadableObject("a node whose name no node can have")
    return node


def read_placed_pod(content: msgspec.Raw | bytes) -> PlacedPod:
    """A pod out of JSON, whose names may be a part of a path. Raises UnreadableObject."""
    pod: PlacedPod = _decoded(content, PlacedPod)
    about = pod.metadata
    if not is_name(about.name) or not is_name(about.namespace) or not is_uid(about.uid):
        raise UnreadableObject("a pod whose name, namespace or uid no pod can have")
    return pod


def _decoded(content: msgspec.Raw | bytes, kind: Any) -> Any:
    try:
        return decode(bytes(content), kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableObject(printable(str(error)[:LONGEST_REASON])) from error
