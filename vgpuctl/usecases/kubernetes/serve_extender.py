# SPDX-License-Identifier: Apache-2.0
"""serve extender: kube-scheduler's verbs filter, prioritize, bind and preempt for pods with parts of GPUs.

Filter names every node where the pod fits, prioritize says what each is worth, and bind takes the devices, checks again
and lets HAMi's plugin carry it out. Nothing is taken before bind, and nothing is known that the API does not say.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from vgpuctl.clusters.kubernetes import extender_messages as messages
from vgpuctl.clusters.kubernetes.hami import ContainerDevices
from vgpuctl.clusters.kubernetes.objects import ClusterNode, ObjectError, Pod, read_node, read_pod
from vgpuctl.errors import BindRefused, BindUnknown, ClusterRefused, VgpuctlError
from vgpuctl.model.policy import DEFAULT_POLICY, Policy
from vgpuctl.model.printable import printable
from vgpuctl.usecases.kubernetes.gangs import Gangs
from vgpuctl.usecases.kubernetes.pod_binding import LOCK_WAIT_S, Cluster, PodBinder
from vgpuctl.usecases.kubernetes.pod_demand import PodDemand, pod_demand
from vgpuctl.usecases.kubernetes.pod_groups import PodGroups
from vgpuctl.usecases.kubernetes.shared_gpus import SharedGpus
from vgpuctl.usecases.kubernetes.shared_node import Taken
from vgpuctl.usecases.kubernetes.victims import Budget, pods_to_evict, read_budget

_LOGGER = logging.getLogger("vgpuctl.extender")
OTHER_SCHEDULER = ("app.kubernetes.io/component", "hami-scheduler")
"""The label of HAMi's own scheduler (charts/hami/templates/scheduler/deployment.yaml)."""

UNKNOWN_NODE = "vgpuctl does not know this node yet"
_LONGEST_REASON = 300
T = TypeVar("T")


@dataclass
class _Reserved:
    """A pod's part from the beginning of its bind. settled: when it ended, by the monotonic clock; None before."""

    demand: PodDemand
    node: str
    devices: tuple[ContainerDevices, ...]
    taken: Taken
    settled: float | None = None


class Extender:
    """The extender of one cluster, for many threads. now: wall clock, aware."""

    def __init__(
        self,
        cluster: Cluster,
        now: Callable[[], datetime],
        *,
        policy: Policy = DEFAULT_POLICY,
        lock_wait_s: float = LOCK_WAIT_S,
        gang_wait_s: float = 20.0,
    ) -> None:
        self._cluster = cluster
        self._now = now
        self._stop = threading.Event()
        self._binder = PodBinder(cluster, now, lock_wait_s=lock_wait_s, stop=self._stop)
        self._lock = threading.RLock()
        self._gpus = SharedGpus(policy)
        self._reserved: dict[str, _Reserved] = {}
        self._groups = PodGroups(cluster)
        self._gangs = Gangs(threading.Condition(self._lock), gang_wait_s)
        self._counts = {"filter": 0, "prioritize": 0, "bind": 0, "preempt": 0, "refused_bind": 0, "bad_request": 0}
        self._budgets: list[Budget] = []
        self._refreshed: float | None = None
        self.refresh_problem = ""

    def require_only_scheduler(self) -> None:
        """Raise ClusterRefused where HAMi's own scheduler runs: two schedulers would give a device twice."""
        key, value = OTHER_SCHEDULER
        for pod in self._list_pods():
            if pod.labels.get(key) == value and not pod.is_over:
                raise ClusterRefused(
                    f"pod {pod.metadata.namespace}/{pod.metadata.name} is HAMi's own scheduler:"
                    " two schedulers that do not know of each other give one GPU twice",
                    hint="scale that deployment to 0, or give --other-scheduler where each has nodes of its own",
                )

    def refresh(self) -> None:
        """Read nodes and pods and take over what they say. Raises ClusterError; the old state stays in force."""
        began = time.monotonic()
        nodes = self._list_nodes()
        self._groups.refresh()
        pods = [self._groups.sized_if_known(pod) for pod in self._list_pods()]
        budgets = _readable(self._cluster.list_disruption_budgets(), read_budget)
        with self._lock:
            self._budgets = budgets
            self._gpus.load(nodes, pods, self._now())
            for uid, one in list(self._reserved.items()):
                if one.settled is not None and one.settled < began:
                    del self._reserved[uid]
                elif self._gpus.holds(uid) is None and one.node in self._gpus.nodes:
                    self._gpus.hold(one.demand, one.node, one.taken)
            self._refreshed = time.monotonic()

    def keep_fresh(self, interval_s: float) -> None:
        """Refresh again and again until `stop`; an API server that does not answer is logged once."""
        while not self._stop.wait(interval_s):
            try:
                self.refresh()
                self.refresh_problem = ""
            except VgpuctlError as error:
                if error.message != self.refresh_problem:
                    _LOGGER.warning("refresh", extra={"fields": {"error": error.message}})
                self.refresh_problem = error.message

    def stop(self) -> None:
        """End waiting binds and `keep_fresh`."""
        self._stop.set()
        with self._lock:
            self._gangs.end()

    def counts(self) -> dict[str, int]:
        """Counts of answers since the start, and of the known objects."""
        with self._lock:
            nodes = self._gpus.nodes.values()
            return {
                **self._counts,
                "nodes": len(nodes),
                "refused_nodes": sum(bool(one.refusal) for one in nodes),
                "pods": sum(len(one.pods) for one in nodes),
                "reserved": sum(one.settled is None for one in self._reserved.values()),
            }

    def problems(self) -> list[str]:
        """The API's objects that cannot be used, one line each."""
        with self._lock:
            return [f"{printable(about)}: {_reason(text)}" for about, text in sorted(self._gpus.problems.items())]

    def age_s(self) -> float | None:
        """Seconds since the last refresh; None before the first."""
        return None if self._refreshed is None else time.monotonic() - self._refreshed

    def filter(self, body: bytes) -> bytes:
        """The nodes where a pod fits, and why not on others."""
        request = None
        try:
            request = messages.read_filter(body)
            demand = pod_demand(self._groups.sized(request.pod))
        except ObjectError as error:
            self._count("bad_request")
            return messages.filter_answer(request, [], {}, {}, _reason(str(error)))
        failed: dict[str, str] = {}
        final: dict[str, str] = {}
        with self._lock:
            self._counts["filter"] += 1
            self._gpus.arrive(demand)
            fitting, others = self._gpus.fits(demand, request.names)
            for name in others:
                node = self._gpus.nodes.get(name)
                if node is None:
                    final[name] = UNKNOWN_NODE
                    continue
                reason, is_final = self._gpus.why_not(demand, node)
                (final if is_final else failed)[name] = _reason(reason)
            if fitting and demand.gang is not None:
                missing = self._gangs.missing(demand, self._gpus, [self._gpus.nodes[one] for one in fitting])
                if missing:
                    failed.update(dict.fromkeys(fitting, missing))
                    fitting = []
        return messages.filter_answer(request, fitting, failed, final, "")

    def prioritize(self, body: bytes) -> bytes:
        """0 to 10 for each node: 10 for the one best node, the first by name of equals, and up to 9 for the others."""
        try:
            request = messages.read_filter(body)
            demand = pod_demand(self._groups.sized(request.pod))
        except ObjectError:
            self._count("bad_request")
            return messages.prioritize_answer({})
        with self._lock:
            self._counts["prioritize"] += 1
            costs = {name: cost for name, (cost, _) in self._gpus.costs(demand, request.names).items()}
            if demand.gang is not None and costs:
                near = self._gangs.nearness(demand, self._gpus)
                distances = {name: -near(self._gpus.nodes[name]) for name in costs}
                nearest = min(distances.values())
                costs = {name: cost for name, cost in costs.items() if distances[name] == nearest}
        return messages.prioritize_answer(_scores(request.names, costs))

    def bind(self, body: bytes) -> bytes:
        """Bind a pod to a node; an error tells kube-scheduler to queue it again."""
        try:
            request = messages.read_bind(body)
        except ObjectError as error:
            self._count("bad_request")
            return messages.bind_answer(_reason(str(error)))
        try:
            self._bind(request)
        except VgpuctlError as error:
            self._count("refused_bind")
            return messages.bind_answer(_reason(error.message))
        except ObjectError as error:
            self._count("refused_bind")
            return messages.bind_answer(_reason(f"the API's answer cannot be read: {error}"))
        self._count("bind")
        return messages.bind_answer("")

    def preempt(self, body: bytes) -> bytes:
        """The victims on each node where a pod fits after them: the fewest and least important."""
        try:
            request = messages.read_preempt(body)
            demand = pod_demand(self._groups.sized(request.pod))
        except ObjectError:
            self._count("bad_request")
            return messages.preempt_answer({})
        answer: dict[str, tuple[list[str], int]] = {}
        with self._lock:
            self._counts["preempt"] += 1
            for name, (uids, violations) in request.victims.items():
                node = self._gpus.nodes.get(name)
                found = None if node is None else pods_to_evict(demand, node, uids, self._gpus, self._budgets)
                if found is not None:
                    answer[name] = (found[0], violations + found[1])
        return messages.preempt_answer(answer)

    def _bind(self, request: messages.BindRequest) -> None:
        pod = self._binder.read(request.namespace, request.name, request.uid)
        if pod.spec.node_name == request.node:
            return
        if pod.spec.node_name:
            raise BindRefused(f"pod {request.namespace}/{request.name} is bound to {pod.spec.node_name} already")
        demand = pod_demand(self._groups.sized(pod))
        with self._lock:
            reserved = self._reserve(demand, request.node)
            try:
                self._gangs.wait_for_all(demand, self._gpus)
            except VgpuctlError:
                self._give_back(demand)
                raise
        try:
            self._binder.bind(pod, request.node, reserved.devices)
        except BindUnknown:
            with self._lock:
                reserved.settled = time.monotonic()
            raise
        except (VgpuctlError, ObjectError):
            with self._lock:
                self._give_back(demand)
            raise
        with self._lock:
            reserved.settled = time.monotonic()

    def _reserve(self, demand: PodDemand, name: str) -> _Reserved:
        node = self._gpus.nodes.get(name)
        if node is None:
            raise BindRefused(f"{name}: {UNKNOWN_NODE}")
        known = self._reserved.get(demand.uid)
        if known is not None and known.settled is None:
            raise BindRefused(f"pod {demand.text} is being bound to {known.node}")
        # The devices of an interrupted attempt count for it, not against it.
        self._gpus.release(demand.uid)
        found = self._gpus.costs(demand, [name]).get(name)
        if found is None:
            raise BindRefused(
                f"pod {demand.text} does not fit on {name} any more: {self._gpus.why_not(demand, node)[0]}"
            )
        devices = self._gpus.devices_of(found[1], demand, node)
        taken = self._gpus.taken(found[1], demand, node)
        reserved = self._reserved[demand.uid] = _Reserved(demand, name, devices, taken)
        self._gpus.hold(demand, name, taken)
        return reserved

    def _give_back(self, demand: PodDemand) -> None:
        self._reserved.pop(demand.uid, None)
        self._gpus.release(demand.uid)

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    def _list_nodes(self) -> list[ClusterNode]:
        return _readable(self._cluster.list_nodes(), read_node)

    def _list_pods(self) -> list[Pod]:
        return _readable(self._cluster.list_pods(), read_pod)


def _readable(found: Iterable[Any], read: Callable[[Any], T]) -> list[T]:
    """The objects that can be read; another one is logged and counts for nothing."""
    readable = []
    for one in found:
        try:
            readable.append(read(one))
        except ObjectError as error:
            _LOGGER.warning("unreadable object", extra={"fields": {"error": str(error)}})
    return readable


def _scores(names: Sequence[str], costs: dict[str, float]) -> dict[str, int]:
    scores = dict.fromkeys(names, 0)
    if costs:
        low, high = min(costs.values()), max(costs.values())
        best = min(name for name, cost in costs.items() if cost == low)
        per_point = 8 / (high - low) if high > low else 0
        scores |= {name: 9 - int((cost - low) * per_point) for name, cost in costs.items()}
        scores[best] = messages.BEST_SCORE
    return scores


def _reason(text: str) -> str:
    return printable(text)[:_LONGEST_REASON]
