# SPDX-License-Identifier: Apache-2.0
"""A host as it is, in vgpuctl's words: the shares that domains hold, and the layout that its GPUs are in already."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from vgpuctl.agent.wire.cdi import FILE
from vgpuctl.agent.wire.facts import Gpu, GpuInstance, HostFacts
from vgpuctl.model.layout import (
    GpuLayout,
    GpuMatch,
    HostLayout,
    Layout,
    MigLayout,
    MigVgpuLayout,
    OwnLayout,
    PassthroughLayout,
    SchedulerLayout,
    SchedulerPolicy,
    SizeMode,
    VfLayout,
    VgpuLayout,
    WantedInstance,
)
from vgpuctl.model.lease import Lease, Share
from vgpuctl.planner.layout.plan import plan_host
from vgpuctl.planner.layout.shares import name_of
from vgpuctl.planner.layout.work import NVIDIA
from vgpuctl.planner.mig_geometry import devices_of, instances_of, parts_of
from vgpuctl.sharing.bound_by_libvirt import VFIO_PCI
from vgpuctl.sharing.kinds import KINDS, existing_vgpus, takes_card
from vgpuctl.sharing.occupancy import ExistingVgpu


@dataclass(frozen=True)
class AsFound:
    """The present state of each GPU as entries of a layout; and the GPUs without an entry, with the reason."""

    entries: tuple[GpuLayout, ...]
    left: tuple[tuple[str, str], ...]


def shares_of_devices(devices: Sequence[str], facts: HostFacts) -> tuple[Share, ...] | str:
    """The GPU shares among a domain's host devices (PCI addresses and UUIDs of mdevs), in their order.

    Devices that belong to no GPU are left out. Returns the reason where one does, and is not there or not set up.
    """
    found: list[Share] = []
    for device in devices:
        share = _recognised(device, devices, facts)
        if isinstance(share, str):
            return share
        if share is not None:
            found.append(share)
    return tuple(found)


def idle_vgpus(facts: HostFacts, claimed: Collection[str]) -> list[ExistingVgpu]:
    """The vGPUs that no process holds and nobody claims, of known types. claimed: UUIDs of mdevs and VFs."""
    held = {mdev.uuid for gpu in facts.gpus for mdev in gpu.mdevs if mdev.holders}
    held |= {function.address for gpu in facts.gpus for function in gpu.vfs if function.holders}
    return [
        vgpu
        for gpu in facts.gpus
        for vgpu in existing_vgpus(gpu)
        if vgpu.type_id is not None and not {vgpu.mdev_uuid, vgpu.function} & {*claimed, *held}
    ]


def layout_as_found(
    facts: HostFacts, leases: Sequence[Lease], made: Collection[str], foreign: Collection[str] = ()
) -> AsFound:
    """The layout that asks nothing of the host. made: devices of idle vGPUs that are shares of the layout.

    foreign: devices of domains that are not adopted; a whole card among them is theirs to bind, so it gets no entry.
    GPUs that nothing was done to get no entry. An entry that would take a step, or differ, is left out with the reason.
    """
    entries: list[GpuLayout] = []
    left: list[tuple[str, str]] = []
    for gpu in sorted(facts.gpus, key=lambda one: one.address):
        if gpu.unread:
            left.append((gpu.address, f"could not be read: {gpu.unread[0]}"))
            continue
        if gpu.address in foreign:
            left.append((gpu.address, "a domain that is not adopted names it"))
            continue
        alone = _with_containers_of(gpu, facts)
        is_own = alone.cdi is not None and gpu.address in alone.cdi.gpus
        held = [one for one in leases if one.share.gpu == gpu.address]
        layout = _own_layout(gpu) if is_own else _layout_of(gpu, held, made)
        if layout is None:
            continue
        entry = GpuLayout(GpuMatch(address=gpu.address), layout)
        plan = plan_host(HostLayout(gpus=(entry,)), alone, leases, made)
        reasons = [str(one) for one in plan.differences] + [one.reason for one in plan.obstacles] + list(plan.later)
        if reasons or plan.steps:
            left.append((gpu.address, f"no layout of kind {layout.kind} describes it: {(*reasons, 'it changes')[0]}"))
        else:
            entries.append(entry)
    return AsFound(tuple(entries), tuple(left))


def _with_containers_of(gpu: Gpu, facts: HostFacts) -> HostFacts:
    """The host with what containers have of this GPU alone: other entries speak for other GPUs, and nobody for files
    of other programs. That the file is older than its content asks nothing of the GPU.
    """
    if facts.cdi is None:
        return facts
    own = tuple(one for one in facts.cdi.gpus if one == gpu.address)
    others = tuple(one for one in facts.cdi.others if one == FILE)
    return replace(facts, cdi=replace(facts.cdi, gpus=own, is_current=True, others=others))


def _own_layout(gpu: Gpu) -> OwnLayout:
    return OwnLayout(_with_compute(gpu.mig.instances) if gpu.mig is not None and gpu.mig.current else ())


def _recognised(device: str, beside: Sequence[str], facts: HostFacts) -> Share | str | None:
    for gpu in facts.gpus:
        for kind in KINDS:
            found = kind.recognise(device, beside, gpu)
            if found is not None:
                return found
    return f"its mdev {device} does not exist" if "-" in device else None


def _layout_of(gpu: Gpu, leases: Sequence[Lease], made: Collection[str]) -> Layout | None:
    if any(takes_card(lease.share) for lease in leases):
        return PassthroughLayout()
    if gpu.driver == VFIO_PCI:
        return PassthroughLayout(VFIO_PCI)
    if gpu.vendor_id != NVIDIA:
        return VfLayout(len(gpu.vfs)) if gpu.vfs else None
    shares = _shares(gpu, made)
    if gpu.mig is not None and gpu.mig.current:
        found = sorted(gpu.mig.instances, key=lambda one: (one.profile, one.start))
        instances = tuple(WantedInstance(one.profile, one.start) for one in found)
        if not gpu.vfs:
            return MigLayout(_with_compute(gpu.mig.instances))
        return MigVgpuLayout(instances, scheduler=_scheduler(gpu), shares=shares)
    if gpu.vfs or gpu.mdevs:
        mode = SizeMode.MIXED if gpu.heterogeneous else None
        return VgpuLayout(size_mode=mode, scheduler=_scheduler(gpu), shares=shares)
    return None


def _with_compute(found: Sequence[GpuInstance]) -> tuple[WantedInstance, ...]:
    """The instances as a layout can say them, which may share out their compute instances in another way."""
    starts: dict[str, list[int]] = {}
    for one in found:
        starts.setdefault(one.profile, []).append(one.start)
    wanted = [WantedInstance(one.profile, compute=parts_of(one.profile, one.compute)) for one in found]
    return instances_of(devices_of(wanted), starts)


def _shares(gpu: Gpu, made: Collection[str]) -> tuple[tuple[str, int], ...]:
    """The types of idle shares, each with all of its vGPUs: one that exists counts, whoever uses it."""
    named = [(name_of(vgpu, gpu), vgpu) for vgpu in existing_vgpus(gpu) if vgpu.type_id is not None]
    counts = Counter(name for name, _ in named)
    idle = {name for name, vgpu in named if vgpu.vfio_device in made and name != vgpu.type_id}
    return tuple(sorted((name, counts[name]) for name in idle))


def _scheduler(gpu: Gpu) -> SchedulerLayout | None:
    found = gpu.scheduler
    if found is None or found.policy == SchedulerPolicy.BEST_EFFORT:
        return None
    return SchedulerLayout(SchedulerPolicy(found.policy), found.time_slice_us)
