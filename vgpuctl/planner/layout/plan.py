# SPDX-License-Identifier: Apache-2.0
"""One host's plan, put together from its GPUs', kind by kind, and ordered as a boot would do it (reference 9)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.model.layout import GpuLayout, HostLayout, LayoutKind
from vgpuctl.model.lease import Lease
from vgpuctl.model.reservation import Reservation
from vgpuctl.planner.layout import card_settings, kinds
from vgpuctl.planner.layout.containers import block_unsure, plan_containers
from vgpuctl.planner.layout.host import plan_around, plan_services
from vgpuctl.planner.layout.result import Difference, HostPlan, LayoutObstacle, Stranded
from vgpuctl.planner.layout.work import GpuWork
from vgpuctl.sharing.declared import declared_of
from vgpuctl.sharing.kinds import kind_of, takes_card
from vgpuctl.sharing.matching import entries_for, fits
from vgpuctl.sharing.occupancy import gpu_at
from vgpuctl.sharing.share_on_host import holders_of

_KINDS: dict[LayoutKind, Callable[[GpuWork, Any], None]] = {
    LayoutKind.PASSTHROUGH: kinds.plan_passthrough,
    LayoutKind.VGPU: kinds.plan_vgpu,
    LayoutKind.MIG: kinds.plan_mig,
    LayoutKind.MIG_VGPU: kinds.plan_mig_vgpu,
    LayoutKind.VF: kinds.plan_vf,
    LayoutKind.OFF: kinds.plan_off,
    LayoutKind.HOST: kinds.plan_own,
}


def plan_host(
    layout: HostLayout,
    facts: HostFacts,
    leases: Sequence[Lease] = (),
    made: Collection[str] = (),
    promised: Collection[str] = (),
    doubles: Sequence[LayoutObstacle] = (),
    stranded: Mapping[str, Stranded] = MappingProxyType({}),
    reserved: Sequence[Reservation] = (),
) -> HostPlan:
    """Plan the way from the host as read to its declared layout. Equal input, equal plan.

    leases: those of this host, so that what a step disturbs can be named. made: mdev UUIDs and VF addresses of shares
    that a layout made before; of these, and of no other vGPU, idle ones are deleted where they are too many or in
    the way. promised: functions whose vGPUs a boot took, and which no share of the layout gets.
    doubles: values of the host that another host of the fleet has too. stranded: GPUs whose steps
    would lead VMs or shares nowhere, by address; they get none. reserved: the host's, which have a window left.
    A step that disturbs somebody can be taken only once they are gone: the agent refuses it otherwise.
    A GPU that no entry matches is left alone; a GPU with an obstacle gets no steps, while the other GPUs do. Steps are
    ordered by phase, then by GPU. Where `later` is not empty, read the host and plan again after the steps.
    """
    around = plan_around(layout, facts, doubles)
    hidden = _hidden_by_vms(facts, layout, leases)
    found = [
        _plan_gpu(gpu, layout, leases, made, promised, facts, reserved)
        for gpu in sorted(facts.gpus, key=lambda one: one.address)
        if gpu.address not in hidden
    ]
    gpus = [_kept_for_vms(work, stranded) for work in found if work is not None]
    gpu_steps = [planned for work in gpus if not work.obstacles for planned in work.steps]
    services = plan_services(layout, facts, gpu_steps)
    containers = plan_containers(facts, gpus)
    accounted = {entry for entries in hidden.values() for entry in entries}
    missing = [
        entry for entry in layout.gpus if entry.match.rank == 2 and entry not in accounted and not _has(facts, entry)
    ]
    steps = sorted((*around.steps, *services.steps, *gpu_steps, *containers.steps), key=lambda planned: planned.phase)
    return HostPlan(
        steps=tuple(steps),
        differences=(
            *around.differences,
            *services.differences,
            *(Difference(None, "gpu", str(entry.match), "missing") for entry in missing),
            *(difference for work in gpus for difference in work.differences),
            *containers.differences,
        ),
        obstacles=(
            *around.obstacles,
            *(_missing(entry) for entry in missing),
            *(obstacle for work in gpus for obstacle in work.obstacles),
        ),
        later=(*around.later, *(text for work in gpus if not work.obstacles for text in work.later)),
        notes=(*around.notes, *services.notes, *containers.notes, *(note for work in gpus for note in work.notes)),
        unknown=tuple(work.address for work in gpus if work.notes),
    )


def leases_in_the_way(
    layout: HostLayout, facts: HostFacts, leases: Sequence[Lease], *, after_boot: bool = False
) -> list[Lease]:
    """The leases that steps of a host can disturb.

    Left out are those whose device a boot took and that the declared layout serves: the steps take nothing from
    them, and their devices can be made again only after the steps. after_boot: the host was just booted, so that the
    boot took also what is promised and not noted as made.
    """
    return [one for one in leases if not ((after_boot or one.state.is_attached()) and _waits_for(layout, facts, one))]


def _waits_for(layout: HostLayout, facts: HostFacts, lease: Lease) -> bool:
    share, gpu = lease.share, gpu_at(facts, lease.share.gpu)
    if gpu is None or gpu.unread or holders_of(facts, share) is not None:
        return False
    declared = declared_of(gpu, facts, layout.gpus)
    return kind_of(share.sharing).refuse_declared(declared, gpu, share.profile) is None


def _plan_gpu(
    gpu: Gpu,
    layout: HostLayout,
    leases: Sequence[Lease],
    made: Collection[str],
    promised: Collection[str],
    facts: HostFacts,
    reserved: Sequence[Reservation],
) -> GpuWork | None:
    entries = entries_for(gpu, layout.gpus)
    if not entries:
        return None
    work = GpuWork(gpu, entries[0], leases, made, promised, hostname=facts.hostname, reserved=reserved)
    if len(entries) > 1:
        places = " and ".join(f"{entry.match} ({entry.origin or 'no origin'})" for entry in entries)
        work.block("ambiguous", f"{gpu.address} is meant by {places}", remedy="leave one of them")
        return work
    if gpu.unread:
        remedy = "look at the host: `vgpuctl inspect-host`"
        work.block("unread", f"{gpu.address} could not be read: {'; '.join(gpu.unread)}", remedy=remedy)
        return work
    block_unsure(work, facts)
    if work.obstacles:
        return work
    _KINDS[work.entry.layout.kind](work, work.entry.layout)
    card_settings.ensure(work, work.entry.tuning)
    card_settings.check_bounds(work, work.entry.bounds)
    card_settings.check_kept(work, facts.boot)
    return work


def _kept_for_vms(work: GpuWork, stranded: Mapping[str, Stranded]) -> GpuWork:
    found = stranded.get(work.address)
    if found is not None:
        work.obstacles = []
        work.block(found.code, found.reason, remedy=found.remedy)
    return work


def _has(facts: HostFacts, entry: GpuLayout) -> bool:
    return any(fits(entry.match, gpu) for gpu in facts.gpus)


def _hidden_by_vms(facts: HostFacts, layout: HostLayout, leases: Sequence[Lease]) -> dict[str, tuple[GpuLayout, ...]]:
    """Cards that a VM has as a whole and that show no UUID, each with the entries for whole cards that may mean it.

    A card on vfio-pci shows no UUID, so an entry that names one cannot be held against it.
    """
    whole = {one.share.gpu for one in leases if takes_card(one.share) and one.state.holds_device()}
    entries = tuple(
        entry
        for entry in layout.gpus
        if entry.match.uuid is not None and entry.layout.kind is LayoutKind.PASSTHROUGH and not _has(facts, entry)
    )
    found = (gpu for gpu in facts.gpus if gpu.uuid is None and gpu.address in whole)
    return {
        gpu.address: entries
        for gpu in found
        if entries and all(entry.match.rank < 2 for entry in entries_for(gpu, layout.gpus))
    }


def _missing(entry: GpuLayout) -> LayoutObstacle:
    remedy = "a GPU on vfio-pci shows no UUID: match it by address" if entry.match.uuid else "`vgpuctl list-gpus`"
    return LayoutObstacle(None, "gpu-missing", f"the host has no GPU of {entry.match}", remedy, entry.origin)
