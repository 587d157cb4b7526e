# SPDX-License-Identifier: Apache-2.0
"""A pod's demand for shared GPUs: the request of its containers with the annotations of HAMi and ours."""

from dataclasses import dataclass, field
from typing import NamedTuple

from vgpuctl.clusters.kubernetes.objects import ObjectError, Pod, pod_request
from vgpuctl.scheduler.soft.shared_devices import Ask, DeviceOrder

GANG_NAMES = ("scheduling.k8s.io/group-name", "scheduling.x-k8s.io/pod-group")
"""Annotation of Volcano and label of the scheduler plugins: each is looked for in annotations and labels."""

GANG_SIZE = "vgpuctl.io/gang-size"
MOST_MEMBERS = 512
_MOST_WORDS = 128


class Gang(NamedTuple):
    """Pods of a namespace that are bound all or none."""

    namespace: str
    name: str
    size: int


class Shape(NamedTuple):
    """The values that decide where a pod fits: equal pods share answers. asks: of the containers, None without GPU.

    node_order: `spread` or `binpack` where the pod asks for it instead of the fleet's policy.
    """

    asks: tuple[Ask | None, ...]
    init_containers: int
    order: DeviceOrder = DeviceOrder.BEST
    node_order: DeviceOrder = DeviceOrder.BEST

    @property
    def wants_gpu(self) -> bool:
        """True if a container asks for a GPU."""
        return any(self.asks)

    @property
    def names_devices(self) -> bool:
        """True if equal devices are not equal to it."""
        return any(one.names_devices for one in self.asks if one)


@dataclass(frozen=True)
class PodDemand:
    """One pod. cpu: in thousandths. gang: None for a pod alone."""

    uid: str
    namespace: str
    name: str
    priority: int
    cpu: int
    memory_mib: int
    shape: Shape
    gang: Gang | None = None
    labels: dict[str, str] = field(default_factory=dict, hash=False)

    @property
    def text(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


def pod_demand(pod: Pod) -> PodDemand:
    """Read what a pod asks for. Raises ObjectError."""
    request, notes = pod_request(pod), pod.annotations
    use, no = _words(notes, "nvidia.com/use-gputype"), _words(notes, "nvidia.com/nouse-gputype")
    ids, no_ids = _words(notes, "nvidia.com/use-gpuuuid"), _words(notes, "nvidia.com/nouse-gpuuuid")
    one_numa = notes.get("nvidia.com/numa-bind", "").lower() == "true"
    mode = notes.get("nvidia.com/vgpu-mode", "")
    if mode not in ("", "hami-core", "mps", "mig"):
        raise ObjectError(f"nvidia.com/vgpu-mode {mode[:40]!a} is neither hami-core, mps nor mig")
    asks = tuple(
        None
        if one is None
        else Ask(
            one.gpus,
            one.memory_mib,
            one.memory_percent,
            one.cores,
            use,
            no,
            frozenset(ids),
            frozenset(no_ids),
            one_numa,
            mode,
        )
        for one in request.containers
    )
    shape = Shape(
        asks,
        pod.init_count,
        _order(notes.get("hami.io/gpu-scheduler-policy", "")),
        _order(notes.get("hami.io/node-scheduler-policy", "")),
    )
    about = pod.metadata
    return PodDemand(
        about.uid,
        about.namespace or "default",
        about.name,
        max(-(2**31), min(pod.spec.priority or 0, 2**31)),
        request.cpu,
        request.memory_mib,
        shape,
        _gang(pod),
        pod.labels,
    )


def _gang(pod: Pod) -> Gang | None:
    both = pod.labels | pod.annotations
    name = next((both[key] for key in GANG_NAMES if both.get(key)), "")
    size = both.get(GANG_SIZE, "")
    if not size:
        return None
    if not name:
        raise ObjectError(f"{GANG_SIZE} without {' or '.join(GANG_NAMES)}")
    if not (size.isascii() and size.isdigit() and len(size) <= 4 and 1 <= int(size) <= MOST_MEMBERS):
        raise ObjectError(f"{GANG_SIZE} {size[:20]!a} is no number of 1 to {MOST_MEMBERS}")
    return Gang(pod.metadata.namespace or "default", name[:253], int(size)) if int(size) > 1 else None


def _order(text: str) -> DeviceOrder:
    return DeviceOrder(text) if text in ("binpack", "spread") else DeviceOrder.BEST


def _words(notes: dict[str, str], key: str) -> tuple[str, ...]:
    found = tuple(filter(None, (one.strip() for one in notes.get(key, "").split(","))))
    if len(found) > _MOST_WORDS:
        raise ObjectError(f"{key} has more than {_MOST_WORDS} words")
    return found
