# SPDX-License-Identifier: Apache-2.0
"""A host's layout written down as the variable `vgpu` that reads back as the same layout (docs/layout.md)."""

from typing import Any

import yaml

from vgpuctl.model.guest_memory import exact_page_size
from vgpuctl.model.layout import (
    GpuLayout,
    GpuMatch,
    HostLayout,
    Layout,
    MigLayout,
    MigVgpuLayout,
    PassthroughLayout,
    SchedulerLayout,
    VfLayout,
    VgpuLayout,
    WantedInstance,
)
from vgpuctl.planner.mig_geometry import devices_of
from vgpuctl.specs.layout import LAYOUT_VARIABLE


def layout_variable(layout: HostLayout) -> dict[str, Any]:
    """The mapping under `vgpu:`, without empty keys."""
    content: dict[str, Any] = {"version": layout.version}
    if layout.kernel_arguments:
        content["kernel_arguments"] = list(layout.kernel_arguments)
    if layout.stop_services:
        content["stop_services"] = list(layout.stop_services)
    if layout.hugepages:
        content["hugepages"] = {exact_page_size(size_kib): count for size_kib, count in layout.hugepages}
    if layout.uplinks:
        content["uplinks"] = dict(layout.uplinks)
    if layout.gpus:
        content["gpus"] = [_gpu(entry) for entry in layout.gpus]
    return content


def layout_yaml(layout: HostLayout) -> str:
    """A file of `host_vars` that declares the layout."""
    text: str = yaml.safe_dump({LAYOUT_VARIABLE: layout_variable(layout)}, sort_keys=False, allow_unicode=True)
    return text


def _gpu(entry: GpuLayout) -> dict[str, Any]:
    return {"match": _match(entry.match), "kind": str(entry.layout.kind), **_keys(entry.layout)}


def _match(match: GpuMatch) -> str | dict[str, str]:
    for name in ("address", "uuid", "board"):
        value = getattr(match, name)
        if value is not None:
            return {name: value}
    return "all"


def _keys(layout: Layout) -> dict[str, Any]:
    if isinstance(layout, PassthroughLayout):
        return {"driver": layout.driver} if layout.driver is not None else {}
    if isinstance(layout, VfLayout):
        return {"count": layout.count}
    if isinstance(layout, MigLayout):
        return _geometry(layout.instances)
    if isinstance(layout, MigVgpuLayout):
        return _geometry(layout.instances) | _vgpu(layout)
    if isinstance(layout, VgpuLayout):
        functions = {"virtual_functions": layout.virtual_functions} if layout.virtual_functions is not None else {}
        return functions | _vgpu(layout)
    return {}


def _geometry(instances: tuple[WantedInstance, ...]) -> dict[str, Any]:
    content: dict[str, Any] = {"geometry": devices_of(instances)}
    starts: dict[str, list[int]] = {}
    for one in instances:
        if one.start is not None:
            starts.setdefault(one.profile, []).append(one.start)
    return content | ({"placements": dict(sorted(starts.items()))} if starts else {})


def _vgpu(layout: VgpuLayout | MigVgpuLayout) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if layout.size_mode is not None:
        content["size_mode"] = str(layout.size_mode)
    if layout.scheduler is not None:
        content["scheduler"] = _scheduler(layout.scheduler)
    if layout.types:
        content["types"] = list(layout.types)
    if layout.shares:
        content["shares"] = dict(layout.shares)
    return content


def _scheduler(scheduler: SchedulerLayout) -> dict[str, Any]:
    content: dict[str, Any] = {"policy": str(scheduler.policy)}
    if scheduler.time_slice_us is not None:
        whole, rest = divmod(scheduler.time_slice_us, 1000)
        content["time_slice_ms"] = scheduler.time_slice_us / 1000 if rest else whole
    return content
