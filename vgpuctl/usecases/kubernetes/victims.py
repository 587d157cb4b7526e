# SPDX-License-Identifier: Apache-2.0
"""The pods that leave a node so that a more important one fits: the least important, and as few as that allows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from vgpuctl.clusters.kubernetes.objects import ObjectError
from vgpuctl.usecases.kubernetes.pod_demand import PodDemand
from vgpuctl.usecases.kubernetes.shared_gpus import SharedGpus
from vgpuctl.usecases.kubernetes.shared_node import HeldPod, SharedNode


class _Selector(msgspec.Struct, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Any] | None = None


class _BudgetMetadata(msgspec.Struct):
    namespace: str = ""


class _BudgetSpec(msgspec.Struct):
    selector: _Selector | None = None


class _BudgetStatus(msgspec.Struct, rename="camel"):
    disruptions_allowed: int = 0


class _BudgetObject(msgspec.Struct):
    metadata: _BudgetMetadata
    spec: _BudgetSpec
    status: _BudgetStatus = msgspec.field(default_factory=_BudgetStatus)


@dataclass(frozen=True)
class Budget:
    """A PodDisruptionBudget. labels: that a pod must have; an expression is taken to be true of every pod."""

    namespace: str
    labels: tuple[tuple[str, str], ...]
    allowed: int

    def covers(self, pod: HeldPod) -> bool:
        """True if the pod counts against it."""
        demand = pod.demand
        return demand.namespace == self.namespace and all(demand.labels.get(key) == one for key, one in self.labels)


def read_budget(value: Any) -> Budget:
    """A PodDisruptionBudget out of decoded JSON. Raises ObjectError."""
    try:
        found = msgspec.convert(value, _BudgetObject)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ObjectError(f"no PodDisruptionBudget: {error}") from error
    selector = found.spec.selector or _Selector()
    labels = tuple(sorted((selector.match_labels or {}).items()))
    return Budget(found.metadata.namespace, labels, found.status.disruptions_allowed)


def pods_to_evict(
    demand: PodDemand, node: SharedNode, given: Sequence[str], gpus: SharedGpus, budgets: Sequence[Budget]
) -> tuple[list[str], int] | None:
    """The UIDs of the victims, and how many of those added here violate a budget; None where nothing helps.

    given: the victims that kube-scheduler needs for CPUs and memory; they stay victims, and others are added only where
    the devices need it.
    """
    leaving = set(given)
    if gpus.fits_without(demand, node, leaving):
        return list(given), 0

    def violates(pod: HeldPod) -> bool:
        return any(one.allowed <= 0 and one.covers(pod) for one in budgets)

    able = [
        pod
        for uid, pod in sorted(node.pods.items())
        if uid not in leaving and pod.taken and pod.demand.priority < demand.priority
    ]
    # Of equal importance the one that started last has least to lose.
    able.sort(key=lambda pod: pod.since, reverse=True)
    able.sort(key=lambda pod: (violates(pod), pod.demand.priority))
    added: list[HeldPod] = []
    for pod in able:
        added.append(pod)
        if gpus.fits_without(demand, node, leaving | {one.demand.uid for one in added}):
            break
    else:
        return None
    alone = next((one for one in added if gpus.fits_without(demand, node, leaving | {one.demand.uid})), None)
    if alone is not None:
        added = [alone]
    for pod in reversed(list(added)):
        rest = {one.demand.uid for one in added if one is not pod}
        if gpus.fits_without(demand, node, leaving | rest):
            added.remove(pod)
    return [*given, *(one.demand.uid for one in added)], sum(map(violates, added))
