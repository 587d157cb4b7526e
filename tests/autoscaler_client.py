# SPDX-License-Identifier: Apache-2.0
"""A cluster-autoscaler for tests: its loop in its real order of calls, with a cluster that is a list of nodes.

Sources (kubernetes/autoscaler, release-1.37): core/static_autoscaler.go RunOnce, clusterstate/clusterstate.go, and
core/scaledown/actuation. Its clock is the test's: `now` in seconds. Pods fill one node each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from tests.autoscaler_protos import SERVICE, Release

_REQUESTS = {"NodeGroupGetOptions": "NodeGroupAutoscalingOptions"}
RUNNING, CREATING, DELETING = 1, 2, 3


class Provider:
    """The autoscaler's client. Each call has one deadline, and none is tried again."""

    def __init__(self, channel: grpc.Channel, release: Release = Release.FROM_1_35, deadline_s: float = 60) -> None:
        self._channel = channel
        self._release = release
        self._deadline_s = deadline_s
        self.calls: list[str] = []

    def call(self, name: str, **values: Any) -> Any:
        """Make a call. Raises grpc.RpcError."""
        base = _REQUESTS.get(name, name)
        answer = self._release.message(f"{base}Response")
        method = self._channel.unary_unary(
            SERVICE + name,
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        self.calls.append(name)
        return method(self._release.message(f"{base}Request")(**values), timeout=self._deadline_s)

    def template(self, group: str) -> Any:
        """The template's node of a group, as this release decodes it."""
        return self._release.node(self.call("NodeGroupTemplateNodeInfo", id=group))

    def instances(self, group: str) -> dict[str, tuple[int, str, int]]:
        """State, error code and error class of the instances of a group, by provider id."""
        found = self.call("NodeGroupNodes", id=group).instances
        return {
            one.id: (
                one.status.instanceState,
                one.status.errorInfo.errorCode,
                one.status.errorInfo.instanceErrorClass,
            )
            for one in found
        }

    def delete(self, group: str, nodes: Sequence[dict[str, Any]]) -> None:
        """Delete nodes of a group."""
        self.call("NodeGroupDeleteNodes", id=group, nodes=nodes)


def refusal(error: grpc.RpcError) -> str:
    """The name of the code of a failed call."""
    assert isinstance(error, grpc.Call)
    return str(error.code().name)


def fake_node(provider_id: str, reason: str) -> dict[str, Any]:
    """The node that the autoscaler invents for an instance without one (clusterstate.go FakeNode)."""
    return {
        "name": provider_id,
        "providerID": provider_id,
        "annotations": {"k8s.io/cluster-autoscaler/fake-node-reason": reason},
    }


@dataclass
class Autoscaler:
    """One cluster with its autoscaler.

    nodes: registered, provider id by name. idle: names of nodes to scale down. failures: the error codes that it was
    told. backed_off: groups that it does not grow now.
    """

    provider: Provider
    provision_s: float = 900.0
    now: float = 0.0
    nodes: dict[str, str] = field(default_factory=dict)
    idle: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    backed_off: set[str] = field(default_factory=set)
    _first_seen: dict[str, float] = field(default_factory=dict)
    _too_small_since: dict[str, float] = field(default_factory=dict)

    def loop(self, pending: int = 0) -> None:
        """One loop, for so many pending pods."""
        self.provider.call("Refresh")
        groups = {one.id: one for one in self.provider.call("NodeGroups").nodeGroups}
        targets = {name: self.provider.call("NodeGroupTargetSize", id=name).targetSize for name in groups}
        instances = {name: self.provider.instances(name) for name in groups}
        members: dict[str, set[str]] = {name: set() for name in groups}
        for name, provider_id in self.nodes.items():
            group = self._group_of({"name": name, "providerID": provider_id})
            if group:
                members[group].add(provider_id)
        if self._remove_old_unregistered(groups, targets, instances):
            return
        if self._delete_failed(instances):
            return
        if self._fix_sizes(targets, instances, members):
            return
        upcoming = sum(targets.values()) - sum(map(len, members.values()))
        if pending > upcoming:
            self._scale_up(groups, targets, pending - upcoming)
        elif self.idle:
            self._scale_down(groups, targets)

    def _group_of(self, node: dict[str, Any]) -> str:
        return str(self.provider.call("NodeGroupForNode", node=node).nodeGroup.id)

    def _unregistered(self, instances: dict[str, tuple[int, str, int]]) -> list[str]:
        registered = set(self.nodes.values())
        return [
            one
            for one, (state, code, _) in instances.items()
            if state != DELETING and not code and one not in registered
        ]

    def _remove_old_unregistered(self, groups: Any, targets: dict[str, int], instances: Any) -> bool:
        seen = {one for found in instances.values() for one in self._unregistered(found)}
        self._first_seen = {one: self._first_seen.get(one, self.now) for one in seen}
        removed = False
        for group, found in instances.items():
            old = [one for one in self._unregistered(found) if self.now - self._first_seen[one] > self.provision_s][
                : max(0, targets[group] - groups[group].minSize)
            ]
            nodes = [fake_node(one, "unregistered") for one in old]
            if nodes and all(self._group_of(one) == group for one in nodes):
                self.provider.delete(group, nodes)
                removed = True
        return removed

    def _delete_failed(self, instances: Any) -> bool:
        deleted = False
        for group, found in instances.items():
            failed = {one: code for one, (state, code, _) in found.items() if state == CREATING and code}
            if not failed:
                continue
            self.failures += failed.values()
            self.backed_off.add(group)
            nodes = [fake_node(one, "create-error") for one in failed]
            assert all(self._group_of(one) == group for one in nodes)
            self.provider.delete(group, nodes)
            deleted = True
        return deleted

    def _fix_sizes(self, targets: dict[str, int], instances: Any, members: dict[str, set[str]]) -> bool:
        fixed = False
        for group, target in targets.items():
            missing = target - len(self._unregistered(instances[group])) - len(members[group])
            if missing <= 0:
                self._too_small_since.pop(group, None)
            elif self.now - self._too_small_since.setdefault(group, self.now) > self.provision_s:
                self.provider.call("NodeGroupDecreaseTargetSize", id=group, delta=-missing)
                fixed = True
        return fixed

    def _scale_up(self, groups: Any, targets: dict[str, int], wanted: int) -> None:
        for group, one in sorted(groups.items()):
            more = min(wanted, one.maxSize - targets[group])
            if group in self.backed_off or more <= 0:
                continue
            try:
                self.provider.call("NodeGroupIncreaseSize", id=group, delta=more)
            except grpc.RpcError:
                self.backed_off.add(group)
                continue
            return

    def _scale_down(self, groups: Any, targets: dict[str, int]) -> None:
        by_group: dict[str, list[dict[str, Any]]] = {}
        for name in sorted(self.idle & set(self.nodes)):
            node = {"name": name, "providerID": self.nodes[name]}
            group = self._group_of(node)
            if group and targets[group] - len(by_group.get(group, ())) > groups[group].minSize:
                by_group.setdefault(group, []).append(node)
        for group, nodes in by_group.items():
            self.provider.delete(group, nodes)
            self.idle -= {one["name"] for one in nodes}
