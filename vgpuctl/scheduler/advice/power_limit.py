# SPDX-License-Identifier: Apache-2.0
"""A higher power limit for a GPU that draws all that its limit allows.

The driver lowers the clocks of a GPU that would draw more than its limit (nvml.h,
nvmlClocksEventReasonSwPowerCap). The gain from higher clocks depends on the programs, and no replay of power tells
it: a controller may try it (docs/advice.md).
"""

from collections.abc import Iterator
from typing import NamedTuple

from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.agent.wire.tuning import watts
from vgpuctl.model.layout import GpuLayout
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.plural import counted
from vgpuctl.scheduler.advice.advice import Advice, AdviceKind, Confidence, Gain, advice_id
from vgpuctl.scheduler.advice.measured import MeasuredFleet, Points, is_of_now
from vgpuctl.sharing.declared import Declared, declared_of

FEWEST_MINUTES = 60
AT_LIMIT = 0.97
"""Part of the limit from which on a minute counts as held back: the driver keeps the draw a little below it."""

ABOVE_LIMIT = 1.05
"""A minute with more than this part of the limit was measured under another one."""

LEAST_PART = 0.25
"""Part of the minutes in which the limit must hold the GPU back."""

STEP = 0.1
"""Part of the present limit that one advice adds."""


class AdvisedLimit(NamedTuple):
    """A higher power limit. refusal: why no controller may set it, None where the layout leaves it to one."""

    advice: Advice
    gpu: Gpu
    before_mw: int
    after_mw: int
    refusal: str | None


def advise(fleet: MeasuredFleet) -> Iterator[Advice]:
    """One advice for each GPU with measured vGPUs that its power limit holds back, where the board takes more."""
    return (one.advice for one in find_limits(fleet))


def find_limits(fleet: MeasuredFleet) -> Iterator[AdvisedLimit]:
    """The same, with the values that a controller needs."""
    for host, address in fleet.by_gpu:
        capacity = fleet.capacity(host)
        gpu = None if capacity is None else next((one for one in capacity.facts.gpus if one.address == address), None)
        if capacity is None or gpu is None or gpu.tuning is None or gpu.tuning.why_unread("power_limit_mw"):
            continue
        limit_mw, of_board = gpu.tuning.power_limit_mw, gpu.tuning.power_limits_mw
        if limit_mw is None or of_board is None:
            continue
        declared = declared_of(gpu, capacity.facts, capacity.declared)
        entry = declared.entry
        refusal, bounds = refuse_tuning(declared, limit_mw), None if entry is None else entry.bounds.power_limit_mw
        most_mw = of_board[1] if refusal is not None or bounds is None else min(bounds[1], of_board[1])
        wanted_mw = min(most_mw, limit_mw + max(1000, round(STEP * limit_mw / 1000) * 1000))
        power = fleet.power.get((host, address), ())
        held, minutes = _held_back(power, limit_mw / 1000)
        if not is_of_now(power, fleet.now):
            continue
        if wanted_mw > limit_mw and minutes >= FEWEST_MINUTES and held >= LEAST_PART * minutes:
            advice = _advice(capacity, gpu, entry, (limit_mw, wanted_mw), held, minutes)
            yield AdvisedLimit(advice, gpu, limit_mw, wanted_mw, refusal)


def refuse_tuning(declared: Declared, limit_mw: int) -> str | None:
    """Say why no controller may change the power limit of a GPU. declared: for it. limit_mw: the present one."""
    if declared.doubt is not None:
        return f"nobody knows what its layout says, since it {declared.doubt}"
    entry = declared.entry
    if entry is not None and entry.tuning.power_limit_mw is not None:
        return f"the layout declares its power_limit_w ({entry.origin}), and what it declares stays"
    if entry is None or entry.bounds.power_limit_mw is None:
        return "its layout has no tune.power_limit_w"
    return entry.bounds.refuse_present(limit_mw)


def _held_back(power: Points, limit_w: float) -> tuple[int, int]:
    """The minutes at the limit, and those that were measured under it."""
    under = [one.mean for one in power if one.mean <= ABOVE_LIMIT * limit_w]
    return sum(one >= AT_LIMIT * limit_w for one in under), len(under)


def _advice(
    capacity: HostCapacity, gpu: Gpu, entry: GpuLayout | None, change: tuple[int, int], held: int, minutes: int
) -> Advice:
    host, (limit, wanted) = capacity.name, (watts(one) for one in change)
    match = f"address {gpu.address} (a new entry)" if entry is None else str(entry.match)
    key, hours = f"{host} vgpu: {match}, power_limit_w", minutes / 60
    is_declared = entry is not None and entry.tuning.power_limit_mw is not None
    return Advice(
        id=advice_id(AdviceKind.POWER_LIMIT, host, gpu.address),
        kind=AdviceKind.POWER_LIMIT,
        host=host,
        gpu=gpu.address,
        tenant=None,
        vm=None,
        text=f"{host} {gpu.address} drew its limit of {limit} in {held} of {counted(minutes, 'measured minute')}",
        before={key: limit if is_declared else f"{limit}, not declared"},
        after={key: wanted},
        commands=(f"vgpuctl apply-hosts --limit {host}  # after the change of `vgpu:` in the inventory",),
        gain=Gain(
            f"at most {held / 60:.2f} GPU-hours at higher clocks; how much faster is known once it is tried",
            held / 60,
            "GPU-hours at the power limit",
            at_most=True,
        ),
        proof=f"the power of {minutes} kept minutes was compared with the limit; no VM stops for the change",
        confidence=Confidence.of(hours, is_bound=True),
        measured_hours=hours,
    )
