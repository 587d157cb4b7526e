# SPDX-License-Identifier: Apache-2.0
"""The fleet as ResourceSlices of resource.k8s.io/v1, so that a Kubernetes control plane can plan with what is free.

A host is a pool of devices that every node may use. Each share of a GPU, at each place, is a device;
all take from the counters of their GPU (partitionable devices), so that what overlaps is never promised twice. Limits:
Kubernetes, pkg/apis/resource/types.go. Attributes have the names of NVIDIA's driver (kubernetes-sigs/
dra-driver-nvidia-gpu, cmd/gpu-kubelet-plugin/deviceinfo.go and mig.go).
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import lcm
from typing import Any

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, VgpuType
from vgpuctl.model.lease import Share
from vgpuctl.model.placement import HostCapacity
from vgpuctl.node_config.labels import label_value, nvlink_domain
from vgpuctl.sharing.gate import refuse_closed_gpu, refuse_closed_host
from vgpuctl.sharing.kinds import existing_vgpus, offers_card
from vgpuctl.sharing.type_names import numbered_now

DRIVER = "vgpuctl.io"
MOST_DEVICES = 64
"""Devices of one slice where they consume counters; 128 without."""
MOST_COUNTERS = 32
"""Counters of one set."""
MOST_SETS = 8
"""Counter sets of one slice."""
_MEDIA = ("+me", "+me.all")
_SETS_OF_DEVICE = 2
"""Counter sets that one device can consume from."""

Document = dict[str, Any]


@dataclass(frozen=True)
class _Part:
    """One device of a GPU, by the counters that it takes. kind: `gpu`, `mig` or `vgpu`. profile: None of a card."""

    name: str
    kind: str
    takes: Mapping[str, int]
    profile: str | None
    memory_mib: int | None


@dataclass(frozen=True)
class _Space:
    """The counters of one GPU with what is free of each, and its parts. is_equal_size: only one type at a time."""

    free: Mapping[str, int]
    parts: tuple[_Part, ...]
    is_equal_size: bool = False


def resource_slices(capacity: HostCapacity, shares: Sequence[Share]) -> list[Document]:
    """Write the slices of one host: first those with counters, then those with devices.

    shares: that VMs of vgpuctl have there. A GPU that takes no new VM is left out, and so is what does not fit any
    more. The pool's generation is the store's counter of changes to the host's leases.
    """
    sets: list[Document] = []
    devices: list[Document] = []
    for number, gpu in enumerate(sorted(capacity.facts.gpus, key=lambda one: one.address)):
        held = [share for share in shares if share.gpu == gpu.address]
        if gpu.problems or refuse_closed_host(capacity.rules) or refuse_closed_gpu(gpu, capacity.rules):
            continue
        space = _space(gpu, held, f"gpu-{number}")
        if not space.parts:
            continue
        names = sorted(space.free)
        chunks = [names[start : start + MOST_COUNTERS] for start in range(0, len(names), MOST_COUNTERS)]
        if len(chunks) > _SETS_OF_DEVICE:
            continue
        set_of = {name: f"gpu-{number}-{index}" for index, chunk in enumerate(chunks) for name in chunk}
        for index, chunk in enumerate(chunks):
            counters = {name: {"value": str(space.free[name])} for name in chunk}
            sets.append({"name": f"gpu-{number}-{index}", "counters": counters})
        common = _attributes(capacity, gpu, is_equal_size=space.is_equal_size)
        devices += [_device(part, common, set_of) for part in space.parts if _fits(part, space.free)]
    return _slices(capacity, sets, devices)


def _slices(capacity: HostCapacity, sets: Sequence[Document], devices: Sequence[Document]) -> list[Document]:
    bodies: list[Document] = [
        {"sharedCounters": list(sets[start : start + MOST_SETS])} for start in range(0, len(sets), MOST_SETS)
    ]
    bodies += [
        {"devices": list(devices[start : start + MOST_DEVICES])} for start in range(0, len(devices), MOST_DEVICES)
    ]
    pool = _pool_name(capacity.name)
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"vgpuctl-{pool}-{index}"},
            "spec": {
                "driver": DRIVER,
                "allNodes": True,
                "pool": {"name": pool, "generation": capacity.generation, "resourceSliceCount": len(bodies)},
                **body,
            },
        }
        for index, body in enumerate(bodies)
    ]


def _space(gpu: Gpu, held: Sequence[Share], prefix: str) -> _Space:
    """The devices that a GPU can still give in its present mode."""
    if gpu.users or gpu.holders or any(share.function == gpu.address and share.type_id is None for share in held):
        return _Space({}, ())  # a whole card is away, or at work for the host itself
    if gpu.mig is not None and gpu.mig.current:
        return _mig_space(gpu, prefix)
    if gpu.heterogeneous:
        return _mixed_space(gpu, held, prefix)
    return _equal_space(gpu, held, prefix)


def _mig_space(gpu: Gpu, prefix: str) -> _Space:
    """MIG's rule of placement (model/mig_space.py) as counters. An instance that is in use has taken its own.

    Counters: each memory slot, the compute slices, the media engines, and the profiles of which fewer may be than have
    a start.
    """
    assert gpu.mig is not None
    profiles = gpu.mig.profiles
    if not profiles:
        return _Space({}, ())
    slots = max(start + one.size for one in profiles for start in one.starts)
    compute = max(one.compute_slices for one in profiles)
    used = [one for one in gpu.mig.instances if one.in_use]
    slices_of = {one.name: one.compute_slices for one in profiles}
    taken = {f"memory-slice-{slot}" for one in used for slot in range(one.start, one.start + one.size)}
    free = {f"memory-slice-{slot}": int(f"memory-slice-{slot}" not in taken) for slot in range(slots)}
    free["compute-slices"] = compute - sum(slices_of.get(one.profile, 0) for one in used)
    free["media"] = 1 - any(one.profile.endswith(_MEDIA) for one in used)
    bounded = {one.name: one for one in profiles if one.max_count < len(one.starts)}
    for one in bounded.values():
        free[f"count-{one.profile_id}"] = one.max_count - sum(there.profile == one.name for there in used)
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    table = None if board is None else catalog.mig_table(board)
    memory = {} if table is None else {one.name: one.memory_mib for one in table.profiles}
    parts = [
        _Part(
            f"{prefix}-mig-{_dns_name(one.name)}-{one.profile_id}-{start}",
            "mig",
            {f"memory-slice-{slot}": 1 for slot in range(start, start + one.size)}
            | ({"compute-slices": one.compute_slices} if one.compute_slices else {})
            | ({"media": 1} if one.name.endswith(_MEDIA) else {})
            | ({f"count-{one.profile_id}": 1} if one.name in bounded else {}),
            one.name,
            memory.get(one.name),
        )
        for one in profiles
        for start in one.starts
    ]
    return _Space(free, tuple(parts))


def _mixed_space(gpu: Gpu, held: Sequence[Share], prefix: str) -> _Space:
    """The placements of mixed-size mode. Neighbouring places that every type takes together are one counter."""
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    table = None if board is None else catalog.mixed_size_table(board)
    if board is None or table is None:
        return _Space({}, ())
    wanted = [
        (one, start, size)
        for one in gpu.types
        if (size := _placement_size(board, one)) is not None
        for start in table.sizes.get(size, ())
    ]
    taken = [
        (share.placement_start, size)
        for share in held
        if share.placement_start is not None and (size := _size_of(board, gpu, share)) is not None
    ]
    if len(taken) < len(_in_use(gpu, held)):
        return _Space({}, ())  # where one of them is, is not known
    edges = {edge for _, start, size in wanted for edge in (start, start + size)}
    edges |= {edge for start, size in taken for edge in (start, start + size)}
    places = sorted(edges)
    intervals = list(pairwise(places))

    def within(start: int, size: int) -> list[str]:
        return [f"placement-{low}" for low, high in intervals if start <= low and high <= start + size]

    gone = {name for start, size in taken for name in within(start, size)}
    free = {f"placement-{low}": int(f"placement-{low}" not in gone) for low, _ in intervals}
    parts = [
        _Part(
            f"{prefix}-vgpu-{_dns_name(one.name)}-{start}",
            "vgpu",
            dict.fromkeys(within(start, size), 1),
            one.name,
            one.framebuffer_mib,
        )
        for one, start, size in wanted
    ]
    return _Space(free, tuple(parts))


def _equal_space(gpu: Gpu, held: Sequence[Share], prefix: str) -> _Space:
    """Equal-size mode: each type takes its part of the GPU, and the whole card takes all. A GPU in use has one type.

    The facts may be older than the shares, so how many more fit follows from the shares. That a free GPU takes
    one type alone cannot be said by counters; the attribute vgpuctl.io/equalSize tells it.
    """
    there = list(_in_use(gpu, held).values())
    used = set(there)
    types = [one for one in gpu.types if one.max_instances and (one.type_id in used if used else one.creatable)]
    whole = lcm(*(one.max_instances or 1 for one in types)) if types else 1
    most = {one.type_id: one.max_instances or 1 for one in gpu.types}
    left = whole - sum(whole // most.get(type_id, 1) for type_id in there)
    parts = [
        _Part(
            f"{prefix}-vgpu-{_dns_name(one.name)}-{index}",
            "vgpu",
            {"parts": whole // (one.max_instances or 1)},
            one.name,
            one.framebuffer_mib,
        )
        for one in types
        for index in range(max(0, left) // (whole // (one.max_instances or 1)))
    ]
    if not there and offers_card(gpu):
        parts.insert(0, _Part(prefix, "gpu", {"parts": whole}, None, gpu.memory_mib))
    return _Space({"parts": max(0, left)}, tuple(parts), is_equal_size=True)


def _in_use(gpu: Gpu, held: Sequence[Share]) -> dict[str, str]:
    """The types of the vGPUs on a GPU by their device, of VMs of vgpuctl and of others."""
    there = {vgpu.device: vgpu.type_id or "" for vgpu in existing_vgpus(gpu)}
    return there | {share.device: numbered_now(share, gpu).type_id or "" for share in held}


def _placement_size(board: catalog.Board, one: VgpuType) -> int | None:
    known = catalog.type_by_name(board, one.name)
    return one.placement_size or (None if known is None else known.placement_size)


def _size_of(board: catalog.Board, gpu: Gpu, share: Share) -> int | None:
    now = numbered_now(share, gpu)
    there = next((one for one in gpu.types if one.type_id == now.type_id), None)
    if there is not None:
        return _placement_size(board, there)
    known = catalog.type_by_name(board, share.profile)
    return None if known is None else known.placement_size


def _fits(part: _Part, free: Mapping[str, int]) -> bool:
    return all(free.get(name, 0) >= count for name, count in part.takes.items())


def _device(part: _Part, common: Document, set_of: Mapping[str, str]) -> Document:
    attributes = {"gpu.nvidia.com/type": {"string": part.kind}, **common}
    if part.profile is not None:
        attributes["gpu.nvidia.com/profile"] = {"string": part.profile[:64]}
    by_set: dict[str, dict[str, Document]] = {}
    for name, count in part.takes.items():
        by_set.setdefault(set_of[name], {})[name] = {"value": str(count)}
    device: Document = {"name": part.name, "attributes": attributes}
    if part.memory_mib is not None:
        device["capacity"] = {"gpu.nvidia.com/memory": {"value": f"{part.memory_mib}Mi"}}
    device["consumesCounters"] = [{"counterSet": name, "counters": by_set[name]} for name in sorted(by_set)]
    return device


def _attributes(capacity: HostCapacity, gpu: Gpu, *, is_equal_size: bool) -> Document:
    def texts() -> Iterator[tuple[str, str | None]]:
        board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
        yield "gpu.nvidia.com/uuid", gpu.uuid
        yield "gpu.nvidia.com/productName", gpu.name or (None if board is None else board.name)
        yield "gpu.nvidia.com/architecture", None if board is None else board.architecture
        yield "resource.kubernetes.io/pciBusID", gpu.address
        yield "resource.kubernetes.io/pcieRoot", None if gpu.topology is None else gpu.topology.root
        yield f"{DRIVER}/host", capacity.name
        yield f"{DRIVER}/nvlinkDomain", nvlink_domain(capacity.name, capacity.facts, [gpu.address])

    made: Document = {key: {"string": text[:64]} for key, text in texts() if text}
    if capacity.facts.nvidia_driver is not None:
        made["gpu.nvidia.com/driverVersion"] = {"version": _version(capacity.facts.nvidia_driver)}
    if gpu.numa_node is not None and gpu.numa_node >= 0:
        made["resource.kubernetes.io/numaNode"] = {"int": gpu.numa_node}
    if gpu.topology is not None and gpu.topology.module is not None:
        made["gpu.nvidia.com/gpuModuleID"] = {"int": gpu.topology.module}
    made[f"{DRIVER}/equalSize"] = {"bool": is_equal_size}
    return made


def _version(text: str) -> str:
    """A driver's version as semver.org has it: three numbers without leading zeros."""
    numbers = [str(int(part)) for part in text.split(".")[:3] if part.isdecimal()]
    return ".".join([*numbers, "0", "0", "0"][:3])


def _pool_name(host: str) -> str:
    """The pool of a host: its name, with a digest where that is no DNS label, so that no two hosts share one."""
    name = _dns_name(host)
    return name if name == host else f"{name[:50].rstrip('-')}-{hashlib.sha256(host.encode()).hexdigest()[:8]}"


def _dns_name(text: str) -> str:
    """A text as a DNS label: small letters, digits and '-'."""
    return label_value(text).lower().replace("_", "-").replace(".", "-").strip("-") or "x"
