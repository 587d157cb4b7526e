# SPDX-License-Identifier: Apache-2.0
"""A host as it would be read after some of its VMs released their shares. It never promises more than would be free.

Where the count of what can still be created cannot be known without asking the host, the count stays as it is.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, Holder, HostFacts, VgpuType
from vgpuctl.catalog.names import gpu_instance_slices
from vgpuctl.model.host_constraints import NO_RULES
from vgpuctl.model.lease import Share
from vgpuctl.model.numa import Footprint
from vgpuctl.scheduler.gpu_by_facts import read_gpu
from vgpuctl.scheduler.host_memory import with_memory_back
from vgpuctl.sharing.fabric import without_active
from vgpuctl.sharing.gpu_state import GpuState, framebuffer_of, max_instances_of
from vgpuctl.sharing.kinds import KINDS, kind_of, takes_card
from vgpuctl.sharing.mixed_size import all_places


def relieve(
    facts: HostFacts, given_back: Sequence[Share], vm_uuids: Collection[str], freed: Collection[Footprint]
) -> HostFacts:
    """The facts without these shares. vm_uuids: whose they were. freed: what these VMs' guests gave back."""
    by_gpu: dict[str, list[Share]] = {}
    for one in given_back:
        by_gpu.setdefault(one.gpu, []).append(one)
    return replace(
        without_active(with_memory_back(facts, freed), by_gpu),
        gpus=tuple(
            _relieve_gpu(facts, gpu, by_gpu[gpu.address], vm_uuids) if gpu.address in by_gpu else gpu
            for gpu in facts.gpus
        ),
    )


def with_guests_off(facts: HostFacts, vm_uuids: Collection[str], freed: Collection[Footprint]) -> HostFacts:
    """The facts after the guests of VMs ended that keep their shares. freed: what they gave back."""
    return replace(with_memory_back(facts, freed), gpus=tuple(_without_holders(gpu, vm_uuids) for gpu in facts.gpus))


def _without_holders(gpu: Gpu, vm_uuids: Collection[str]) -> Gpu:
    """The card without these VMs as holders of it and of its functions and vGPUs."""

    def others(holders: Sequence[Holder]) -> tuple[Holder, ...]:
        return tuple(one for one in holders if one.vm_uuid not in vm_uuids)

    return replace(
        gpu,
        holders=others(gpu.holders),
        companions=tuple(replace(one, holders=others(one.holders)) for one in gpu.companions),
        vfs=tuple(replace(one, holders=others(one.holders)) for one in gpu.vfs),
        mdevs=tuple(replace(one, holders=others(one.holders)) for one in gpu.mdevs),
    )


def _relieve_gpu(facts: HostFacts, gpu: Gpu, given_back: Sequence[Share], vm_uuids: Collection[str]) -> Gpu:
    emptied = _without_holders(gpu, vm_uuids)
    card = next(filter(takes_card, given_back), None)
    if card is not None:  # what its driver offers beside, once libvirt has given the card back, is not known
        is_free = not emptied.holders and card.sharing not in emptied.sharing
        return replace(emptied, sharing=(str(card.sharing), *emptied.sharing)) if is_free else emptied
    for kind in KINDS:
        emptied = kind.freed(emptied, [one for one in given_back if kind_of(one.sharing) is kind])
    before = read_gpu(NO_RULES, facts, gpu).with_leases(())
    after = read_gpu(NO_RULES, facts, emptied).with_leases(())
    return replace(emptied, types=tuple(_relieve_type(one, before, after) for one in gpu.types))


def _relieve_type(offered: VgpuType, before: GpuState, after: GpuState) -> VgpuType:
    """How many more of a type there are, when fewer vGPUs are there."""
    size = framebuffer_of(offered, after.board)
    instance = gpu_instance_slices(offered.name)
    if instance is not None:
        alike = catalog.short_name(offered.name)
        freed = _count(before, alike) - _count(after, alike)
        return replace(offered, creatable=offered.creatable + freed)
    sizes = {held.framebuffer_mib for held in after.vgpus if held.name is None or not gpu_instance_slices(held.name)}
    if offered.creatable_starts is not None and not after.vgpus:
        _, starts = all_places(after.board, offered.name)
        known = starts or offered.creatable_starts
        return replace(offered, creatable=max(offered.creatable, len(known)), creatable_starts=known)
    limit = max_instances_of(offered, after.board)
    if limit is None or after.gpu.heterogeneous or (sizes and sizes != {size}):
        return offered
    count = min(limit, len(after.gpu.vfs)) if after.gpu.vfs else limit
    return replace(offered, creatable=max(offered.creatable, count - len(after.vgpus)))


def _count(state: GpuState, name: str) -> int:
    return sum(held.name == name for held in state.vgpus)
