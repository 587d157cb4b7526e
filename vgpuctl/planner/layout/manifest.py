# SPDX-License-Identifier: Apache-2.0
"""The way from a fresh boot to the layout a host is in now, for the unit that restores it (reference 9, boot order).

VFs, GPU instances, mixed sizes and the scheduler do not outlive a boot; a step for anything else changes nothing.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from vgpuctl.agent.wire.boot import Manifest, ManifestGpu, ManifestStep
from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.agent.wire.steps import (
    BindDriver,
    SetHeterogeneousMode,
    SetHugepages,
    SetMigMode,
    SetVgpuScheduler,
    SetVirtualFunctions,
    Step,
)
from vgpuctl.model.layout import HostLayout, MigVgpuLayout, PassthroughLayout, VgpuLayout
from vgpuctl.model.lease import Lease, Share
from vgpuctl.planner.layout.driver import VFIO_PCI
from vgpuctl.planner.layout.network import network_steps
from vgpuctl.planner.layout.work import made_again
from vgpuctl.sharing.kinds import existing_vgpus, vgpu_kind_of
from vgpuctl.sharing.matching import entries_for
from vgpuctl.sharing.occupancy import ExistingVgpu
from vgpuctl.sharing.type_names import numbered_now


def manifest_of(layout: HostLayout, facts: HostFacts) -> Manifest:
    """The manifest of a host that is in its layout. Equal input, equal manifest."""
    gpus: list[ManifestGpu] = []
    steps = [ManifestStep(SetHugepages(size_kib, count)) for size_kib, count in layout.hugepages]
    for gpu in sorted(facts.gpus, key=lambda one: one.address):
        entries = entries_for(gpu, layout.gpus)
        if len(entries) != 1:
            continue
        gpus.append(ManifestGpu(gpu.address, gpu.vendor_id, gpu.device_id, gpu.subsystem_id, gpu.uuid))
        steps += [ManifestStep(step, gpu.address) for step in _steps(gpu, entries[0].layout)]
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
