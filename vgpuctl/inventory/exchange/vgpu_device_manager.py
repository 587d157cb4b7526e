# SPDX-License-Identifier: Apache-2.0
"""Configuration files of NVIDIA's vGPU device manager: how many vGPUs of which type.

Time-sliced types are the layout's kind vgpu, MIG-backed ones its kind mig-vgpu with the instances they sit in: as few
as hold the vGPUs of each type, where several fit into one.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.inventory.exchange.configs import Frame, export_config, import_config
from vgpuctl.inventory.exchange.refusal import Left
from vgpuctl.model.layout import HostLayout, Layout, MigVgpuLayout, SizeMode, VgpuLayout, WantedInstance
from vgpuctl.specs.document import YamlDocument
from vgpuctl.specs.layout import parse_type
from vgpuctl.specs.value import Value

_MOST = 256
_GRAPHICS = "GFX"


def import_vgpu_device_manager(document: YamlDocument, config: str | None, gpus: Sequence[Gpu] | None) -> HostLayout:
    """One configuration as a layout; see `configs.import_config`."""
    return import_config(_FRAME, document, config, gpus)


def export_vgpu_device_manager(
    layout: HostLayout, config: str, gpus: Sequence[Gpu] | None, left: Left
) -> dict[str, Any]:
    """A layout as a file's content; see `configs.export_config`."""
    return export_config(_FRAME, layout, config, gpus, left)


def time_sliced_layout(shares: Mapping[str, int]) -> VgpuLayout:
    """The layout that has these vGPUs and says nothing else; mixed sizes follow from the types."""
    mode = SizeMode.MIXED if catalog.sizes_differ(tuple(shares)) else None
    return VgpuLayout(size_mode=mode, shares=tuple(sorted(shares.items())))


def _read(_entry: Value, keys: dict[str, Value]) -> Layout:
    shares: dict[str, int] = {}
    for written, value in keys["vgpu-devices"].mapping_or_nothing().items():
        name = _type_of(written)
        if catalog.series_of(name) is None:
            raise value.refuse("is not the name of a vGPU type", hint="write it as A40-8Q or A100-1-5C")
        if name in shares:
            raise value.refuse(f"means {name}, which another key gives too")
        shares[name] = value.whole(1, _MOST)
        if catalog.is_mig_backed(name) != catalog.is_mig_backed(next(iter(shares))):
            raise value.refuse(f"cannot stand beside {next(iter(shares))}: only one of them sits in a MIG instance")
    if not shares or not catalog.is_mig_backed(next(iter(shares))):
        return time_sliced_layout(shares)
    instances = _instances_for(shares)
    if isinstance(instances, str):
        raise keys["vgpu-devices"].refuse(
            f"has {instances}, and it is not known how many of them share a MIG instance",
            hint="declare kind mig-vgpu with its geometry",
        )
    return MigVgpuLayout(instances, shares=tuple(sorted(shares.items())))


def _type_of(written: str) -> str:
    """The type that a key means.

    The tool names a MIG-backed type with the attribute of its GPU instance, `DC-1-24QGFX`, and takes the attribute off
    where the driver knows no such type (NVIDIA/vgpu-device-manager, stripVGPUConfigSuffix). Here it comes off where the
    type without it sits in instances with the attribute.
    """
    written = parse_type(written, what="vgpu-devices")
    stripped = written.upper().removesuffix(_GRAPHICS)
    if stripped == written.upper() or catalog.boards_with_type(written):
        return written
    stripped = parse_type(stripped, what="vgpu-devices")
    known = [catalog.type_by_name(board, stripped) for board in catalog.boards_with_type(stripped)]
    has_graphics = [one is not None and (one.gi_profile or "").endswith("+gfx") for one in known]
    return stripped if known and all(has_graphics) else written


def _write(layout: Layout) -> dict[str, Any] | str:
    if isinstance(layout, VgpuLayout | MigVgpuLayout):
        for name in ("virtual_functions", "scheduler", "types"):
            if getattr(layout, name, None):
                return f"{name}: the vGPU device manager has no place for it"
    shares = dict(layout.shares) if isinstance(layout, VgpuLayout | MigVgpuLayout) else {}
    if isinstance(layout, VgpuLayout):
        if layout != time_sliced_layout(shares):
            return "virtual_functions or size_mode: the vGPU device manager takes them from the types"
        return {"vgpu-devices": shares}
    if not isinstance(layout, MigVgpuLayout):
        return f"kind {layout.kind} has no vGPUs"
    implied = _instances_for(shares)
    if not shares or isinstance(implied, str) or layout != MigVgpuLayout(implied, shares=layout.shares):
        return "geometry: the vGPU device manager takes it, and the size mode, from the shares, which say otherwise"
    return {"vgpu-devices": shares}


def _instances_for(shares: Mapping[str, int]) -> tuple[WantedInstance, ...] | str:
    """The fewest MIG instances that hold these vGPUs, types apart; the name of a type that nothing is known of."""
    found: list[WantedInstance] = []
    for name, count in shares.items():
        known = {catalog.type_by_name(board, name) for board in catalog.boards_with_type(name)}
        places = {(one.gi_profile, one.max_per_gi) if one is not None else (None, None) for one in known}
        profile, most = places.pop() if len(places) == 1 else (None, None)
        if profile is None or most is None:
            return name
        found += [WantedInstance(profile)] * math.ceil(count / most)
    return tuple(sorted(found, key=lambda one: one.profile))


_FRAME = Frame("the vGPU device manager", "vgpu-configs", ("vgpu-devices",), ("vgpu-devices",), _read, _write)
