# SPDX-License-Identifier: Apache-2.0
"""Framebuffer that will be full soon: the trend of what a guest uses, with its interval."""

from collections.abc import Mapping

from vgpuctl.model import exhaustible
from vgpuctl.model.faults import FaultId
from vgpuctl.scheduler.advice.advice import MeasuredFault
from vgpuctl.scheduler.advice.exhaustion import in_words, judge, recent_points
from vgpuctl.scheduler.advice.measured import FRAMEBUFFER, HOUR_S, MeasuredVgpu, Points
from vgpuctl.scheduler.advice.trend import LimitReached, Trend


def predict_exhaustion(vgpu: MeasuredVgpu, now: float) -> tuple[Trend, LimitReached] | None:
    """The trend of the last two hours, and when the framebuffer is full; None if it is not going to be soon."""
    if vgpu.size_bytes is None:
        return None
    found = judge(exhaustible.FRAMEBUFFER, vgpu.size_bytes, vgpu.of(FRAMEBUFFER), now)
    return (found.trend, found.arrival) if found.trend and found.arrival else None


def is_told(vgpu: MeasuredVgpu, now: float) -> bool:
    """True if the use of the framebuffer is known now."""
    return bool(_recent(vgpu, now))


def _recent(vgpu: MeasuredVgpu, now: float) -> Points:
    return recent_points(exhaustible.FRAMEBUFFER, vgpu.of(FRAMEBUFFER), now)


def find(vgpu: MeasuredVgpu, now: float) -> MeasuredFault | None:
    """Name the VM whose framebuffer runs out."""
    predicted = predict_exhaustion(vgpu, now)
    if predicted is None:
        return None
    found, arrival = predicted
    size = vgpu.size_bytes or 0.0
    text = (
        f"{_uses(vgpu, found.level / size)}, and grows by"
        f" {found.slope * HOUR_S / 2**30:.1f} GiB an hour: full in {in_words(arrival.expected_s)}"
        f" (90 % between {in_words(arrival.earliest_s)} and {in_words(arrival.latest_s)})"
    )
    figures = {
        "used_ratio": found.level / size,
        "slope_bytes_per_second": found.slope,
        "exhaustion_seconds": arrival.expected_s,
        "earliest_exhaustion_seconds": arrival.earliest_s,
        "latest_exhaustion_seconds": arrival.latest_s,
        "measured_seconds": found.span_s,
    }
    return _fault(vgpu, text, figures)


def find_full(vgpu: MeasuredVgpu, now: float) -> MeasuredFault | None:
    """Name a VM whose framebuffer is full: the state after a prediction that came true.

    Many programs take all framebuffer as they begin, so only a VM with a prediction before has a fault.
    """
    size, recent = vgpu.size_bytes, _recent(vgpu, now)
    if not size or not recent or not exhaustible.FRAMEBUFFER.is_used_up(recent[-1].mean, size):
        return None
    ratio = recent[-1].mean / size
    figures = {"used_ratio": ratio, "exhaustion_seconds": 0.0}
    figures |= {"earliest_exhaustion_seconds": 0.0, "latest_exhaustion_seconds": 0.0}
    return _fault(vgpu, f"{_uses(vgpu, ratio)}: it is full", figures)


def _uses(vgpu: MeasuredVgpu, ratio: float) -> str:
    return f"{vgpu.vm} uses {ratio:.0%} of the framebuffer of its {vgpu.lease.share.profile}"


def _fault(vgpu: MeasuredVgpu, text: str, figures: Mapping[str, float]) -> MeasuredFault:
    lease = vgpu.lease
    return MeasuredFault(
        FaultId.FRAMEBUFFER_RUNS_OUT,
        lease.host,
        lease.share.gpu,
        lease.tenant,
        lease.vm_name,
        lease.share.vfio_device,
        lease.share.profile,
        text,
        figures=figures,
    )
