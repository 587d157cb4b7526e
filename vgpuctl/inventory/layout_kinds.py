# SPDX-License-Identifier: Apache-2.0
"""Keys of each kind of a GPU's layout and their contradictions (docs/layout.md)."""

import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from vgpuctl import catalog
from vgpuctl.model.layout import (
    Layout,
    LayoutKind,
    MigLayout,
    MigVgpuLayout,
    OffLayout,
    PassthroughLayout,
    SchedulerLayout,
    SchedulerPolicy,
    SizeMode,
    VfLayout,
    VgpuLayout,
    WantedInstance,
)
from vgpuctl.planner.mig_geometry import instances_of, part_problem, split_name
from vgpuctl.specs.value import Value

_LARGEST_COUNT = 256
_LONGEST_SLICE_MS = 30.0
_SHORTEST_SLICE_MS = 1.0
_GEOMETRY = ("geometry", "placements")
_VGPU = ("size_mode", "scheduler", "types", "shares")
_KEYS: dict[LayoutKind, tuple[str, ...]] = {
    LayoutKind.PASSTHROUGH: ("driver",),
    LayoutKind.VGPU: ("virtual_functions", *_VGPU),
    LayoutKind.MIG: _GEOMETRY,
    LayoutKind.MIG_VGPU: (*_GEOMETRY, *_VGPU),
    LayoutKind.VF: ("count",),
    LayoutKind.OFF: (),
}
_REQUIRED = {LayoutKind.MIG: "geometry", LayoutKind.MIG_VGPU: "geometry", LayoutKind.VF: "count"}


class _BoundDriver(StrEnum):
    """Drivers that a whole card can be bound to ahead of a VM."""

    VFIO_PCI = "vfio-pci"


def read_kind(entry: Value) -> Layout:
    """Read one entry of `gpus`, without its match. Raises InventoryError with file and line."""
    entries = entry.mapping()
    kind = _read_name(entries["kind"])
    for key, value in entries.items():
        if key not in ("match", "kind", *_KEYS[kind]):
            raise _unknown(value, key, kind)
    if kind in _REQUIRED and _REQUIRED[kind] not in entries:
        raise entry.refuse(f"is of kind {kind} and has no {_REQUIRED[kind]!r}")
    return _READERS[kind](entries)


def _read_name(value: Value) -> LayoutKind:
    if value.content is False:  # YAML 1.1 reads a bare `off` as false
        return LayoutKind.OFF
    return value.choice(LayoutKind)


def _unknown(value: Value, key: str, kind: LayoutKind) -> Exception:
    owners = [str(other) for other in LayoutKind if key in _KEYS[other]]
    allowed = _KEYS[kind]
    listed = f"{kind} can have {', '.join(allowed)}" if allowed else f"{kind} has no keys of its own"
    if owners:
        return value.refuse(
            f"contradicts kind {kind}: {key!r} belongs to {' and '.join(owners)}", hint=f"{listed}; or change the kind"
        )
    near = difflib.get_close_matches(key, ("match", "kind", *allowed), n=1)
    return value.refuse("is not a key of the layout", hint=f"did you mean {near[0]}?" if near else listed)


def _read_passthrough(entries: Mapping[str, Value]) -> Layout:
    return PassthroughLayout(str(entries["driver"].choice(_BoundDriver)) if "driver" in entries else None)


def _read_vgpu(entries: Mapping[str, Value]) -> Layout:
    functions = entries["virtual_functions"].truth() if "virtual_functions" in entries else None
    mode, scheduler = _read_mode(entries), _read_scheduler(entries)
    types, shares = _read_types(entries, mig_backed=False), _read_shares(entries, mig_backed=False)
    _check_sizes(entries, mode, shares)
    return VgpuLayout(functions, mode, scheduler, types, shares)


def _read_mig(entries: Mapping[str, Value]) -> Layout:
    return MigLayout(_read_instances(entries, with_parts=True))


def _read_mig_vgpu(entries: Mapping[str, Value]) -> Layout:
    mode, scheduler = _read_mode(entries), _read_scheduler(entries)
    types, shares = _read_types(entries, mig_backed=True), _read_shares(entries, mig_backed=True)
    return MigVgpuLayout(_read_instances(entries, with_parts=False), mode, scheduler, types, shares)


def _read_vf(entries: Mapping[str, Value]) -> Layout:
    return VfLayout(entries["count"].whole(1, _LARGEST_COUNT))


def _read_off(entries: Mapping[str, Value]) -> Layout:
    return OffLayout()


_READERS: dict[LayoutKind, Callable[[Mapping[str, Value]], Layout]] = {
    LayoutKind.PASSTHROUGH: _read_passthrough,
    LayoutKind.VGPU: _read_vgpu,
    LayoutKind.MIG: _read_mig,
    LayoutKind.MIG_VGPU: _read_mig_vgpu,
    LayoutKind.VF: _read_vf,
    LayoutKind.OFF: _read_off,
}


def _read_instances(entries: Mapping[str, Value], *, with_parts: bool) -> tuple[WantedInstance, ...]:
    """Read `geometry` (device: how many) and `placements` (profile: slots); each slot goes to one of the profile's."""
    devices: dict[str, int] = {}
    for name, (count, value) in entries["geometry"].counts(highest=_LARGEST_COUNT).items():
        if split_name(name)[1] and not with_parts:
            raise value.refuse("is a part of a GPU instance", hint="vGPUs sit in whole instances, without parts")
        if (problem := part_problem(name)) is not None:
            raise value.refuse(problem)
        devices[name] = count
    geometry = Counter(one.profile for one in instances_of(devices))
    starts: dict[str, list[int]] = {}
    for name, value in (entries["placements"].mapping() if "placements" in entries else {}).items():
        if name not in geometry:
            raise value.refuse("is for a profile that the geometry does not have")
        items = value.items()
        if len(items) > geometry[name]:
            raise value.refuse(f"has {len(items)} slots, but the geometry has {geometry[name]} of {name}")
        for item in items:
            start = item.whole(0, 63)
            if start in starts.setdefault(name, []):
                raise item.refuse(f"is {start} a second time")
            starts[name].append(start)
    return instances_of(devices, starts)


def _read_mode(entries: Mapping[str, Value]) -> SizeMode | None:
    return entries["size_mode"].choice(SizeMode) if "size_mode" in entries else None


def _read_scheduler(entries: Mapping[str, Value]) -> SchedulerLayout | None:
    if "scheduler" not in entries:
        return None
    fields = entries["scheduler"].fields(("policy", "time_slice_ms"), required=("policy",))
    policy = fields["policy"].choice(SchedulerPolicy)
    if _read_mode(entries) is SizeMode.MIXED and not policy.works_with_mixed_size():
        raise fields["policy"].refuse(
            f"is {policy}, which contradicts size_mode mixed-size",
            hint="mixed sizes work with best-effort and equal-share",
        )
    time_slice_us = None
    if "time_slice_ms" in fields:
        if not policy.has_time_slice():
            raise fields["time_slice_ms"].refuse(f"contradicts policy {policy}, which has no time slice")
        time_slice_us = round(fields["time_slice_ms"].number(_SHORTEST_SLICE_MS, _LONGEST_SLICE_MS) * 1000)
    return SchedulerLayout(policy, time_slice_us)


def _read_types(entries: Mapping[str, Value], *, mig_backed: bool) -> tuple[str, ...]:
    if "types" not in entries:
        return ()
    types = entries["types"].texts()
    if not types:
        raise entries["types"].refuse("is an empty list", hint="leave it out to allow every type")
    for name, item in zip(types, entries["types"].items(), strict=True):
        _check_backing(name, item, mig_backed=mig_backed)
    return types


def _read_shares(entries: Mapping[str, Value], *, mig_backed: bool) -> tuple[tuple[str, int], ...]:
    if "shares" not in entries:
        return ()
    allowed = entries["types"].texts() if "types" in entries else ()
    found: dict[str, int] = {}
    for name, (count, value) in entries["shares"].counts(highest=_LARGEST_COUNT).items():
        _check_backing(name, value, mig_backed=mig_backed)
        if allowed and name not in allowed:
            raise value.refuse(f"contradicts types: {name} is not one of {', '.join(allowed)}")
        found[name] = count
    return tuple(sorted(found.items()))


def _check_backing(name: str, value: Value, *, mig_backed: bool) -> None:
    if catalog.is_mig_backed(name) != mig_backed:
        what, kind = ("sits in a MIG instance", "mig-vgpu") if not mig_backed else ("does not sit in one", "vgpu")
        raise value.refuse(f"contradicts the kind: type {name} {what}", hint=f"{name} belongs to kind {kind}")


def _check_sizes(entries: Mapping[str, Value], mode: SizeMode | None, shares: tuple[tuple[str, int], ...]) -> None:
    """Refuse shares of several sizes where the sizes must be equal; unknown types are left to the host."""
    if mode is not SizeMode.MIXED and sizes_differ([name for name, _ in shares]):
        raise entries["shares"].refuse(
            "has types of different sizes, which contradicts equal sizes", hint="declare size_mode: mixed-size"
        )


def sizes_differ(types: Sequence[str]) -> bool:
    """True if vGPU types are of several sizes on every board that offers them all; False for unknown types."""
    if len(types) < 2:
        return False
    offers = [[catalog.type_by_name(board, name) for name in types] for board in catalog.boards_with_type(types[0])]
    sizes = [{one.fb_mib for one in offered if one is not None} for offered in offers if None not in offered]
    return bool(sizes) and all(len(of_board) > 1 for of_board in sizes)
