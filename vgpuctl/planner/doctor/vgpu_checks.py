# SPDX-License-Identifier: Apache-2.0
"""Checks of vGPUs: instances, sizes, leftovers, races."""

from collections.abc import Iterator

from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.agent.wire.facts import Gpu, Holder
from vgpuctl.catalog import short_name
from vgpuctl.model.layout import LayoutKind, MigVgpuLayout, SizeMode, VgpuLayout
from vgpuctl.model.lease import LeaseState
from vgpuctl.planner.doctor.examined import Examined
from vgpuctl.planner.doctor.finding import Finding, Severity
from vgpuctl.planner.doctor.host_checks import HOST
from vgpuctl.sharing.kinds import existing_vgpus, vgpu_kind_of
from vgpuctl.sharing.occupancy import ExistingVgpu, gpu_at
from vgpuctl.sharing.type_names import describe_type, other_type, refuse_type_gone


def mig_without_instance(seen: Examined) -> Iterator[Finding]:
    """Row 8: MIG is on, vGPUs are wanted, and there is no GPU instance for them."""
    fix = "`vgpuctl apply-hosts` creates the geometry; without one declare it (kind mig-vgpu)"
    for gpu in seen.nvidia_gpus():
        if gpu.mig is None or not gpu.mig.current or gpu.mig.instances:
            continue
        if seen.kind_of(gpu) in (LayoutKind.MIG_VGPU, LayoutKind.VGPU) or gpu.vfs:
            read = f"MIG is enabled, no GPU instance, {len(gpu.vfs)} VFs"
            yield Finding(CheckId.MIG_WITHOUT_INSTANCE, Severity.ERROR, gpu.address, read, fix)
    has_mig = any(gpu.mig is not None and gpu.mig.current for gpu in seen.nvidia_gpus())
    for text in seen.said(CheckId.MIG_WITHOUT_INSTANCE):
        # 0x38 without MIG is a VF that has a vGPU already (host interfaces 2.2).
        if "0x38" in text and not has_mig:
            continue
        yield Finding(CheckId.MIG_WITHOUT_INSTANCE, Severity.WARNING, HOST, text, fix)


def size_conflict(seen: Examined) -> Iterator[Finding]:
    """Row 9: in equal-size mode the first vGPU decides the size of all."""
    for gpu in seen.nvidia_gpus():
        layout = seen.layout_of(gpu)
        if not isinstance(layout, VgpuLayout) or gpu.heterogeneous:
            continue
        there = existing_vgpus(gpu)
        sizes = {one.type_id: one for one in gpu.types}
        blocking = {size.framebuffer_mib: size.name for vgpu in there if (size := sizes.get(vgpu.type_id or ""))}
        wanted = dict.fromkeys((*layout.types, *(name for name, _ in layout.shares)))
        for one in gpu.types:
            is_wanted = short_name(one.name) in wanted and one.creatable == 0
            if is_wanted and _has_room(gpu) and blocking and one.framebuffer_mib not in blocking:
                read = f"{short_name(one.name)} cannot be created: {', '.join(blocking.values())} is there"
                fix = "declare size_mode mixed-size where the board has it, or use another GPU"
                yield Finding(CheckId.SIZE_CONFLICT, Severity.WARNING, gpu.address, read, fix)
    for text in seen.said(CheckId.SIZE_CONFLICT):
        fix = "another size was there first (equal-size mode): see `vgpuctl list-profiles`"
        yield Finding(CheckId.SIZE_CONFLICT, Severity.WARNING, HOST, text, fix)


def stale_vgpu(seen: Examined) -> Iterator[Finding]:
    """Row 10: a vGPU that nobody holds, no lease promises and no layout made takes capacity."""
    leased = {name for one in seen.leases for name in one.share.names}
    defined = {device for domain in seen.domains or () for device in domain.devices}
    for gpu in seen.facts.gpus:
        for vgpu in existing_vgpus(gpu):
            device = vgpu.vfio_device
            is_named = vgpu.names & (leased | defined)
            if is_named or device in seen.made or _holders(gpu, vgpu):
                continue
            read = f"{device} carries {describe_type(vgpu)}, no process holds it and no lease names it"
            fix = f"if it is nobody's: {vgpu_kind_of(vgpu).removal_by_hand(vgpu)}"
            yield Finding(CheckId.STALE_VGPU, Severity.WARNING, gpu.address, read, fix)


def vgpu_type(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: a VM's vGPU is of another type than it was promised, or the driver has no such type any more.

    Ids of types are the driver's, and an update may give them to others (reference 3.5).
    """
    for lease in seen.leases:
        share, gpu = lease.share, gpu_at(seen.facts, lease.share.gpu)
        if gpu is None or share.type_id is None or not lease.state.is_attached():
            continue
        whose = f"VM {lease.vm_name} of {lease.tenant}"
        own = next((one for one in existing_vgpus(gpu) if one.vfio_device == share.vfio_device), None)
        wrong = None if own is None else other_type(share, own)
        if own is not None and wrong is not None:
            fix = f"stop the VM, {vgpu_kind_of(own).removal_by_hand(own)}, then start-vm makes {share.profile}"
            yield Finding(CheckId.VGPU_TYPE, Severity.ERROR, gpu.address, f"{wrong}, which {whose} was promised", fix)
        elif own is None and (gone := refuse_type_gone(share, gpu)) is not None:
            name = f"{lease.tenant}/{lease.vm_name}"
            fix = f"`vgpuctl resize-vm {name} --gpu TYPE`; `vgpuctl list-profiles` has the types"
            yield Finding(CheckId.VGPU_TYPE, Severity.ERROR, gpu.address, f"{gone}; {whose} was promised one", fix)


def mixed_size_lost(seen: Examined) -> Iterator[Finding]:
    """Row 11: any change of VFs switches mixed-size mode off."""
    for gpu in seen.nvidia_gpus():
        layout = seen.layout_of(gpu)
        if not isinstance(layout, VgpuLayout | MigVgpuLayout) or layout.size_mode is not SizeMode.MIXED:
            continue
        lost = [one for one in (gpu.mig.instances if gpu.mig else ()) if one.heterogeneous is False]
        if gpu.heterogeneous is False or lost:
            read = "vGPU Heterogeneous Mode is disabled, declared mixed-size"
            fix = "`vgpuctl apply-hosts` before the first vGPU is created"
            yield Finding(CheckId.MIXED_SIZE_LOST, Severity.ERROR, gpu.address, read, fix)


def stop_race(seen: Examined) -> Iterator[Finding]:
    """Row 24: right after a VM's end its vGPU cannot go yet; a lease whose release failed so stays."""
    for lease in seen.leases:
        if lease.state is LeaseState.BROKEN:
            read = f"lease of {lease.share.device} (VM {lease.vm_name} of {lease.tenant}): {lease.problem or 'broken'}"
            yield Finding(CheckId.STOP_RACE, Severity.ERROR, lease.share.gpu, read, "`vgpuctl repair` tries again")
    for text in seen.said(CheckId.STOP_RACE):
        fix = "the driver was asked too early; vgpuctl tries for 45 s: `vgpuctl repair` where a lease is left"
        yield Finding(CheckId.STOP_RACE, Severity.NOTE, HOST, text, fix)


def vgpu_state_lost(seen: Examined) -> Iterator[Finding]:
    """A VM that came by a live move, or was resumed, goes on with a vGPU that was reset on the way."""
    fix = "restart the VM, whose programs have lost the GPU; compare drivers and vGPU types of its two hosts"
    for text in seen.said(CheckId.VGPU_STATE_LOST):
        yield Finding(CheckId.VGPU_STATE_LOST, Severity.ERROR, HOST, text, fix)


def _has_room(gpu: Gpu) -> bool:
    """True if a VF is free, or vGPUs sit on the GPU itself."""
    carrying = {vgpu.function for vgpu in existing_vgpus(gpu)}
    return not gpu.vfs or any(one.address not in carrying for one in gpu.vfs)


def _holders(gpu: Gpu, vgpu: ExistingVgpu) -> tuple[Holder, ...]:
    if vgpu.mdev_uuid is not None:
        return next((one.holders for one in gpu.mdevs if one.uuid == vgpu.mdev_uuid), ())
    return next((one.holders for one in gpu.vfs if one.address == vgpu.function), ())
