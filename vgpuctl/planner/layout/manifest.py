# SPDX-License-Identifier: Apache-2.0
"""The way from a fresh boot to the layout a host is in now, for the unit that restores it (reference 9, boot order).

VFs, GPU instances, mixed sizes and the scheduler do not outlive a boot; a step for anything else changes nothing.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import get_args

from vgpuctl.agent.wire.boot import Manifest, ManifestGpu, ManifestStep
from vgpuctl.agent.wire.cdi import CdiFacts, SetContainerGpus
from vgpuctl.agent.wire.facts import Gpu, GpuInstance, HostFacts, VirtualFunction
from vgpuctl.agent.wire.steps import (
    BindDriver,
    CreateGpuInstance,
    DestroyGpuInstance,
    ResetGpu,
    SetHeterogeneousMode,
    SetHugepages,
    SetMigMode,
    SetVgpuScheduler,
    SetVirtualFunctions,
    Step,
)
from vgpuctl.agent.wire.vf_health import PF_STUB
from vgpuctl.model.layout import (
    HostLayout,
    MigLayout,
    MigVgpuLayout,
    OwnLayout,
    PassthroughLayout,
    VfLayout,
    VgpuLayout,
)
from vgpuctl.model.lease import Lease, Share
from vgpuctl.planner.layout import card_settings
from vgpuctl.planner.layout.containers import gpus_for_containers
from vgpuctl.planner.layout.driver import VFIO_PCI
from vgpuctl.planner.layout.fabric import fabric_steps
from vgpuctl.planner.layout.function_params import params_steps
from vgpuctl.planner.layout.network import network_steps
from vgpuctl.planner.layout.work import made_again
from vgpuctl.planner.mig_geometry import slices_of
from vgpuctl.sharing.kinds import existing_vgpus, vgpu_kind_of
from vgpuctl.sharing.matching import entries_for
from vgpuctl.sharing.occupancy import ExistingVgpu
from vgpuctl.sharing.type_names import numbered_now

_GpuStep = SetVirtualFunctions | SetMigMode | ResetGpu | CreateGpuInstance | DestroyGpuInstance | SetHeterogeneousMode
_ON_GPU = get_args(_GpuStep)


def manifest_of(layout: HostLayout, facts: HostFacts) -> Manifest:
    """The manifest of a host that is in its layout. Equal input, equal manifest."""
    gpus: list[ManifestGpu] = []
    steps = [ManifestStep(SetHugepages(size_kib, count)) for size_kib, count in layout.hugepages]
    steps += [ManifestStep(step) for step in fabric_steps(layout, facts)]
    for gpu in sorted(facts.gpus, key=lambda one: one.address):
        entries = entries_for(gpu, layout.gpus)
        if len(entries) != 1:
            continue
        # Of a whole card nobody tells a UUID while a VM has it.
        uuid = None if isinstance(entries[0].layout, PassthroughLayout) else gpu.uuid
        gpus.append(ManifestGpu(gpu.address, gpu.vendor_id, gpu.device_id, gpu.subsystem_id, uuid))
        steps += [ManifestStep(step, gpu.address) for step in _steps(gpu, entries[0].layout)]
        steps += [ManifestStep(step, gpu.address) for step in card_settings.boot_steps(gpu.address, entries[0].tuning)]
    own = gpus_for_containers(layout, facts)
    steps += [ManifestStep(SetContainerGpus(own))] if own else []
    steps += [ManifestStep(step) for step in network_steps(layout, facts)]
    return Manifest(tuple(gpus), tuple(steps))


def shares_of(facts: HostFacts, leases: Sequence[Lease], made: Collection[str]) -> tuple[ManifestStep, ...]:
    """The vGPUs that vgpuctl has on the host, leased or made by a layout; nobody else's.

    Each is of the type that was promised, also where the host has another one in its place.
    """
    promised = {one.share.vfio_device: one.share for one in leases}
    ours = {*promised, *made}
    return tuple(
        ManifestStep(vgpu_kind_of(vgpu).make(_as_promised(vgpu, promised.get(vgpu.vfio_device), gpu)), gpu.address)
        for gpu in sorted(facts.gpus, key=lambda one: one.address)
        for vgpu in existing_vgpus(gpu)
        if vgpu.vfio_device in ours and vgpu.type_id is not None
    )


def _as_promised(vgpu: ExistingVgpu, share: Share | None, gpu: Gpu) -> ExistingVgpu:
    if share is None or share.type_id is None:
        return vgpu
    return replace(vgpu, type_id=numbered_now(share, gpu).type_id, profile=share.profile)


def _steps(gpu: Gpu, layout: object) -> list[Step]:
    """One GPU's, in the order of a boot."""
    steps: list[Step] = []
    if isinstance(layout, PassthroughLayout):
        if layout.driver == VFIO_PCI:
            steps.append(BindDriver((gpu.address, *(other.address for other in gpu.companions)), VFIO_PCI))
        return steps
    if gpu.mig is not None:
        steps.append(SetMigMode(gpu.address, gpu.mig.current))
    if gpu.vfs:
        steps.append(SetVirtualFunctions(gpu.address, len(gpu.vfs)))
    if isinstance(layout, VfLayout):
        steps += params_steps(gpu.address, layout, len(gpu.vfs))
    for one in gpu.mig.instances if gpu.mig else ():
        steps.append(made_again(gpu.address, one))
    if isinstance(layout, VgpuLayout | MigVgpuLayout) and layout.scheduler is not None:
        declared = layout.scheduler
        steps.append(SetVgpuScheduler(gpu.address, str(declared.policy), declared.time_slice_us))
    # After the scheduler, for a module's options may have begun with one that refuses mixed sizes.
    if gpu.heterogeneous:
        steps.append(SetHeterogeneousMode(gpu.address, True))
    for one in gpu.mig.instances if gpu.mig else ():
        if one.heterogeneous:
            steps.append(SetHeterogeneousMode(gpu.address, True, one.start))
    return steps


def manifest_after(layout: HostLayout, facts: HostFacts, steps: Sequence[Step]) -> Manifest | None:
    """The manifest once the steps are taken; None where only the host can tell then what it stands in.

    That is so for a card that comes back to its driver, for GPU instances whose place the driver chooses, and where a
    part of the layout can be planned only later.
    """
    if layout.network is not None and (facts.ovn is None or facts.ovn.chassis is None):
        return None
    gpus = {gpu.address: gpu for gpu in facts.gpus}
    for step in steps:
        if isinstance(step, BindDriver):
            if step.driver != VFIO_PCI:
                return None
            for address in set(step.addresses) & set(gpus):
                gpus[address] = replace(gpus[address], driver=VFIO_PCI, uuid=None, mig=None, vfs=())
        elif isinstance(step, SetContainerGpus):
            facts = replace(facts, cdi=replace(facts.cdi or CdiFacts(), gpus=step.gpus))
        elif isinstance(step, _ON_GPU):
            after = _after(gpus[step.address], step)
            if after is None:
                return None
            gpus[step.address] = after
    for gpu in gpus.values():
        entries = entries_for(gpu, layout.gpus)
        declared = entries[0].layout if len(entries) == 1 else None
        if isinstance(declared, OwnLayout) and not declared.instances:
            continue
        if isinstance(declared, MigLayout | MigVgpuLayout | OwnLayout) and (
            gpu.mig is None or len(gpu.mig.instances) != len(declared.instances)
        ):
            return None
    return manifest_of(layout, replace(facts, gpus=tuple(gpus[gpu.address] for gpu in facts.gpus)))


def _after(gpu: Gpu, step: _GpuStep) -> Gpu | None:
    """The parts of a GPU that a manifest has, after one step."""
    mig = gpu.mig
    if isinstance(step, SetVirtualFunctions):
        if gpu.driver == PF_STUB:
            return None
        functions = tuple(VirtualFunction(str(number), number, None, None) for number in range(step.count))
        mig = None if mig is None else replace(mig, instances=())
        return replace(gpu, vfs=functions, heterogeneous=None, mig=mig)
    if isinstance(step, SetHeterogeneousMode) and step.gpu_instance_start is None:
        return replace(gpu, heterogeneous=step.enabled)
    if mig is None:
        return None
    if isinstance(step, SetMigMode):
        return replace(gpu, mig=replace(mig, current=step.enabled, pending=step.enabled))
    if isinstance(step, ResetGpu):
        return replace(gpu, vfs=(), mig=replace(mig, current=mig.pending, instances=()))
    start = step.gpu_instance_start if isinstance(step, SetHeterogeneousMode) else step.start
    if start is None:
        return None
    kept = [one for one in mig.instances if one.start != start]
    if isinstance(step, SetHeterogeneousMode):
        kept += [replace(one, heterogeneous=step.enabled) for one in mig.instances if one.start == start]
    elif isinstance(step, CreateGpuInstance):
        compute = step.compute or ((slices_of(step.profile),) if step.compute_instance else ())
        kept.append(GpuInstance(0, step.profile, start, 0, False, len(compute), compute=compute))
    return replace(gpu, mig=replace(mig, instances=tuple(sorted(kept, key=lambda one: one.start))))
