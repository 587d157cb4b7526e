# SPDX-License-Identifier: Apache-2.0
"""The shared GPUs of a cluster: its nodes' devices, the pods that have parts of them, and the best place for one more.

Everything comes from the API's objects, so a restart loses nothing but reservations of pods that are being bound. The
caller holds a lock around every call.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from datetime import datetime

from vgpuctl.clusters.kubernetes import hami
from vgpuctl.clusters.kubernetes.hami import ContainerDevices, GivenDevice, HamiFormatError
from vgpuctl.clusters.kubernetes.objects import ClusterNode, ObjectError, Pod
from vgpuctl.model.policy import DEFAULT_POLICY, Policy
from vgpuctl.scheduler.soft.host_state import WHOLE, Demand, GpuFree, HostState
from vgpuctl.scheduler.soft.shared_devices import (
    NOTHING,
    Ask,
    Device,
    DeviceOrder,
    SharedHost,
    Used,
    free_of,
    ways,
    why_not,
)
from vgpuctl.scheduler.soft.soft_fleet import SoftFleet
from vgpuctl.usecases.kubernetes.pod_demand import PodDemand, Shape
from vgpuctl.usecases.kubernetes.shared_node import HeldPod, SharedNode, Taken, read_held_pod, read_shared_node

MOST_REMEMBERED = 50_000
_MOST_SHAPES = 256
Parts = tuple[tuple[int, ...], ...]
"""Of each container the numbers of its devices."""


class SharedGpus:
    """Nodes, pods and the value of what is left, by a policy of the scheduler."""

    def __init__(self, policy: Policy = DEFAULT_POLICY, expected: Mapping[Demand, int] | None = None) -> None:
        """expected: how often each request is expected; without it they are counted as they arrive."""
        self.nodes: dict[str, SharedNode] = {}
        self.problems: dict[str, str] = {}
        self._fleet = SoftFleet(policy, expected)
        self._where: dict[str, str] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._numbers: dict[object, int] = {}
        self._next_number = 0
        self._boards: dict[str, tuple[Device, ...]] = {}
        self._usual_memory_mib = 0
        self._parts: dict[Shape, dict[int | str, list[Parts]]] = {}
        self._costs: dict[object, dict[int, tuple[float, Parts]]] = {}
        self._cost_count = 0
        self._pricing = 0

    def load(self, nodes: Iterable[ClusterNode], pods: Iterable[Pod], now: datetime) -> None:
        """Take over what the API says. Pods that `hold` added and that are not in it are dropped: hold them again."""
        self.problems = {}
        held: dict[str, dict[str, HeldPod]] = {}
        for pod in pods:
            try:
                found = read_held_pod(pod, now)
            except (ObjectError, HamiFormatError) as error:
                self.problems[f"pod {pod.metadata.namespace}/{pod.metadata.name}"] = str(error)
                continue
            if found is not None:
                held.setdefault(found.node, {})[found.demand.uid] = found
        fresh = {node.metadata.name: read_shared_node(node, now) for node in nodes}
        self._where = {}
        self._boards = {node.board: node.devices for node in fresh.values() if node.devices}
        sizes = Counter(one.memory_mib for node in fresh.values() for one in node.devices)
        self._usual_memory_mib = max(sizes, key=lambda size: (sizes[size], size), default=0)
        for name in set(self.nodes) - set(fresh):
            del self.nodes[name]
            self._fleet.remove_host(name)
        for name, node in sorted(fresh.items()):
            node.pods = held.get(name, {})
            self._where.update(dict.fromkeys(node.pods, name))
            old = self.nodes.get(name)
            self.nodes[name] = node
            if old is None or (old.devices, old.board, old.cpu, old.memory_mib, old.pods) != (
                node.devices, node.board, node.cpu, node.memory_mib, node.pods
            ):  # fmt: skip
                self._put(node)
            else:
                node.host, node.state, node.kind, node.place = old.host, old.state, old.kind, old.place
            if node.refusal:
                self.problems[f"node {name}"] = node.refusal
        for node in fresh.values():
            for one in node.pods.values():
                self.arrive(one.demand)

    def arrive(self, demand: PodDemand) -> None:
        """Count a pod among the expected requests, once."""
        if demand.uid in self._seen:
            return
        self._seen[demand.uid] = None
        if len(self._seen) > MOST_REMEMBERED:
            self._seen.popitem(last=False)
        self._fleet.arrive(self._typical(demand))

    def hold(self, demand: PodDemand, node: str, taken: Taken) -> None:
        """Give a pod its part of a node. Raises KeyError for an unknown node."""
        self.release(demand.uid)
        there = self.nodes[node]
        there.pods[demand.uid] = HeldPod(demand, node, taken)
        self._where[demand.uid] = node
        self._put(there)

    def release(self, uid: str) -> None:
        """Give back what a pod has; nothing where it has nothing."""
        node = self.nodes.get(self._where.pop(uid, ""))
        if node is not None and node.pods.pop(uid, None) is not None:
            self._put(node)

    def holds(self, uid: str) -> str | None:
        """The node where a pod has its part."""
        return self._where.get(uid)

    def fits(self, demand: PodDemand, names: Iterable[str]) -> tuple[list[str], list[str]]:
        """The nodes whose devices can take the pod beside what they have, and those that cannot or are unknown."""
        fitting, others = [], []
        nodes, wants = self.nodes, demand.shape.wants_gpu
        shape, named = demand.shape, demand.shape.names_devices
        known = self._known_ways(shape, is_kept=not named)
        for name in names:
            node = nodes.get(name)
            if node is None:
                others.append(name)
            elif not wants or self._look_up(known, name if named else node.kind, shape, node):
                fitting.append(name)
            else:
                others.append(name)
        return fitting, others

    def costs(self, demand: PodDemand, names: Iterable[str]) -> dict[str, tuple[float, Parts]]:
        """The cost of the pod by the policy on each node where it fits, and the best devices for it."""
        if self._fleet.pricing != self._pricing or self._cost_count > MOST_REMEMBERED:
            self._costs.clear()
            self._cost_count = 0
            self._pricing = self._fleet.pricing
        shape, found = demand.shape, {}
        key = (shape, demand.cpu, demand.memory_mib)
        by_place = {} if shape.names_devices else self._costs.setdefault(key, {})
        nodes, wants, named = self.nodes, shape.wants_gpu, shape.names_devices
        known = self._known_ways(shape, is_kept=not named)
        for name in names:
            node = nodes.get(name)
            if node is None:
                continue
            best = None if named else by_place.get(node.place)
            if best is None:
                choices = self._look_up(known, name if named else node.kind, shape, node) if wants else [()]
                if not choices:
                    continue
                best = by_place[node.place] = min((self._cost_of(demand, node, parts), parts) for parts in choices)
                self._cost_count += 1
            found[name] = best
        return found

    def room_for(self, demand: PodDemand, node: SharedNode, most: int) -> int:
        """How many pods equal to this one fit on the node, up to a number."""
        if not demand.shape.wants_gpu:
            return most
        count, trial = 0, node
        while count < most:
            found = self._find_ways(demand.shape, trial)
            if not found:
                break
            count += 1
            trial = replace(trial, host=trial.host.with_taken(self.taken(found[0], demand, trial)))
        return count

    def fits_without(self, demand: PodDemand, node: SharedNode, uids: Set[str]) -> bool:
        """True if the pod would fit after these pods are gone."""
        rest = replace(node, pods={uid: pod for uid, pod in node.pods.items() if uid not in uids})
        trial = replace(rest, host=SharedHost(node.devices, rest.given()))
        return not demand.shape.wants_gpu or (not node.refusal and bool(self._find_ways(demand.shape, trial)))

    def devices_of(self, parts: Parts, demand: PodDemand, node: SharedNode) -> tuple[ContainerDevices, ...]:
        """The devices of each container as HAMi writes them."""
        found = []
        for numbers, ask in zip(parts, demand.shape.asks, strict=False):
            devices = [node.devices[number] for number in numbers]
            found.append(
                tuple(GivenDevice(one.id, ask.memory_of(one), ask.cores) for one in devices) if ask is not None else ()
            )
        return tuple(found)

    def why_not(self, demand: PodDemand, node: SharedNode) -> tuple[str, bool]:
        """Why a pod does not fit on a node, and whether it would not even on an empty one."""
        if node.refusal:
            return node.refusal, True
        return why_not([one for one in demand.shape.asks if one], node.host)

    def _known_ways(self, shape: Shape, *, is_kept: bool) -> dict[int | str, list[Parts]]:
        """The ways to give a pod its devices as far as they are known, by kind of node; kept for the next equal pod."""
        if not is_kept:
            return {}
        if len(self._parts) > _MOST_SHAPES:
            self._parts.clear()
        return self._parts.setdefault(shape, {})

    def _look_up(
        self, known: dict[int | str, list[Parts]], key: int | str, shape: Shape, node: SharedNode
    ) -> list[Parts]:
        found = known.get(key)
        if found is None:
            if len(known) > MOST_REMEMBERED:
                known.clear()
            found = known[key] = self._find_ways(shape, node)
        return found

    def _find_ways(self, shape: Shape, node: SharedNode) -> list[Parts]:
        wanting = [number for number, ask in enumerate(shape.asks) if ask is not None]
        numbers = {one.id: number for number, one in enumerate(node.devices)}
        host = node.host
        first = wanting[-1] if len(wanting) == 1 else None
        if first is not None:
            found = []
            for devices in ways(_ask(shape, first), host):
                parts: list[tuple[int, ...]] = [()] * len(shape.asks)
                parts[first] = tuple(numbers[one.id] for one in devices)
                found.append(tuple(parts))
            return found
        # Several containers: one after another the tightest devices, init containers beside nothing of the pod's own.
        parts, taken = [()] * len(shape.asks), host
        for number in wanting:
            ask = _ask(shape, number)
            is_init = number < shape.init_containers
            base = host if is_init else taken
            best = min(
                ways(ask, base),
                key=lambda way: [free_of(one, base.used.get(one.id, NOTHING)) for one in way],
                default=None,
            )
            if best is None:
                return []
            parts[number] = tuple(numbers[one.id] for one in best)
            if not is_init:
                taken = taken.with_taken({one.id: ask.taken_of(one) for one in best})
        return [tuple(parts)]

    def taken(self, parts: Parts, demand: PodDemand, node: SharedNode) -> Taken:
        """The most that these devices give to a pod at one time."""
        devices = self.devices_of(parts, demand, node)
        return {one: Used(*most) for one, most in hami.most_at_once(devices, demand.shape.init_containers).items()}

    def _cost_of(self, demand: PodDemand, node: SharedNode, parts: Parts) -> float:
        host = node.host.with_taken(self.taken(parts, demand, node)) if parts else node.host
        before, order = node.state, demand.shape.order
        left = _state(node.board, before.cpu - demand.cpu, before.memory_mib - demand.memory_mib, host)
        if demand.shape.node_order is not DeviceOrder.BEST:
            share = sum(one for one, _ in left.gpus) / (WHOLE * max(len(left.gpus), 1))
            return share if demand.shape.node_order is DeviceOrder.BINPACK else -share
        if order is not DeviceOrder.BEST and parts:
            fullest = min(host.free()[number][0] for numbers in parts for number in numbers)
            return self._fleet.cost(before, left) + (1 if order is DeviceOrder.BINPACK else -1) * fullest
        return self._fleet.cost(before, left)

    def _put(self, node: SharedNode) -> None:
        """Work out a node's state after a change of its pods or devices."""
        node.host = SharedHost(node.devices, node.given())
        cpu = node.cpu - sum(one.demand.cpu for one in node.pods.values())
        memory = node.memory_mib - sum(one.demand.memory_mib for one in node.pods.values())
        self._fleet.add_host(
            node.name,
            board=node.board,
            cpu=max(cpu, 0),
            memory_mib=max(memory, 0),
            gpus=node.host.free(),
            capacity=(node.cpu, node.memory_mib),
        )
        node.state = self._fleet.state_of(node.name)
        used = node.host.used
        node.kind = self._number(
            tuple(
                (
                    one.slots,
                    one.memory_mib,
                    one.cores,
                    one.type,
                    one.numa,
                    one.mode,
                    one.refusal,
                    used.get(one.id, NOTHING),
                )
                for one in node.devices
            )
        )

        node.place = self._number((node.state, node.kind))

    def _number(self, key: object) -> int:
        """A number for equal values; no other value ever has it."""
        found = self._numbers.get(key)
        if found is None:
            if len(self._numbers) >= 2 * MOST_REMEMBERED:
                self._numbers.clear()
            self._next_number += 1
            found = self._numbers[key] = self._next_number
        return found

    def _typical(self, demand: PodDemand) -> Demand:
        """The request as the value of what is left counts it: by the larger of its parts of cores and memory."""
        regular = [one for one in demand.shape.asks[demand.shape.init_containers :] if one]
        asks = regular or [one for one in demand.shape.asks if one]
        if not asks:
            return Demand(demand.cpu, demand.memory_mib)
        usual = Device("", 1, self._usual_memory_mib, 100, "")
        largest = max(asks, key=lambda one: (one.cores, one.memory_of(usual)))
        memory = largest.memory_of(usual)
        share = max(10 * largest.cores, -(-WHOLE * memory // usual.memory_mib) if usual.memory_mib else 0)
        boards = (
            frozenset(board for board, devices in self._boards.items() if any(map(largest.may_have, devices)))
            if largest.types or largest.no_types
            else frozenset()
        )
        return Demand(demand.cpu, demand.memory_mib, sum(one.count for one in asks), min(share, WHOLE), memory, boards)


def _ask(shape: Shape, number: int) -> Ask:
    found = shape.asks[number]
    assert found is not None
    return found


def _state(board: str, cpu: int, memory_mib: int, host: SharedHost) -> HostState:
    gpus: list[GpuFree] = sorted(host.free(), reverse=True)
    return HostState(board, max(cpu, 0), max(memory_mib, 0), tuple(gpus))
