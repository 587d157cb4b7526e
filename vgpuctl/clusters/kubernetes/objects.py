# SPDX-License-Identifier: Apache-2.0
"""Pods and nodes as the placement of shared GPUs needs them, read strictly from the API's JSON.

Fields that are not used are ignored whatever they hold; used ones of another type are refused. Amounts are bounded, so
that no object makes a number that nothing can add.
"""

import re
from decimal import Decimal
from typing import Any

import msgspec

GPU = "nvidia.com/gpu"
GPU_MEMORY = "nvidia.com/gpumem"
GPU_MEMORY_PERCENT = "nvidia.com/gpumem-percentage"
GPU_CORES = "nvidia.com/gpucores"
MANAGED = (GPU, GPU_MEMORY, GPU_MEMORY_PERCENT, GPU_CORES)

MOST_CONTAINERS = 256
MOST_AMOUNT = 2**53
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_UID = re.compile(r"[A-Za-z0-9-]{1,128}")
_QUANTITY = re.compile(r"([+-]?[0-9]{0,18}(?:\.[0-9]{0,18})?)([numkKMGTPE]i?|[eE][+-]?[0-9]{1,2})?")
_FACTORS = {
    "": Decimal(1), "n": Decimal(10) ** -9, "u": Decimal(10) ** -6, "m": Decimal(10) ** -3,
    "k": Decimal(10) ** 3, "M": Decimal(10) ** 6, "G": Decimal(10) ** 9, "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15, "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30, "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
}  # fmt: skip


class ObjectError(ValueError):
    """An object of the API cannot be read: the field, and what is wrong with it."""


Quantities = dict[str, str | int | float] | None
Texts = dict[str, str] | None


class Resources(msgspec.Struct):
    """Of a container."""

    limits: Quantities = None
    requests: Quantities = None


class Container(msgspec.Struct):
    """One container of a pod."""

    resources: Resources | None = None


class Metadata(msgspec.Struct, rename="camel"):
    """Of a pod or a node."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: Texts = None
    annotations: Texts = None
    resource_version: str = ""
    deletion_timestamp: str | None = None


class PodSpec(msgspec.Struct, rename="camel"):
    """The wanted pod."""

    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None


class PodStatus(msgspec.Struct, rename="camel"):
    """The pod's state."""

    phase: str = ""
    start_time: str | None = None


class Pod(msgspec.Struct):
    """A pod."""

    metadata: Metadata
    spec: PodSpec
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return self.metadata.labels or {}

    @property
    def annotations(self) -> dict[str, str]:
        """Its annotations."""
        return self.metadata.annotations or {}

    @property
    def is_over(self) -> bool:
        """True if it needs nothing of a node any more."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def init_count(self) -> int:
        """Number of init containers, which come first in a device string."""
        return len(self.spec.init_containers or ())

    def containers(self) -> list[Container]:
        """Init containers, then the others."""
        return [*(self.spec.init_containers or ()), *(self.spec.containers or ())]


class AllocatableStatus(msgspec.Struct):
    """The node's state."""

    allocatable: Quantities = None


class ClusterNode(msgspec.Struct):
    """A node."""

    metadata: Metadata
    status: AllocatableStatus = msgspec.field(default_factory=AllocatableStatus)

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return self.metadata.labels or {}

    @property
    def annotations(self) -> dict[str, str]:
        """Its annotations."""
        return self.metadata.annotations or {}

    def amount(self, name: str, per_unit: int = 1) -> int:
        """The amount of a resource for pods, in parts of a unit, rounded down; 0 where it cannot be read."""
        try:
            return quantity((self.status.allocatable or {}).get(name, 0), per_unit, up=False)
        except ObjectError:
            return 0


class ContainerGpus(msgspec.Struct, frozen=True):
    """The request of one container. memory_mib: None where `memory_percent` of each GPU counts. cores: percent."""

    gpus: int
    memory_mib: int | None = None
    memory_percent: int = 100
    cores: int = 0


class PodRequest(msgspec.Struct, frozen=True):
    """cpu: thousandths. containers: init containers first; None for one without GPU."""

    cpu: int
    memory_mib: int
    containers: tuple[ContainerGpus | None, ...]

    @property
    def wants_gpu(self) -> bool:
        """True if a container asks for a GPU."""
        return any(self.containers)


def read_pod(value: Any) -> Pod:
    """A pod out of decoded JSON. Raises ObjectError."""
    return checked_pod(_convert(value, Pod))


def read_node(value: Any) -> ClusterNode:
    """A node out of decoded JSON. Raises ObjectError."""
    node: ClusterNode = _convert(value, ClusterNode)
    if not is_name(node.metadata.name):
        raise ObjectError(f"{node.metadata.name[:60]!a} is no name of a node")
    return node


def checked_pod(pod: Pod) -> Pod:
    """The pod. Raises ObjectError where its names or its number of containers cannot be."""
    about = pod.metadata
    if not is_name(about.name) or not is_name(about.namespace or "default") or not is_uid(about.uid):
        raise ObjectError(f"{about.namespace[:60]!a}/{about.name[:60]!a} with uid {about.uid[:60]!a} is no pod")
    if len(pod.containers()) > MOST_CONTAINERS:
        raise ObjectError(f"pod {about.name} has more than {MOST_CONTAINERS} containers")
    return pod


def is_name(text: str) -> bool:
    """True for the name of an object (RFC 1123 subdomain)."""
    return _NAME.fullmatch(text) is not None


def is_uid(text: str) -> bool:
    """True for an object's UID."""
    return _UID.fullmatch(text) is not None


def _convert(value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ObjectError(str(error)) from error


def quantity(value: str | float, per_unit: int = 1, *, up: bool = True) -> int:
    """A quantity of Kubernetes in parts of a unit, such as `1500m` CPUs in thousandths: 1500. Raises ObjectError."""
    found = _QUANTITY.fullmatch(str(value)) if not isinstance(value, str) or len(value) <= 64 else None
    if found is None or not any(one.isdigit() for one in found[1]):
        raise ObjectError(f"{str(value)[:60]!a} is no quantity")
    suffix = found[2] or ""
    factor = Decimal(f"1{suffix}") if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix != "Ei" else None
    if factor is None and suffix not in _FACTORS:
        raise ObjectError(f"{str(value)[:60]!a} has the unknown suffix {suffix!a}")
    exact = Decimal(found[1]) * (_FACTORS[suffix] if factor is None else factor) * per_unit
    if not 0 <= exact <= MOST_AMOUNT:
        raise ObjectError(f"{str(value)[:60]!a} is out of range")
    whole = int(exact)
    return whole + 1 if up and whole != exact else whole


def pod_request(pod: Pod) -> PodRequest:
    """The request of a pod. Raises ObjectError for amounts that cannot be, and for gpumem without nvidia.com/gpu.

    Limits count before requests for GPUs, as in HAMi; init containers count as their maximum.
    """
    containers = [one.resources or Resources() for one in pod.containers()]
    cpu, memory = [0, 0], [0, 0]
    for number, one in enumerate(containers):
        is_init = number < pod.init_count
        for total, name, per_unit in ((cpu, "cpu", 1000), (memory, "memory", 1)):
            amount = quantity(_of(one.requests, one.limits, name), per_unit)
            total[not is_init] = max(total[0], amount) if is_init else total[1] + amount
    return PodRequest(max(cpu), -(-max(memory) // 2**20), tuple(_gpu_request(one) for one in containers))


def _gpu_request(resources: Resources) -> ContainerGpus | None:
    given = {
        name: quantity(_of(resources.limits, resources.requests, name))
        for name in MANAGED
        if name in (resources.limits or {}) or name in (resources.requests or {})
    }
    gpus = given.get(GPU, 0)
    if not gpus:
        if any(given.values()):
            raise ObjectError(f"{', '.join(sorted(given))} without {GPU}: say how many GPUs the container is to have")
        return None
    percent, cores = given.get(GPU_MEMORY_PERCENT, 100), given.get(GPU_CORES, 0)
    memory = given.get(GPU_MEMORY) or None
    if gpus > 128 or percent > 100 or cores > 100:
        raise ObjectError(f"{gpus} GPUs with {percent} % of memory and {cores} % of cores: out of range")
    return ContainerGpus(gpus, memory, percent if memory is None else 0, cores)


def _of(first: Quantities, second: Quantities, name: str) -> str | int | float:
    return (first or {}).get(name) or (second or {}).get(name) or 0
