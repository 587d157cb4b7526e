# SPDX-License-Identifier: Apache-2.0
"""VMs that never used the framebuffer of their profile: one alone, or all of a GPU where one alone gains nothing."""

import shlex
from collections.abc import Iterator, Sequence

from vgpuctl.model.units import MIB, exact_mib, format_mib
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.advice.advice import Advice, AdviceKind, Confidence, Gain, advice_id
from vgpuctl.scheduler.advice.measured import OLDEST_HOUR_S, MeasuredFleet, MeasuredVgpu, is_of_now
from vgpuctl.scheduler.advice.profiles import HEADROOM, other_sizes
from vgpuctl.scheduler.advice.room import (
    Layout,
    asked_text,
    improvement,
    layout_of,
    profiles_in_use,
    with_profile,
    with_vm,
    without,
)
from vgpuctl.scheduler.capacity import PlacedVm

FEWEST_HOURS = 24.0


def advise(fleet: MeasuredFleet) -> Iterator[Advice]:
    """One advice for each VM whose smaller profile gains room, else for the GPUs whose VMs gain it together."""
    for vgpus in fleet.by_gpu.values():
        smaller = [(one, profile) for one in vgpus if (profile := _smaller(fleet, one)) is not None]
        found = [one for vgpu, profile in smaller for one in _for([(vgpu, profile)], fleet)]
        if not found and len(smaller) > 1:
            largest = max(smaller, key=lambda one: _size(fleet, *one))[1]
            found = list(_for([(vgpu, largest) for vgpu, _profile in smaller], fleet))
        yield from found


def _smaller(fleet: MeasuredFleet, vgpu: MeasuredVgpu) -> str | None:
    """The smallest profile that holds what the guest ever used, with headroom."""
    size, vm = vgpu.size_bytes, fleet.vms.get(vgpu.lease.vm_uuid)
    if size is None or vm is None or vgpu.measured_hours < FEWEST_HOURS or fleet.shares_of_vm[vm.vm_uuid] != 1:
        return None
    if not is_of_now(vgpu.hourly, fleet.now, OLDEST_HOUR_S):
        return None
    need_mib = peak_bytes(vgpu) * HEADROOM / MIB
    return next((name for mib, name in other_sizes(fleet, vgpu) if need_mib <= mib < size / MIB), None)


def peak_bytes(vgpu: MeasuredVgpu) -> float:
    """The most framebuffer that a reading found in use."""
    return max(one.high for one in vgpu.hourly)


def _size(fleet: MeasuredFleet, vgpu: MeasuredVgpu, profile: str) -> int:
    return next(mib for mib, name in other_sizes(fleet, vgpu) if name == profile)


def _for(changes: Sequence[tuple[MeasuredVgpu, str]], fleet: MeasuredFleet) -> Iterator[Advice]:
    after = _changed(layout_of(fleet), changes, fleet)
    if after is None:
        return
    gained = improvement(fleet, after, profiles_in_use(fleet) | {profile for _vgpu, profile in changes})
    if gained is None:
        return
    first = changes[0][0]
    hours = min(vgpu.measured_hours for vgpu, _profile in changes)
    peaks = ", ".join(f"{vgpu.vm} at most {format_mib(round(peak_bytes(vgpu) / MIB))}" for vgpu, _profile in changes)
    is_one = len(changes) == 1
    yield Advice(
        id=advice_id(
            AdviceKind.SMALLER_PROFILE, *first.place, *(f"{vgpu.lease.vm_uuid}={profile}" for vgpu, profile in changes)
        ),
        kind=AdviceKind.SMALLER_PROFILE,
        host=first.lease.host,
        gpu=first.lease.share.gpu,
        tenant=first.lease.tenant if is_one else None,
        vm=first.lease.vm_name if is_one else None,
        text=f"used in {hours:.0f} measured hours: {peaks}",
        before={f"{vgpu.vm} gpus": f"[{vgpu.lease.share.profile}]" for vgpu, _profile in changes},
        after={f"{vgpu.vm} gpus": f"[{profile}]" for vgpu, profile in changes},
        commands=replace_commands(
            [(fleet.vms[vgpu.lease.vm_uuid], profile) for vgpu, profile in changes], layout=layout_of(fleet)
        ),
        gain=Gain(gained.text, gained.usable_mib, "MiB of framebuffer that other VMs can use"),
        proof=(
            f"placing was replayed with {'the VM' if is_one else 'the VMs'} made anew: all else stays where it is;"
            f" the profile holds {HEADROOM:.2f} times the peak"
        ),
        confidence=Confidence.of(hours),
        measured_hours=hours,
    )


def replace_commands(changes: Sequence[tuple[PlacedVm, str]], *, layout: Layout) -> tuple[str, ...]:
    """The commands that give VMs' work other profiles: a profile is given when a VM is made.

    Where the new VMs do not fit beside the old ones, those release their shares first and keep their disks.
    """
    fleet, fits_beside = layout, True
    for vm, profile in changes:
        request = with_profile(vm.request, profile)
        placement = fleet.place(request)
        if placement is None:
            fits_beside = False
            break
        fleet = with_vm(fleet, vm, request, placement)
    names = [f"{vm.request.tenant}/{vm.request.name}" for vm, _profile in changes]
    return (
        *(() if fits_beside else (f"vgpuctl stop-vm {one} --hold release" for one in names)),
        *(_create_command(vm.request, profile) for vm, profile in changes),
        *(f"vgpuctl delete-vm {one}  # when its tenant has moved the data" for one in names),
    )


def _create_command(request: VmRequest, profile: str) -> str:
    words = [
        f"vgpuctl create-vm {request.tenant}/{request.name}-new --gpu {shlex.quote(asked_text(request, profile))}",
        f"--vcpus {request.vcpus} --memory {exact_mib(request.memory_mib)} --network {request.network or 'none'}",
    ]
    if request.disk is not None:
        words.append(f"--disk {exact_mib(request.disk.size_mib)}")
        words += [f"--base-image {request.disk.base_image}"] if request.disk.base_image else []
    words += [f"--workload {request.workload}"] if request.workload else []
    return " ".join(words)


def _changed(layout: Layout, changes: Sequence[tuple[MeasuredVgpu, str]], fleet: MeasuredFleet) -> Layout | None:
    """The layout with the VMs placed again with these profiles; None if one does not fit."""
    vms = [fleet.vms[vgpu.lease.vm_uuid] for vgpu, _profile in changes]
    after = without(layout, vms)
    for vm, (_vgpu, profile) in zip(vms, changes, strict=True):
        request = with_profile(vm.request, profile)
        placement = after.place(request)
        if placement is None:
            return None
        after = with_vm(after, vm, request, placement)
    return after
