# SPDX-License-Identifier: Apache-2.0
"""A host's reading if one of its GPUs went to mixed-size mode, with its vGPUs made again there."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from vgpuctl.agent.wire.facts import Gpu, VgpuType
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.relieve import relieve
from vgpuctl.scheduler.request_class import share_requests_of
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.gpu_state import GpuState
from vgpuctl.sharing.mixed_size import all_places
from vgpuctl.sharing.offer import Refusal
from vgpuctl.sharing.offers import ask
from vgpuctl.sharing.types_together import mixes_sizes

MOST_GPUS = 64
"""GPUs looked at for one request."""


def with_mixed_sizes(
    request: VmRequest, fleet: Fleet, leases: Sequence[Lease]
) -> Iterator[tuple[HostCapacity, list[Lease], str, tuple[str, ...]]]:
    """Each host with one more GPU in mixed-size mode: its leases, the GPU, and the VMs that have to stop for it.

    Only GPUs that take no part of the request for the sizes of their vGPUs alone, those with the fewest VMs first. What
    no lease explains cannot be made again, so such a GPU stays as it is.
    """
    for _, name, address in _refused_for_sizes(request, fleet)[:MOST_GPUS]:
        host = fleet.hosts[name]
        card = next(gpu for gpu in host.capacity.facts.gpus if gpu.address == address)
        own = [lease for lease in leases if lease.host == name]
        here = [lease for lease in own if lease.share.gpu == address]
        moved = _laid_out(host.cards[address].state, here)
        if moved is None:
            continue
        facts = relieve(host.capacity.facts, [lease.share for lease in here], (), ())
        gpus = tuple(_mixed(gpu, host.cards[address].state) if gpu.address == address else gpu for gpu in facts.gpus)
        capacity = replace(host.capacity, facts=replace(facts, gpus=gpus))
        others = [lease for lease in own if lease.share.gpu != address]
        yield capacity, [*others, *moved], card.address, tuple(sorted({f"{one.tenant}/{one.vm_name}" for one in here}))


def _refused_for_sizes(request: VmRequest, fleet: Fleet) -> list[tuple[int, str, str]]:
    """Number of VMs, host and address of the GPUs that equal sizes alone keep the request from."""
    found = []
    for name, host in fleet.hosts.items():
        if request.host not in (None, name):
            continue
        for state in host.states:
            can_mix = state.gpu.heterogeneous is False and mixes_sizes(state.gpu, state.board)
            answers = [ask(share_request, state) for share_request in share_requests_of(request)] if can_mix else []
            if any(isinstance(one, Refusal) and one.code is Code.EQUAL_SIZE for one in answers):
                found.append((len(set(state.lease_holders)), name, state.gpu.address))
    return sorted(found)


def _laid_out(state: GpuState, leases: Sequence[Lease]) -> list[Lease] | None:
    """The leases with the places that their vGPUs get, the large ones first; None when they do not fit."""
    taken: set[int] = set()
    moved = []
    if len(state.vgpus) != len(leases):
        return None
    for lease in sorted(leases, key=lambda one: (-(one.share.framebuffer_mib or 0), one.id)):
        size, starts = all_places(state.board, lease.share.profile)
        start = next((one for one in starts if not taken & set(range(one, one + size))), None)
        if start is None:
            return None
        taken |= set(range(start, start + size))
        moved.append(replace(lease, share=replace(lease.share, placement_start=start)))
    return moved


def _mixed(gpu: Gpu, state: GpuState) -> Gpu:
    return replace(gpu, heterogeneous=True, types=tuple(_offered(one, state) for one in gpu.types))


def _offered(one: VgpuType, state: GpuState) -> VgpuType:
    size, starts = all_places(state.board, one.name)
    return replace(one, creatable=len(starts), creatable_starts=starts, placement_size=size)
