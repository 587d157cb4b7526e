# SPDX-License-Identifier: Apache-2.0
"""HAMi's annotations on nodes and pods: read strictly, written exactly. No requests to an API server.

Source: Project-HAMi/HAMi at 4707fb0 (pkg/device/devices.go, pkg/device/nvidia/device.go, pkg/util/types.go,
pkg/util/nodelock/nodelock.go) and its tags v2.4.1 to v2.9.0.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec

from vgpuctl.typed_json import decode

REGISTER = "hami.io/node-nvidia-register"
HANDSHAKE = "hami.io/node-handshake"
CORDON = "hami.io/device-cordon"
LOCK = "hami.io/mutex.lock"
NODE = "hami.io/vgpu-node"
TIME = "hami.io/vgpu-time"
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
ALLOCATED = "hami.io/vgpu-devices-allocated"
BIND_PHASE = "hami.io/bind-phase"
BIND_TIME = "hami.io/bind-time"
WRITTEN_AT_BIND = (NODE, TIME, TO_ALLOCATE, ALLOCATED, BIND_PHASE, BIND_TIME)
"""The annotations of a pod that bind writes and that are removed when the binding fails."""

VENDOR = "NVIDIA"
"""Second field of a device string: the vendor, not the model."""

LOCK_EXPIRES = timedelta(minutes=5)
"""Age at which a node lock may be taken over; HAMi's default of HAMI_NODELOCK_EXPIRE."""

HANDSHAKE_EXPIRES = timedelta(seconds=60)
"""Age of an unanswered `Requesting_` at which HAMi drops a node."""

MOST_TEXT = 256 * 1024
"""Kubernetes limits all annotations of an object to this many bytes together."""

MOST_DEVICES = 128
MOST_CONTAINERS = 256
MOST_MIB = 2**32
_DEVICE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")
_NUMBER = re.compile(r"[0-9]{1,10}")
_LOCK_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
_HANDSHAKE_TIME = re.compile(r"Requesting_(\d{4})[-.](\d\d)[-.](\d\d) (\d\d:\d\d:\d\d)")


class HamiFormatError(ValueError):
    """An annotation has not the form that HAMi writes."""


@dataclass(frozen=True)
class RegisteredDevice:
    """A GPU as the node's plugin registered it.

    count: pods that may share it. memory_mib, cores: what may be given out, cores in percent of the GPU; either may be
    more than the GPU has where the operator overcommits.
    """

    id: str
    count: int
    memory_mib: int
    cores: int
    type: str
    numa: int
    is_healthy: bool
    index: int = 0
    mode: str = "hami-core"


@dataclass(frozen=True)
class GivenDevice:
    """The part of a GPU that a container has: memory in MiB, cores in percent."""

    id: str
    memory_mib: int
    cores: int


ContainerDevices = tuple[GivenDevice, ...]
"""Of one container; empty for a container without GPU."""


class _Registered(msgspec.Struct):
    """JSON since v2.8.0; fields whose value is zero are left out."""

    id: str
    type: str = ""
    index: int = 0
    count: int = 0
    devmem: int = 0
    devcore: int = 0
    numa: int = 0
    mode: str = ""
    health: bool = False


def read_register(text: str) -> list[RegisteredDevice]:
    """Read `hami.io/node-nvidia-register` in either form: a JSON array since v2.8.0, records ended by `:` before.

    Raises HamiFormatError, also for two devices of one id.
    """
    _bounded(text)
    devices = _read_json_register(text) if text.lstrip().startswith("[") else _read_old_register(text)
    if len(devices) > MOST_DEVICES:
        raise HamiFormatError(f"more than {MOST_DEVICES} devices")
    if len({one.id for one in devices}) != len(devices):
        raise HamiFormatError("two devices have one id")
    for one in devices:
        if not _DEVICE_ID.fullmatch(one.id):
            raise HamiFormatError(f"{one.id[:60]!a} is no device id")
        if not (0 <= one.count <= 10_000 and 0 <= one.memory_mib <= MOST_MIB and 0 <= one.cores <= 100_000):
            raise HamiFormatError(f"device {one.id}: a number is out of range")
    return devices


def _read_json_register(text: str) -> list[RegisteredDevice]:
    try:
        found = decode(text, list[_Registered])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise HamiFormatError(f"no list of devices: {error}") from error
    return [
        RegisteredDevice(
            one.id, one.count, one.devmem, one.devcore, one.type, one.numa, one.health, one.index,
            one.mode or "hami-core",
        )
        for one in found
    ]  # fmt: skip


def _read_old_register(text: str) -> list[RegisteredDevice]:
    """`uuid,count,devmem,devcore,type,numa,health[,index,mode]:` for each device."""
    found = []
    for record in text.split(":")[:-1] if text.endswith(":") else text.split(":"):
        fields = record.split(",")
        if len(fields) not in (7, 9):
            raise HamiFormatError(f"a device has {len(fields)} fields, not 7 or 9")
        device, count, memory, cores, kind, numa, health = fields[:7]
        index, mode = fields[7:] if len(fields) == 9 else ("0", "hami-core")
        if health not in ("true", "false"):
            raise HamiFormatError(f"{health[:20]!a} is neither true nor false")
        # The kernel answers -1 where a machine has one NUMA node.
        numbers = [_number(one) for one in (count, memory, cores, numa.removeprefix("-"), index)]
        found.append(
            RegisteredDevice(
                device, numbers[0], numbers[1], numbers[2], kind, numbers[3], health == "true", numbers[4], mode
            )
        )
    return found


def read_devices(text: str) -> tuple[ContainerDevices, ...]:
    """Read a device string: of each container, init containers first, its devices; raises HamiFormatError."""
    _bounded(text)
    containers = text.split(";")
    if containers[-1]:
        raise HamiFormatError("the last container is not ended by `;`")
    if len(containers) > MOST_CONTAINERS:
        raise HamiFormatError(f"more than {MOST_CONTAINERS} containers")
    return tuple(_read_container(one) for one in containers[:-1])


def _read_container(text: str) -> ContainerDevices:
    if not text:
        return ()
    records = text.split(":")
    if records[-1]:
        raise HamiFormatError("the last device of a container is not ended by `:`")
    if len(records) > MOST_DEVICES:
        raise HamiFormatError(f"more than {MOST_DEVICES} devices")
    found = []
    for record in records[:-1]:
        fields = record.split(",")
        if len(fields) != 4 or not _DEVICE_ID.fullmatch(fields[0]):
            raise HamiFormatError(f"{record[:80]!a} is no device")
        found.append(GivenDevice(fields[0], _number(fields[2]), _number(fields[3])))
    return tuple(found)


def write_devices(containers: Iterable[ContainerDevices]) -> str:
    """Write a device string: `UUID,NVIDIA,MIB,CORES:` for each device, `;` after each container."""
    return "".join(
        "".join(f"{one.id},{VENDOR},{one.memory_mib},{one.cores}:" for one in devices) + ";" for devices in containers
    )


def most_at_once(containers: Sequence[ContainerDevices], init_containers: int) -> dict[str, tuple[int, int, int]]:
    """The most that a pod has of each device at one time: (pods' slots, MiB, cores).

    Init containers run one after another before the others, so they count as the maximum, not as a sum.
    """
    most: dict[str, tuple[int, int, int]] = {}
    together: dict[str, tuple[int, int, int]] = {}
    for number, devices in enumerate(containers):
        for one in devices:
            into = most if number < init_containers else together
            slots, memory, cores = into.get(one.id, (0, 0, 0))
            into[one.id] = (
                (max(slots, 1), max(memory, one.memory_mib), max(cores, one.cores))
                if number < init_containers
                else (slots + 1, memory + one.memory_mib, cores + one.cores)
            )
    for device, (slots, memory, cores) in together.items():
        before = most.get(device, (0, 0, 0))
        most[device] = (max(before[0], slots), max(before[1], memory), max(before[2], cores))
    return most


@dataclass(frozen=True)
class NodeLock:
    """The value of `hami.io/mutex.lock`. namespace, pod: empty in the older form, which is a time alone."""

    since: datetime
    namespace: str = ""
    pod: str = ""

    def is_expired(self, now: datetime) -> bool:
        """True if it may be taken over."""
        return now - self.since > LOCK_EXPIRES

    def is_of(self, namespace: str, pod: str) -> bool:
        """True if this pod holds the lock."""
        return (self.namespace, self.pod) == (namespace, pod)

    def __str__(self) -> str:
        since = self.since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"{since},{self.namespace},{self.pod}" if self.pod else since


def read_lock(text: str) -> NodeLock:
    """Read a node lock. Raises HamiFormatError."""
    _bounded(text)
    time, *names = text.split(",")
    found = _LOCK_TIME.fullmatch(time)
    if found is None or len(names) not in (0, 2):
        raise HamiFormatError(f"{text[:80]!a} is no node lock")
    try:
        since = datetime.fromisoformat(found[1] + found[2].replace("Z", "+00:00"))
    except ValueError as error:
        raise HamiFormatError(f"{time!a} is no time") from error
    return NodeLock(since, *names)


def is_stale(annotations: Mapping[str, str], *, advertised_gpus: int, now: datetime) -> bool:
    """True if HAMi would drop the node's devices because its plugin does not answer the handshake.

    Up to v2.7.1 the plugin overwrites the scheduler's `Requesting_<local time>` by `Reported <time>`; 60 s without are
    too many. From v2.8.0 on no plugin writes it, and an old stamp is harmless while the node advertises nvidia.com/gpu.
    advertised_gpus: allocatable nvidia.com/gpu of the node. now: in the scheduler's local time.
    """
    text = annotations.get(HANDSHAKE, "")
    if text.startswith("Deleted"):
        return True
    found = _HANDSHAKE_TIME.match(text)
    if found is None:
        return False
    if annotations.get(REGISTER, "").lstrip().startswith("["):
        return advertised_gpus <= 0
    year, month, day, time = found.groups()
    try:
        since = datetime.fromisoformat(f"{year}-{month}-{day}T{time}").replace(tzinfo=now.tzinfo)
    except ValueError:
        return True
    return now - since > HANDSHAKE_EXPIRES


def read_cordon(text: str) -> frozenset[str]:
    """The ids of `hami.io/device-cordon`: GPUs that are closed for new pods."""
    _bounded(text)
    return frozenset(filter(None, (one.strip() for one in text.split(","))))


def bind_annotations(node: str, containers: Sequence[ContainerDevices], now: datetime) -> dict[str, str]:
    """The annotations of a pod before its Binding, so that the node's plugin gives it these devices."""
    devices, seconds = write_devices(containers), str(int(now.timestamp()))
    return {
        NODE: node,
        TIME: seconds,
        TO_ALLOCATE: devices,
        ALLOCATED: devices,
        BIND_PHASE: "allocating",
        BIND_TIME: seconds,
    }


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise HamiFormatError(f"{text[:20]!a} is no whole number")
    return int(text)


def _bounded(text: str) -> None:
    if len(text) > MOST_TEXT:
        raise HamiFormatError(f"longer than {MOST_TEXT} characters")
