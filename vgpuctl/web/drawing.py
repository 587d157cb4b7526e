# SPDX-License-Identifier: Apache-2.0
"""Maps of GPUs (model/gpu_map.py) as boxes on a line of 100 %, which the templates draw as SVG."""

from collections.abc import Iterator, Mapping, Sequence
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
    "quarantine": "GPU in quarantine",
    "missing": "GPU off the bus or not readable",
}
"""Every style of a box with its meaning, for the legend."""
_ALARMS = {"quarantine": "quarantine", "missing": "missing", "unreadable": "missing", "problem": "missing"}
"""Styles of what is free on a GPU in such a state; in any other it is closed."""
_COLOURS, _PATTERNS = 8, 5


def tenant_styles(tenants: Sequence[str]) -> dict[str, str]:
    """The CSS classes of each tenant: a colour and a pattern. No two of 40 tenants have the same of both."""
    return {name: f"tenant-{at % _COLOURS} pattern-{at % _PATTERNS}" for at, name in enumerate(tenants)}


def alarm(gpu: GpuView) -> str:
    """`alarm` for a GPU that must be looked at, `warn` for one that is closed, else empty."""
    if gpu.state in _ALARMS:
        return "alarm"
    return "warn" if gpu.map.closed is not None else ""


def segment_boxes(gpu: GpuView) -> list[Box]:
    """The GPU's memory from end to end."""
    total = gpu.map.memory_mib
    boxes = [_segment(one, gpu, total) for one in gpu.map.segments] if total > 0 else []
    free = next((at for at, one in enumerate(boxes) if one.style == SegmentKind.FREE), None)
    if free is not None and gpu.map.largest is not None:
        largest = gpu.map.largest
        boxes[free] = replace(boxes[free], text=f"{largest.count} × {mib(largest.size_mib)}")
    closed = [at for at, one in enumerate(gpu.map.segments) if one.kind is SegmentKind.CLOSED]
    if closed and boxes:
        widest = max(closed, key=lambda at: boxes[at].width)
        boxes[widest] = replace(boxes[widest], text=gpu.state)
    return boxes


def instance_boxes(drawn: GpuMap) -> list[Box]:
    """The MIG geometry: each GPU instance over the memory slots that it takes, and the slots without one."""
    return list(_instances(drawn)) if drawn.slots else []


def _segment(one: Segment, gpu: GpuView, total: int) -> Box:
    measured = gpu.shares.get(one.device or "", _NOTHING)
    use = measured.get("share_utilization_ratio")
    names = f"{one.tenant}/{one.vm}" if one.tenant and one.vm else ""
    words = [names, one.profile or "", mib(one.size_mib), STYLES[style := _style(one, gpu)]]
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


def _style(one: Segment, gpu: GpuView) -> str:
    if one.kind is SegmentKind.CLOSED:
        return _ALARMS.get(gpu.state, one.kind.value)
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
