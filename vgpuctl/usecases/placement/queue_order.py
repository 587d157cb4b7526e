# SPDX-License-Identifier: Apache-2.0
"""The order in which the queue is served, and on which host an entry may start."""

from collections.abc import Sequence

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.queue import QueueEntry
from vgpuctl.quota.charge import Amounts
from vgpuctl.quota.queue_order import in_order
from vgpuctl.quota.resources import Resource
from vgpuctl.scheduler.host_cells import host_memory_mib, host_reserve_mib
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.capacities import cached_capacities


def ordered_queue(session: Session, now: float) -> list[QueueEntry]:
    """The queue in the order in which it is served now."""
    entries = session.queue()
    if not entries:
        return []
    used = {tenant: session.used(tenant) for tenant in {entry.request.tenant for entry in entries}}
    return in_order(
        entries, session.queue_settings(), now, used=used, capacity=fleet_capacity(cached_capacities(session))
    )


def fleet_capacity(capacities: Sequence[HostCapacity]) -> Amounts:
    """Sum the resources of the whole fleet that tenants share."""
    return {
        Resource.VCPUS: sum(one.facts.cpus for one in capacities),
        Resource.MEMORY: sum(_memory_for_vms(one) for one in capacities),
        Resource.FRAMEBUFFER: sum(_memory_mib(gpu) for one in capacities for gpu in one.facts.gpus),
    }


def _memory_for_vms(capacity: HostCapacity) -> int:
    memory_mib = host_memory_mib(capacity.facts)
    return memory_mib - host_reserve_mib(memory_mib)


def _memory_mib(gpu: Gpu) -> int:
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    return gpu.memory_mib or (board.memory_mib if board is not None else 0)
