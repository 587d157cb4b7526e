# SPDX-License-Identifier: Apache-2.0
"""VMs that hold a whole card and do not use it."""

from collections.abc import Iterator

from vgpuctl.scheduler.advice.advice import Advice, AdviceKind, Confidence, Gain, advice_id
from vgpuctl.scheduler.advice.measured import (
    OLDEST_HOUR_S,
    UTILIZATION,
    MeasuredFleet,
    MeasuredVgpu,
    hours_of,
    is_of_now,
)
from vgpuctl.scheduler.advice.profiles import gpu_of
from vgpuctl.scheduler.advice.room import improvement, layout_of, profiles_in_use, without

FEWEST_HOURS = 24.0
MOST_USE = 0.02
"""Peak of the GPU's time, in any minute, of a card that is not used."""

WHOLE = 0.9
"""Part of the card's framebuffer that makes a vGPU the whole card."""


def advise(fleet: MeasuredFleet) -> Iterator[Advice]:
    """One advice for each VM whose card could serve others. A passthrough card is invisible to its host, so never."""
    for vgpu in fleet.vgpus:
        points, vm, gpu = vgpu.hours.get(UTILIZATION, ()), fleet.vms.get(vgpu.lease.vm_uuid), gpu_of(fleet, vgpu)
        hours = hours_of(points)
        if vm is None or gpu is None or hours < FEWEST_HOURS or not _is_whole(vgpu, gpu.memory_mib):
            continue
        if not is_of_now(points, fleet.now, OLDEST_HOUR_S):
            continue
        peak = max(one.high for one in points)
        if peak >= MOST_USE:
            continue
        gained = improvement(fleet, without(layout_of(fleet), [vm]), profiles_in_use(fleet))
        if gained is None:
            continue
        lease = vgpu.lease
        yield Advice(
            id=advice_id(AdviceKind.IDLE_CARD, lease.vm_uuid),
            kind=AdviceKind.IDLE_CARD,
            host=lease.host,
            gpu=lease.share.gpu,
            tenant=lease.tenant,
            vm=lease.vm_name,
            text=f"{vgpu.vm} used at most {peak:.1%} of its card in {hours:.0f} measured hours",
            before={f"{vgpu.vm} shares": f"{lease.share.profile} on {lease.host} {lease.share.gpu}"},
            after={f"{vgpu.vm} shares": "released; placed again at its next start"},
            commands=(f"vgpuctl stop-vm {lease.tenant}/{lease.vm_name} --hold release",),
            gain=Gain(gained.text, gained.usable_mib, "MiB of framebuffer that other VMs can use"),
            proof="placing was replayed without the VM's shares, with the rules of create-vm",
            confidence=Confidence.of(hours),
            measured_hours=hours,
        )


def _is_whole(vgpu: MeasuredVgpu, memory_mib: int | None) -> bool:
    size = vgpu.lease.share.framebuffer_mib
    return memory_mib is not None and size is not None and size >= WHOLE * memory_mib
