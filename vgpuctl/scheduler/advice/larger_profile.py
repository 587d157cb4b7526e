# SPDX-License-Identifier: Apache-2.0
"""VMs at the limit of their framebuffer, or there soon."""

from collections.abc import Iterator
from typing import NamedTuple

from vgpuctl.model.units import MIB, format_mib
from vgpuctl.scheduler.advice import framebuffer_runs_out
from vgpuctl.scheduler.advice.advice import Advice, AdviceKind, Confidence, Gain, advice_id
from vgpuctl.scheduler.advice.measured import HOUR_S, OLDEST_HOUR_S, MeasuredFleet, MeasuredVgpu, is_of_now
from vgpuctl.scheduler.advice.profiles import HEADROOM, other_sizes
from vgpuctl.scheduler.advice.room import Layout, layout_of, with_profile, without
from vgpuctl.scheduler.advice.smaller_profile import peak_bytes, replace_commands
from vgpuctl.scheduler.capacity import PlacedVm

FEWEST_HOURS = 3.0
LIMIT, FEWEST_AT_LIMIT, LEAST_PART = 0.95, 3, 0.05
"""Part of the framebuffer that is the limit, and hours there: at least three, and one in twenty."""


def advise(fleet: MeasuredFleet) -> Iterator[Advice]:
    """One advice for each VM that a larger profile would help and that fits somewhere with it."""
    for vgpu in fleet.vgpus:
        size, vm = vgpu.size_bytes, fleet.vms.get(vgpu.lease.vm_uuid)
        if size is None or vm is None or fleet.shares_of_vm[vm.vm_uuid] != 1:
            continue
        at_limit = sum(one.high >= LIMIT * size for one in vgpu.hourly)
        is_full = (
            vgpu.measured_hours >= FEWEST_HOURS
            and is_of_now(vgpu.hourly, fleet.now, OLDEST_HOUR_S)
            and at_limit >= FEWEST_AT_LIMIT
            and at_limit >= LEAST_PART * len(vgpu.hourly)
        )
        predicted = framebuffer_runs_out.predict_exhaustion(vgpu, fleet.now)
        if not is_full and predicted is None:
            continue
        layout = layout_of(fleet)
        rest = without(layout, [vm])
        for mib, profile in other_sizes(fleet, vgpu):
            placement = rest.place(with_profile(vm.request, profile)) if mib > size / MIB * HEADROOM else None
            if placement is not None:
                slope = 0.0 if predicted is None else predicted[0].slope
                found = _Larger(profile, mib, placement.host, at_limit if is_full else 0, slope)
                yield _advice(layout, vgpu, vm, found)
                break


class _Larger(NamedTuple):
    """A larger profile that fits on a host. at_limit: hours at the limit; 0 where slope says how fast it fills."""

    profile: str
    mib: int
    host: str
    at_limit: int
    slope: float


def _advice(layout: Layout, vgpu: MeasuredVgpu, vm: PlacedVm, found: _Larger) -> Advice:
    lease, profile, mib, at_limit = vgpu.lease, found.profile, found.mib, found.at_limit
    peak_mib = round(peak_bytes(vgpu) / MIB) if vgpu.hourly else 0
    if at_limit:
        text = f"{vgpu.vm} was at {LIMIT:.0%} of its framebuffer or above in {at_limit} of {len(vgpu.hourly)} hours"
        gain = Gain(
            f"{at_limit} of {len(vgpu.hourly)} hours at the limit would have been none, as far as the guest"
            " wanted no more than it got",
            float(at_limit),
            "hours at the limit",
            at_most=True,
        )
        proof = f"the kept hourly peaks ({format_mib(peak_mib)} at most) were held against {format_mib(mib)}"
    else:
        text = f"{vgpu.vm} fills its framebuffer: see framebuffer-runs-out"
        more_h = (mib * MIB - (vgpu.size_bytes or 0.0)) / found.slope / HOUR_S
        gain = Gain(f"the framebuffer lasts {more_h:.1f} hours longer at the present growth", more_h, "hours")
        proof = "the trend of the kept minutes was carried on to the larger framebuffer; a leak only takes longer"
    return Advice(
        id=advice_id(AdviceKind.LARGER_PROFILE, lease.vm_uuid, profile),
        kind=AdviceKind.LARGER_PROFILE,
        host=lease.host,
        gpu=lease.share.gpu,
        tenant=lease.tenant,
        vm=lease.vm_name,
        text=text,
        before={f"{vgpu.vm} gpus": f"[{lease.share.profile}]"},
        after={f"{vgpu.vm} gpus": f"[{profile}]"},
        commands=replace_commands([(vm, profile)], layout=layout),
        gain=gain,
        proof=f"{proof}; placing was replayed without the VM, and {profile} fits on {found.host}",
        confidence=Confidence.of(vgpu.measured_hours, is_bound=True),
        measured_hours=vgpu.measured_hours,
    )
