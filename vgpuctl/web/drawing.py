# SPDX-License-Identifier: Apache-2.0
"""Maps of GPUs (model/gpu_map.py) as boxes on a line of 100 %, which the templates draw as SVG."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from vgpuctl.agent.wire.readings import Measured
from vgpuctl.model.gpu_map import GpuMap, Segment, SegmentKind
from vgpuctl.usecases.telemetry.fleet_view import GpuView
from vgpuctl.web.wording import mib, percent, vm_link

_NOTHING = Measured()
_PENDING, _FAILING = ("reserved", "built", "releasing"), ("broken",)


@dataclass(frozen=True)
class Box:
    """A part of the line: begin and width in percent. style: its CSS class. text: written into it. title: all of it in
    words. link: where it leads. used: the part of its promise that the share uses, in percent of the box, None where it
    is not measured. tenant: whose share it is."""

    x: float
    width: float
    style: str
    text: str
    title: str
    link: str | None = None
    used: float | None = None
    tenant: str | None = None


STYLES: Mapping[str, str] = {
    "share": "share of a VM",
    "share-pending": "share that is built or released",
    "share-broken": "share that is broken",
    **{kind.value: kind.text for kind in SegmentKind if kind is not SegmentKind.SHARE},
}
"""Every style of a box with its meaning, for the legend."""


def segment_boxes(gpu: GpuView) -> list[Box]:
    """The GPU's memory from end to end."""
    total = gpu.map.memory_mib
    boxes = [_segment(one, gpu, total) for one in gpu.map.segments] if total > 0 else []
    free = next((at for at, one in enumerate(boxes) if one.style == SegmentKind.FREE), None)
    if free is not None and gpu.map.largest is not None:
        largest = gpu.map.largest
        boxes[free] = replace(boxes[free], text=f"{largest.count} × {mib(largest.size_mib)}")
    return boxes


def instance_boxes(drawn: GpuMap) -> list[Box]:
    """The MIG geometry: each GPU instance over the memory slots that it takes, and the slots without one."""
    return list(_instances(drawn)) if drawn.slots else []


def _segment(one: Segment, gpu: GpuView, total: int) -> Box:
    measured = gpu.shares.get(one.device or "", _NOTHING)
    use = measured.get("share_utilization_ratio")
    names = f"{one.tenant}/{one.vm}" if one.tenant and one.vm else ""
    words = [names, one.profile or "", mib(one.size_mib), STYLES[style := _style(one)]]
    if use is not None:
        words.append(f"uses {percent(use)} of what is promised")
    used_bytes = measured.get("framebuffer_used_bytes")
    if used_bytes is not None:
        words.append(f"framebuffer {mib(used_bytes / 2**20)} used")
    return Box(
        x=100 * one.start_mib / total,
        width=100 * one.size_mib / total,
        style=style,
        text=one.vm or (one.profile or "" if one.kind is SegmentKind.FOREIGN else ""),
        title=", ".join(word for word in words if word),
        link=vm_link(one.tenant, one.vm) if one.tenant and one.vm else None,
        used=None if use is None else 100 * min(max(use, 0.0), 1.0),
        tenant=one.tenant,
    )


def _style(one: Segment) -> str:
    if one.kind is not SegmentKind.SHARE:
        return one.kind.value
    if one.lease_state in _FAILING:
        return "share-broken"
    return "share-pending" if one.lease_state in _PENDING else "share"


def _instances(drawn: GpuMap) -> Iterator[Box]:
    slots = drawn.slots or 1
    taken: set[int] = set()
    for one in drawn.instances:
        taken.update(range(one.start, one.start + one.size))
        title = f"MIG instance {one.id}, {one.profile}, slots {one.start} to {one.start + one.size - 1}"
        yield Box(100 * one.start / slots, 100 * one.size / slots, "instance", one.profile, title)
    for slot in range(slots):
        if slot not in taken:
            yield Box(100 * slot / slots, 100 / slots, "slot", "", f"memory slot {slot} without an instance")
