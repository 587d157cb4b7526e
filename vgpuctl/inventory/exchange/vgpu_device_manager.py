# SPDX-License-Identifier: Apache-2.0
"""Configuration files of NVIDIA's vGPU device manager: how many vGPUs of which type.

Time-sliced types are the layout's kind vgpu, MIG-backed ones its kind mig-vgpu with the instances they sit in.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.inventory.exchange.configs import Frame, export_config, import_config
from vgpuctl.inventory.exchange.refusal import Left
from vgpuctl.inventory.layout_kinds import sizes_differ
from vgpuctl.inventory.layout_value import Value
from vgpuctl.inventory.yaml_document import Document
from vgpuctl.model.layout import HostLayout, Layout, MigVgpuLayout, SizeMode, VgpuLayout, WantedInstance

_MOST = 256


def import_vgpu_device_manager(document: Document, config: str | None, gpus: Sequence[Gpu] | None) -> HostLayout:
    """One configuration as a layout; see `configs.import_config`."""
    return import_config(_FRAME, document, config, gpus)


def export_vgpu_device_manager(
    layout: HostLayout, config: str, gpus: Sequence[Gpu] | None, left: Left
) -> dict[str, Any]:
    """A layout as a file's content; see `configs.export_config`."""
    return export_config(_FRAME, layout, config, gpus, left)


def time_sliced_layout(slices: Mapping[str, int]) -> VgpuLayout:
    """The layout that has these vGPUs and says nothing else; mixed sizes follow from the types."""
    mode = SizeMode.MIXED if sizes_differ(tuple(slices)) else None
    return VgpuLayout(size_mode=mode, slices=tuple(sorted(slices.items())))


def _read(_entry: Value, keys: dict[str, Value]) -> Layout:
    slices: dict[str, int] = {}
    for name, value in keys["vgpu-devices"].mapping().items():
        if catalog.series_of(name) is None:
            raise value.refuse("is not the name of a vGPU type", hint="write it as A40-8Q or A100-1-5C")
        slices[name] = value.whole(1, _MOST)
        if catalog.is_mig_backed(name) != catalog.is_mig_backed(next(iter(slices))):
            raise value.refuse(f"cannot stand beside {next(iter(slices))}: only one of them sits in a MIG instance")
    if not slices or not catalog.is_mig_backed(next(iter(slices))):
        return time_sliced_layout(slices)
    instances: list[WantedInstance] = []
    for name, count in slices.items():
        profile = _instance_of(name)
        if profile is None:
            raise keys["vgpu-devices"].refuse(
                f"has {name}, and it is not known how many of them share a MIG instance",
                hint="declare kind mig-vgpu with its geometry",
            )
        instances += [WantedInstance(profile)] * count
    return MigVgpuLayout(_sorted(instances), slices=tuple(sorted(slices.items())))


def _write(layout: Layout) -> dict[str, Any] | str:
    if isinstance(layout, VgpuLayout | MigVgpuLayout):
        for name in ("virtual_functions", "scheduler", "types"):
            if getattr(layout, name, None):
                return f"{name}: the vGPU device manager has no place for it"
    slices = dict(layout.slices) if isinstance(layout, VgpuLayout | MigVgpuLayout) else {}
    if isinstance(layout, VgpuLayout):
        if layout != time_sliced_layout(slices):
            return "virtual_functions or size_mode: the vGPU device manager takes them from the types"
        return {"vgpu-devices": slices}
    if not isinstance(layout, MigVgpuLayout):
        return f"kind {layout.kind} has no vGPUs"
    profiles = [_instance_of(name) for name, count in layout.slices for _ in range(count)]
    implied = _sorted([WantedInstance(profile) for profile in profiles if profile is not None])
    if not slices or None in profiles or layout != MigVgpuLayout(implied, slices=layout.slices):
        return "geometry: the vGPU device manager takes it, and the size mode, from the slices, which say otherwise"
    return {"vgpu-devices": slices}


def _sorted(instances: Sequence[WantedInstance]) -> tuple[WantedInstance, ...]:
    return tuple(sorted(instances, key=lambda one: one.profile))


def _instance_of(name: str) -> str | None:
    """The MIG profile that a vGPU type has for itself alone, None when it is not known or several share one."""
    found = {catalog.type_by_name(board, name) for board in catalog.boards_with_type(name)}
    profiles = {one.gi_profile if one is not None and one.max_per_gi == 1 else None for one in found}
    return profiles.pop() if len(profiles) == 1 else None


_FRAME = Frame("the vGPU device manager", "vgpu-configs", ("vgpu-devices",), ("vgpu-devices",), _read, _write)
