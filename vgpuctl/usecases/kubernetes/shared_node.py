# SPDX-License-Identifier: Apache-2.0
"""A node with shared GPUs and the pods that have parts of them, read from the API's objects."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from vgpuctl.clusters.kubernetes import hami
from vgpuctl.clusters.kubernetes.hami import HamiFormatError, RegisteredDevice
from vgpuctl.clusters.kubernetes.objects import GPU, ClusterNode, ObjectError, Pod
from vgpuctl.scheduler.soft.host_state import HostState
from vgpuctl.scheduler.soft.shared_devices import NOTHING, Device, SharedHost, Used
from vgpuctl.usecases.kubernetes.pod_demand import PodDemand, Shape, pod_demand

HALF_BOUND_S = 300
"""Seconds that the devices of an unbound pod count after they were written into its annotations."""

Taken = dict[str, Used]
_MOST_DIGITS = 12


@dataclass(frozen=True)
class HeldPod:
    """A pod with its part of a node. taken: of each device, by id. since: start as the API writes it."""

    demand: PodDemand
    node: str
    taken: Taken
    since: str = ""


@dataclass
class SharedNode:
    """A node. refusal: why no pod may have any of its devices. board: the model of its GPUs.

    host, state, kind, place: worked out from devices and pods by SharedGpus.
    """

    name: str
    labels: Mapping[str, str]
    cpu: int
    memory_mib: int
    devices: tuple[Device, ...]
    board: str
    refusal: str = ""
    pods: dict[str, HeldPod] = field(default_factory=dict)
    host: SharedHost = field(default_factory=lambda: SharedHost(()))
    state: HostState = field(default_factory=lambda: HostState("", 0, 0, ()))
    kind: int = 0
    place: int = 0

    def given(self) -> Taken:
        """The part of each device that is given out."""
        total: Taken = {}
        for pod in self.pods.values():
            for device, part in pod.taken.items():
                total[device] = total.get(device, NOTHING).plus(part)
        return total


def read_shared_node(node: ClusterNode, now: datetime) -> SharedNode:
    """Read a node; what is wrong with its annotations is its refusal."""
    notes, refusal = node.annotations, ""
    devices: list[RegisteredDevice] = []
    cordoned: frozenset[str] = frozenset()
    try:
        devices = hami.read_register(notes[hami.REGISTER]) if hami.REGISTER in notes else []
        cordoned = hami.read_cordon(notes.get(hami.CORDON, ""))
    except HamiFormatError as error:
        devices, refusal = [], f"its annotations cannot be read: {error}"
    if hami.REGISTER not in notes:
        refusal = "no GPU is registered by HAMi's device plugin"
    elif hami.is_stale(notes, advertised_gpus=node.amount(GPU), now=now):
        devices, refusal = [], "HAMi's device plugin does not answer: its handshake is stale"
    elif not devices and not refusal:
        refusal = "HAMi's device plugin registered no GPU"
    made = tuple(_device(one, is_cordoned=one.id in cordoned) for one in devices)
    board = "+".join(sorted({one.type for one in made}))
    return SharedNode(
        node.metadata.name, node.labels, node.amount("cpu", 1000), node.amount("memory") // 2**20, made, board, refusal
    )


def _device(one: RegisteredDevice, *, is_cordoned: bool) -> Device:
    refusal = ""
    if not one.is_healthy:
        refusal = "unhealthy"
    elif is_cordoned:
        refusal = "cordoned"
    elif one.mode == "mig":
        refusal = "in MIG mode, which is left to HAMi's scheduler"
    return Device(one.id, one.count, one.memory_mib, one.cores, one.type, one.numa, one.index, one.mode, refusal)


def read_held_pod(pod: Pod, now: datetime) -> HeldPod | None:
    """The devices that a pod has of a node; None for one that is over or has no node.

    An unbound pod counts while its annotations name a node and are fresh: another scheduler, or an interrupted bind, is
    about to bind it. Raises ObjectError, HamiFormatError.
    """
    notes = pod.annotations
    node = pod.spec.node_name
    if pod.is_over:
        return None
    if not node:
        written = notes.get(hami.BIND_TIME, "")
        is_fresh = written.isascii() and written.isdigit() and len(written) <= _MOST_DIGITS
        if not is_fresh or not 0 <= now.timestamp() - int(written) <= HALF_BOUND_S:
            return None
        node = notes.get(hami.NODE, "")
        if not node:
            return None
    try:
        demand = pod_demand(pod)
    except ObjectError:
        # It runs, so its devices count whatever its request looks like.
        about = pod.metadata
        demand = PodDemand(
            about.uid, about.namespace, about.name, pod.spec.priority or 0, 0, 0, Shape((), pod.init_count)
        )
    taken: Taken = {}
    if notes.get(hami.ALLOCATED) and notes.get(hami.NODE) == node:
        devices = hami.read_devices(notes[hami.ALLOCATED])
        taken = {one: Used(*most) for one, most in hami.most_at_once(devices, pod.init_count).items()}
    return HeldPod(demand, node, taken, pod.status.start_time or "")
