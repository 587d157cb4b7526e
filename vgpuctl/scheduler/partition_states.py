# SPDX-License-Identifier: Apache-2.0
"""What each partition of an NVSwitch fabric is at this moment, for lists, the map and the pages.

Which VM has an active partition is told by its leases.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from vgpuctl.agent.wire.fabric import FabricPartition
from vgpuctl.model.gpu_map import ActivePartition
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.placement import HostCapacity
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.fleet_host import FleetHost
from vgpuctl.scheduler.partitions import free_modules
from vgpuctl.sharing.gate import refuse_closed_host
from vgpuctl.sharing.gpu_state import GpuState
from vgpuctl.sharing.partition_rules import needs_partition


class PartitionState(StrEnum):
    """The state of a partition.

    active: a VM has it. inactive: a VM is declared running with its GPUs, and it was not active. stray: it is active,
    and no VM of the store has its GPUs. broken: a GPU of it has lost NVLinks. blocked: a GPU of it is in use otherwise,
    or takes no VM. free: none of these.
    """

    ACTIVE = "active"
    INACTIVE = "inactive"
    STRAY = "stray"
    BROKEN = "broken"
    BLOCKED = "blocked"
    FREE = "free"


@dataclass(frozen=True)
class PartitionGpu:
    """A GPU of a partition. module: its number on the baseboard. address: None where nobody knows which GPU that is.

    links: its NVLinks in the partition now, and most_links without failures.
    """

    module: int
    address: str | None
    links: int
    most_links: int


@dataclass(frozen=True)
class PartitionView:
    """One partition of a host. vm: TENANT/NAME that has it. why: of one that is neither free nor simply active.

    is_active: as Fabric Manager told when the host was last read.
    """

    host: str
    number: int
    gpus: tuple[PartitionGpu, ...]
    state: PartitionState
    vm: str | None
    why: str | None
    is_active: bool


def view_fleet(capacities: Sequence[HostCapacity], leases: Iterable[Lease]) -> list[PartitionView]:
    """The partitions of all hosts, by host and number. leases: on these hosts."""
    hosts = Fleet(capacities, leases).hosts
    return [one for capacity in capacities for one in _views(hosts[capacity.name])]


def active_partitions(host: FleetHost) -> dict[int | None, ActivePartition]:
    """The active partition of each GPU of a host that has one, by module."""
    return {
        gpu.module: ActivePartition(one.number, one.vm)
        for one in _views(host)
        if one.state in (PartitionState.ACTIVE, PartitionState.STRAY)
        for gpu in one.gpus
    }


def _views(host: FleetHost) -> list[PartitionView]:
    manager = host.capacity.facts.fabric_manager
    if manager is None or not manager.partitions or not host.cards:
        return []
    closed = refuse_closed_host(host.capacity.rules)
    states = [replace(one, closed=one.closed or closed) for one in host.states]
    leases = [lease for card in host.cards.values() for lease in card.leases.values()]
    seen = _FabricNow(states, leases, manager.partitions)
    return [seen.view(one) for one in sorted(manager.partitions, key=lambda one: one.number)]


class _FabricNow:
    """One host while its partitions are looked at."""

    def __init__(
        self, states: Sequence[GpuState], leases: Sequence[Lease], partitions: Sequence[FabricPartition]
    ) -> None:
        self._name = states[0].host
        self._states = {one.fabric.module: one for one in states if one.fabric is not None}
        self._free = free_modules(states)
        self._active = [one for one in partitions if one.is_active]
        self._leases = [one for one in leases if needs_partition(one.share)]

    def view(self, partition: FabricPartition) -> PartitionView:
        """The view of one partition."""
        gpus = tuple(
            PartitionGpu(one.module, self._address(one.module), one.links, one.most_links)
            for one in sorted(partition.gpus, key=lambda one: one.module)
        )
        why = list(partition.lost_links)
        holder = self._holder({one.address for one in gpus})
        vm = None
        if holder and (partition.is_active or all(one.state is LeaseState.RUNNING for one in holder)):
            state, vm = PartitionState.ACTIVE, f"{holder[0].tenant}/{holder[0].vm_name}"
            if not partition.is_active:
                state = PartitionState.INACTIVE
                why.append("its VM is declared running, and it is not active: see `vgpuctl check-vm`, `vgpuctl repair`")
        elif partition.is_active:
            state = PartitionState.STRAY
            why.append("it is active, and no VM of the store has its GPUs")
        else:
            state = PartitionState.BROKEN if why else PartitionState.BLOCKED
            why += self._blockers(partition)
            state = state if why else PartitionState.FREE
        return PartitionView(self._name, partition.number, gpus, state, vm, "; ".join(why) or None, partition.is_active)

    def _address(self, module: int) -> str | None:
        state = self._states.get(module)
        return None if state is None else state.gpu.address

    def _holder(self, addresses: Collection[str | None]) -> list[Lease]:
        """The leases of the VM whose GPUs are exactly these; empty without one."""
        vms = {one.vm_uuid for one in self._leases if one.share.gpu in addresses}
        own = [one for one in self._leases if one.vm_uuid in vms]
        return own if len(vms) == 1 and {one.share.gpu for one in own} == addresses else []

    def _blockers(self, partition: FabricPartition) -> list[str]:
        """Why its GPUs cannot be one VM's, each reason with its modules."""
        found: dict[str, list[int]] = {}
        for module in sorted(partition.modules):
            if (reason := self._blocker(module)) is not None:
                found.setdefault(reason, []).append(module)
        return [f"module {', '.join(map(str, modules))}: {reason}" for reason, modules in found.items()]

    def _blocker(self, module: int) -> str | None:
        state = self._states.get(module)
        if state is None:
            return "nobody knows which GPU it is"
        if state.lease_holders:
            return ", ".join(dict.fromkeys(state.lease_holders))
        active = next((one.number for one in self._active if module in one.modules), None)
        if active is not None:
            return f"partition {active} is active"
        if state.closed is not None:
            return state.closed.reason
        if state.gpu.problems:
            return "; ".join(state.gpu.problems)
        if state.gpu.mig is not None and state.gpu.mig.current:
            return "MIG is on"
        return None if module in self._free else "in use, and not by a VM of the store"
