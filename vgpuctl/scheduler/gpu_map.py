# SPDX-License-Identifier: Apache-2.0
"""The map of GPUs, made with the rules that place VMs: what is free is asked of the same functions.

A place in the memory is real where the hardware has places: MIG slots, and the placements of mixed-size mode. Elsewhere
the shares are drawn one after another.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vgpuctl import catalog
from vgpuctl.model.gpu_map import Closed, Creatable, GpuMap, MapInstance, MapMode, Segment, SegmentKind
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.lease import Lease
from vgpuctl.model.natural_order import natural
from vgpuctl.model.placement import HostCapacity
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.map_layout import fill_instances, fill_places, fill_row
from vgpuctl.scheduler.partition_states import active_partitions
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.gate import closed_functions, refuse_closed_host
from vgpuctl.sharing.gpu_state import GpuState
from vgpuctl.sharing.kind import Takes
from vgpuctl.sharing.kinds import (
    existing_vgpus,
    function_requests,
    kind_of,
    offers_card,
    offers_functions,
    takes_card,
    vgpu_kind_on,
    whole_requests,
)
from vgpuctl.sharing.offer import Refusal, ShareRequest
from vgpuctl.sharing.offers import ask
from vgpuctl.sharing.refusals import memory_of
from vgpuctl.sharing.vgpu_types import SERIES_ORDER, memory_budget, remaining

_NOT_FREE = (Code.GPU_FULL, Code.RESERVED_BY_LEASE, Code.NO_FREE_VF, Code.CARD_IN_USE)
"""Refusals of a GPU that is simply in use."""


@dataclass(frozen=True)
class _Gives:
    """The shares that a GPU gives now. refusal: why it gives none."""

    creatable: tuple[Creatable, ...]
    refusal: Refusal | None


def map_gpus(
    capacities: Sequence[HostCapacity],
    leases: Iterable[Lease],
    *,
    instances: Mapping[tuple[str, str], int] | None = None,
) -> list[GpuMap]:
    """The map of every GPU, by host and address.

    instances: by host and device, the MIG instance that readings show a vGPU in; others go to the first that fits.
    """
    fleet = Fleet(capacities, leases)
    known: dict[tuple[int, Refusal | None], _Gives] = {}
    maps = []
    for capacity in capacities:
        host_closed = refuse_closed_host(capacity.rules)
        active = active_partitions(fleet.hosts[capacity.name])
        for card in fleet.hosts[capacity.name].cards.values():
            state = replace(card.state, closed=card.state.closed or host_closed)
            key = (card.number, host_closed)
            if key not in known:
                known[key] = _gives(state)
            drawn = _map(state, tuple(card.leases.values()), known[key], instances or {})
            vfs = tuple(sorted(closed_functions(state.gpu, capacity.rules).items()))
            fabric = state.fabric
            module = None if fabric is None else fabric.module
            maps.append(replace(drawn, closed_vfs=vfs, module=module, partition=active.get(module)))
    return sorted(maps, key=lambda one: (natural(one.host), one.gpu))


def _map(state: GpuState, leases: Sequence[Lease], gives: _Gives, instances: Mapping[tuple[str, str], int]) -> GpuMap:
    gpu = state.gpu
    taken = _taken(state, leases, instances)
    memory = max(memory_budget(state) or memory_of(state), 1)
    mode = _mode(state, leases)
    if mode is MapMode.MIG:
        free = {one.profile for one in gives.creatable}
        filled = fill_instances(state, taken, memory, free)
    elif mode is MapMode.MIXED:
        filled = fill_places(state, taken, memory)
    else:
        filled = fill_row(taken, memory, max((one.size_mib * one.count for one in gives.creatable), default=0))
    closed = _closed(state)
    kind = SegmentKind.FOREIGN if state.declared.is_hosts_own else None if closed is None else SegmentKind.CLOSED
    segments = filled.segments if kind is None else tuple(_not_free(one, kind) for one in filled.segments)
    mig = gpu.mig.instances if mode is MapMode.MIG and gpu.mig is not None else ()
    drawn = [MapInstance(one.id, one.profile, one.start, one.size) for one in mig]
    return GpuMap(
        host=state.host,
        gpu=gpu.address,
        uuid=gpu.uuid,
        board=state.title,
        numa_node=gpu.numa_node,
        mode=mode,
        memory_mib=sum(one.size_mib for one in segments),
        segments=segments,
        slots=filled.slots,
        instances=tuple(sorted(drawn, key=lambda one: one.start)),
        creatable=gives.creatable,
        why_none=None if gives.creatable or gives.refusal is None else gives.refusal.reason,
        closed=closed,
        unplaced=filled.unplaced,
        is_exact=mode in (MapMode.MIG, MapMode.MIXED),
    )


def _mode(state: GpuState, leases: Sequence[Lease]) -> MapMode:
    gpu = state.gpu
    kinds = {kind_of(lease.share.sharing).takes for lease in leases}
    if Takes.CARD in kinds or state.whole is not None or gpu.holders:
        return MapMode.WHOLE
    if gpu.mig is not None and gpu.mig.current:
        return MapMode.MIG
    if Takes.FUNCTION in kinds or offers_functions(gpu):
        return MapMode.VFS
    if vgpu_kind_on(gpu) is not None or Takes.VGPU in kinds or state.vgpus:
        return MapMode.MIXED if gpu.heterogeneous else MapMode.EQUAL
    return MapMode.WHOLE if offers_card(gpu) else MapMode.NONE


def _closed(state: GpuState) -> Closed | None:
    """Why the GPU takes nobody, whatever is free: it is closed by somebody, or something is wrong with it."""
    if state.closed is not None:
        return Closed(state.closed.code, state.closed.reason, state.closed.remedy)
    if state.gpu.problems:
        return Closed(Code.GPU_PROBLEM, "; ".join(state.gpu.problems))
    return None


def _not_free(one: Segment, kind: SegmentKind) -> Segment:
    """The segment; one that is free is of this kind instead."""
    return replace(one, kind=kind) if one.kind.is_free() else one


def _taken(
    state: GpuState, leases: Sequence[Lease], instances: Mapping[tuple[str, str], int]
) -> list[tuple[Segment, int | None]]:
    """Everything that is taken, with its expected start in placement units.

    Leases come first, in the order of their devices, then what the host shows and the store does not have.
    """
    found: list[tuple[Segment, int | None]] = []
    shown = zip(existing_vgpus(state.gpu), (held for held in state.vgpus if held.seen), strict=True)
    for lease in sorted(leases, key=lambda one: (one.share.function, one.share.device, one.id)):
        share = lease.share
        size = share.framebuffer_mib or 0
        if takes_card(share):
            size = size or memory_of(state)
        one = Segment(
            SegmentKind.SHARE,
            0,
            size,
            share.profile,
            lease.tenant,
            lease.vm_name,
            share.device,
            str(lease.state),
            instances.get((state.host, share.device)),
        )
        found.append((one, share.placement_start))
    ours = {lease.share.device for lease in leases}
    found += [
        (Segment(SegmentKind.FOREIGN, 0, held.framebuffer_mib or 0, held.name, device=vgpu.device), None)
        for vgpu, held in shown
        if vgpu.device not in ours
    ]
    if state.gpu.holders and state.whole is None:
        found.append((Segment(SegmentKind.FOREIGN, 0, memory_of(state), "whole card"), None))
    if offers_functions(state.gpu) and state.gpu.vfs:
        leased = {lease.share.function for lease in leases}
        others = [one.address for one in state.gpu.vfs if one.address in state.functions and one.address not in leased]
        size = memory_of(state) // len(state.gpu.vfs)
        found += [(Segment(SegmentKind.FOREIGN, 0, size, "vf", device=address), None) for address in others]
    return found


def _gives(state: GpuState) -> _Gives:
    """Ask for every share that the GPU could give, by the rules of placing."""
    found: dict[str, Creatable] = {}
    first: Refusal | None = None
    for request in _requests(state):
        answer = ask(ShareRequest(request), state)
        if isinstance(answer, Refusal):
            is_better = first is None or (first.code in _NOT_FREE and answer.code not in _NOT_FREE)
            first = answer if is_better else first
            continue
        for offer in answer:
            share = offer.share
            found.setdefault(
                share.profile,
                Creatable(share.profile, share.framebuffer_mib or 0, _count(share.profile, offer.waste, state)),
            )
    ordered = sorted(found.values(), key=lambda one: (-one.size_mib, _series_order(one.profile), one.profile))
    return _Gives(tuple(ordered), first)


def _series_order(profile: str) -> int:
    """The most able series first."""
    return SERIES_ORDER.get(catalog.series_of(profile) or "", len(SERIES_ORDER))


def _requests(state: GpuState) -> Iterable[GpuRequest]:
    """Everything to ask for; the whole card last, whose refusal is of interest only where there is nothing else."""
    yield from function_requests(state.gpu)
    for offered in state.gpu.types:
        name = catalog.short_name(offered.name)
        yield GpuRequest(name, profile=name)
    yield from whole_requests()


def _count(profile: str, waste: tuple[int, int, int], state: GpuState) -> int:
    """How many of an offered share fit beside each other."""
    for offered in state.gpu.types:
        if catalog.short_name(offered.name) == profile:
            return max(1, remaining(offered, state))
    return 1 + waste[2] if profile in (one.text for one in function_requests(state.gpu)) else 1
