# SPDX-License-Identifier: Apache-2.0
"""VMs of one GPU that lose time they were promised, and the neighbour that takes it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from vgpuctl.model.compute import percent_text
from vgpuctl.model.faults import FaultId
from vgpuctl.model.lease import Lease
from vgpuctl.model.vm import printed_name
from vgpuctl.scheduler.advice.advice import MeasuredFault
from vgpuctl.scheduler.advice.measured import MINUTE_S, STEAL, UTILIZATION, MeasuredVgpu
from vgpuctl.sharing.measured import why_time_unmeasured

WINDOW_S = 15 * MINUTE_S
FEWEST_MINUTES = 8
LEAST_STEAL = 0.05
"""Mean part of the GPU's time that a VM must lose to be a victim."""

LEAST_PART = 0.6
"""Part of the minutes in which it must lose something: a burst is not contention."""

OLDEST_S = 5 * MINUTE_S


@dataclass(frozen=True)
class Unmeasured:
    """VMs of one GPU of which nobody measures what one takes from the others. vms: in order. why: in words."""

    host: str
    gpu: str
    vms: tuple[str, ...]
    why: str


def find_unmeasured(leases: Iterable[Lease]) -> list[Unmeasured]:
    """Return each GPU with several VMs whose kind of share has no such reading, by host and GPU."""
    vms: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
    for one in leases:
        why = why_time_unmeasured(one.share)
        if why is not None and one.state.is_attached():
            vms[one.host, one.share.gpu, why].add(printed_name(one.tenant, one.vm_name))
    return [
        Unmeasured(host, gpu, tuple(sorted(names)), why)
        for (host, gpu, why), names in sorted(vms.items())
        if len(names) > 1
    ]


def find(vgpus: Sequence[MeasuredVgpu], now: float) -> list[MeasuredFault]:
    """Name each vGPU of one GPU that takes time from its neighbours, the one that takes most first.

    The loss of the victims is attributed to the vGPUs above their promise, in proportion to their excess.
    """
    lost = {one.vm: steal for one in vgpus if (steal := _lost(one, now)) is not None}
    if not lost:
        return []
    excesses = {one.lease.id: _excess(one, now) for one in vgpus}
    total = sum(excesses.values())
    if total <= 0:
        return []
    found = []
    for one in sorted(vgpus, key=lambda one: (-excesses[one.lease.id], one.lease.id)):
        part = excesses[one.lease.id] / total
        taken = part * min(total, sum(lost.values()))
        if taken < LEAST_STEAL:
            continue
        victims = tuple(sorted(name for name in lost if name != one.vm))
        lease, promised, use = one.lease, one.promised or 0.0, _mean(one, UTILIZATION, now) or 0.0
        text = (
            f"{one.vm} uses {use:.0%} of the GPU's time and was promised {percent_text(100 * promised)}; it takes up to"
            f" {taken:.0%} from {', '.join(victims)}"
        )
        found.append(
            MeasuredFault(
                FaultId.SHARE_STOLEN,
                lease.host,
                lease.share.gpu,
                lease.tenant,
                lease.vm_name,
                lease.share.vfio_device,
                lease.share.profile,
                text,
                victims,
                {"contention_ratio": taken, "used_ratio": use, "promised_ratio": promised, "attributed_ratio": part},
            )
        )
    return found


def is_told(vgpu: MeasuredVgpu, now: float) -> bool:
    """True if it is known what the vGPU loses now."""
    return bool(_recent(vgpu, STEAL, now))


def _recent(vgpu: MeasuredVgpu, measure: str, now: float) -> list[float]:
    """The minutes of the window; none where the newest is too old or they are too few."""
    points = [one for one in vgpu.of(measure) if now - WINDOW_S <= one.at <= now + MINUTE_S]
    if len(points) < FEWEST_MINUTES or now - points[-1].at > OLDEST_S:
        return []
    return [max(0.0, one.mean) for one in points]


def _mean(vgpu: MeasuredVgpu, measure: str, now: float) -> float | None:
    values = _recent(vgpu, measure, now)
    return fmean(values) if values else None


def _lost(vgpu: MeasuredVgpu, now: float) -> float | None:
    """The mean loss of a victim; None for a vGPU that is none."""
    values = _recent(vgpu, STEAL, now)
    if not values or fmean(values) < LEAST_STEAL:
        return None
    return fmean(values) if sum(one > 0 for one in values) >= LEAST_PART * len(values) else None


def _excess(vgpu: MeasuredVgpu, now: float) -> float:
    """How far it was above its promise, as the mean over the minutes."""
    promised, values = vgpu.promised, _recent(vgpu, UTILIZATION, now)
    return 0.0 if promised is None or not values else fmean(max(0.0, use - promised) for use in values)
