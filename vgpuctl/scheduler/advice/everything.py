# SPDX-License-Identifier: Apache-2.0
"""All findings and all advice for a fleet, in a fixed order."""

from collections.abc import Callable, Iterator

from vgpuctl.scheduler.advice import (
    contention,
    framebuffer_runs_out,
    idle_card,
    larger_profile,
    power_limit,
    rebalance,
    scheduler_change,
    size_mode,
    smaller_profile,
)
from vgpuctl.scheduler.advice.advice import Advice, AdviceKind, MeasuredFault
from vgpuctl.scheduler.advice.measured import MeasuredFleet

ADVISERS: dict[AdviceKind, Callable[[MeasuredFleet], Iterator[Advice]]] = {
    AdviceKind.LARGER_PROFILE: larger_profile.advise,
    AdviceKind.REBALANCE: rebalance.advise,
    AdviceKind.SCHEDULER: scheduler_change.advise,
    AdviceKind.POWER_LIMIT: power_limit.advise,
    AdviceKind.SIZE_MODE: size_mode.advise,
    AdviceKind.IDLE_CARD: idle_card.advise,
    AdviceKind.SMALLER_PROFILE: smaller_profile.advise,
}


def find_all(fleet: MeasuredFleet) -> list[MeasuredFault]:
    """Every finding of now, by host, GPU and VM."""
    found = [one for vgpu in fleet.vgpus if (one := framebuffer_runs_out.find(vgpu, fleet.now)) is not None]
    found += [one for vgpus in fleet.by_gpu.values() for one in contention.find(vgpus, fleet.now)]
    return sorted(found, key=lambda one: (one.host, one.gpu, one.fault.value, -max(one.figures.values()), one.vm))


def advise_all(fleet: MeasuredFleet) -> list[Advice]:
    """Every recommendation, by kind as in ADVISERS, then by host, GPU and id."""
    return [
        one
        for adviser in ADVISERS.values()
        for one in sorted(adviser(fleet), key=lambda one: (one.host, one.gpu or "", one.id))
    ]
