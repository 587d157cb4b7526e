# SPDX-License-Identifier: Apache-2.0
"""Framebuffer that will be full soon: the trend of what a guest uses, with its interval."""

from collections.abc import Mapping, Sequence
from math import isfinite
from statistics import fmean

from vgpuctl.model.faults import FaultId
from vgpuctl.model.times import format_duration
from vgpuctl.scheduler.advice.advice import MeasuredFault
from vgpuctl.scheduler.advice.measured import DAY_S, FRAMEBUFFER, HOUR_S, MINUTE_S, MeasuredVgpu, Point
from vgpuctl.scheduler.advice.trend import LimitReached, Trend, trend

WINDOW_S = 2 * HOUR_S
HORIZON_S = 24 * HOUR_S
"""A framebuffer that lasts longer than this at the present slope is not told."""

FULL_RATIO = 0.95
"""From here on a framebuffer that was going to be full is full: the driver keeps some for itself."""

FEWEST_MINUTES = 6
OLDEST_S = 5 * MINUTE_S
LEAST_GROWTH = 0.02
"""Part of the framebuffer that the line must have gained over the window: the rest is noise of a full guest."""


def predict_exhaustion(vgpu: MeasuredVgpu, now: float) -> tuple[Trend, LimitReached] | None:
    """The trend of the last two hours, and when the framebuffer is full; None if it is not going to be soon."""
    size, recent = vgpu.size_bytes, _recent(vgpu, now)
    if size is None or len(recent) < FEWEST_MINUTES:
        return None
    found = trend([(one.at, one.mean) for one in recent])
    if found is None or found.slope * found.span_s < LEAST_GROWTH * size or not _grows_on(recent, found.slope):
        return None
    arrival = found.seconds_until(size)
    if arrival is None or arrival.expected_s > HORIZON_S:
        return None
    return found, arrival


def is_told(vgpu: MeasuredVgpu, now: float) -> bool:
    """True if the use of the framebuffer is known now."""
    return bool(_recent(vgpu, now))


def _recent(vgpu: MeasuredVgpu, now: float) -> list[Point]:
    """The points of the last two hours; none where the last one is too old to tell of now."""
    found = [one for one in vgpu.of(FRAMEBUFFER) if now - WINDOW_S <= one.at <= now + MINUTE_S]
    return found if found and now - found[-1].at <= OLDEST_S else []


def _grows_on(recent: Sequence[Point], slope: float) -> bool:
    """True if the last third still grows, at half the slope at least: a program that loads its data ends there."""
    last = recent[-max(3, len(recent) // 3) :]
    half = len(last) // 2
    before, after = last[:half], last[-half:]
    span_s = fmean(one.at for one in after) - fmean(one.at for one in before)
    return fmean(one.mean for one in after) - fmean(one.mean for one in before) >= slope * span_s / 2


def find(vgpu: MeasuredVgpu, now: float) -> MeasuredFault | None:
    """Name the VM whose framebuffer runs out."""
    predicted = predict_exhaustion(vgpu, now)
    if predicted is None:
        return None
    found, arrival = predicted
    size = vgpu.size_bytes or 0.0
    text = (
        f"{_uses(vgpu, found.level / size)}, and grows by"
        f" {found.slope * HOUR_S / 2**30:.1f} GiB an hour: full in {_words(arrival.expected_s)}"
        f" (90 % between {_words(arrival.earliest_s)} and {_words(arrival.latest_s)})"
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
    if not size or not recent or recent[-1].mean < FULL_RATIO * size:
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


def _words(seconds: float) -> str:
    if not isfinite(seconds) or seconds > 10 * DAY_S:
        return "more than 10 days"
    step_s = MINUTE_S if seconds > HOUR_S else 1.0
    return "less than a second" if seconds < 1 else format_duration(round(seconds / step_s) * step_s)
