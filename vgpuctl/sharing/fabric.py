# SPDX-License-Identifier: Apache-2.0
"""NVSwitch partitions as VMs need them: which GPUs of a host compute together, and which shares need that.

On a host whose Fabric Manager has FABRIC_MODE 1 or 2 a guest's `cuInit` answers 802 until the partition of exactly its
GPUs is active (fabric reference 4.1). Each partition gives a GPU to one VM; MIG-backed vGPUs need none (day2 6.5).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from vgpuctl import catalog
from vgpuctl.agent.wire.fabric import FabricPartition, UsedPartition
from vgpuctl.agent.wire.facts import Gpu, HostFacts

NO_CONFIGURATION = "has no configuration, or is not installed"
"""What the agent knows of a Fabric Manager that it tells nothing of: it looks for its configuration alone."""

_PENDING = "it was started before its configuration was written, so that its FABRIC_MODE may be another"


@dataclass(frozen=True)
class KnownPartition:
    """A partition by its number. modules: its GPUs. failed: those of them that have lost NVLinks."""

    number: int
    modules: frozenset[int]
    failed: frozenset[int] = frozenset()

    @property
    def works(self) -> bool:
        """True if all NVLinks that it needs are there."""
        return not self.failed


@dataclass(frozen=True)
class OnFabric:
    """The place of one GPU on the fabric of its host.

    module: its number, None where nobody knows it. problem: why Fabric Manager tells no partitions. partitions: those
    with this GPU. active: the number of the one that is active. loss: what the fabric loses if the GPU alone is given
    away (`loss_of`). chosen: the GPUs among which the search is for now, None for any.
    """

    mode: int | None
    module: int | None
    problem: str | None
    partitions: tuple[KnownPartition, ...]
    active: int | None = None
    loss: float = 0.0
    chosen: frozenset[int] | None = None

    def sizes(self) -> tuple[int, ...]:
        """How many GPUs the partitions with this one have."""
        return tuple(sorted({len(one.modules) for one in self.partitions}))


def why_unknown(facts: HostFacts) -> str | None:
    """Why nobody knows the fabric of a host; None where it was read, or the host has none."""
    unread = facts.why_unread("fabric_manager", "fabric_modules")
    if unread is not None:
        return f"it was not read: {unread}"
    if facts.fabric_manager is None and any(map(_leads_to_switches, facts.gpus)):
        return f"it {NO_CONFIGURATION}"
    return None


def why_untold(facts: HostFacts) -> str | None:
    """Why nobody knows which partitions of a host are active; None where Fabric Manager told them, or has none."""
    unknown, manager = why_unknown(facts), facts.fabric_manager
    if unknown is not None:
        return f"Fabric Manager: {unknown}"
    return manager.problem if manager is not None and manager.partitions is None else None


def _leads_to_switches(gpu: Gpu) -> bool:
    links = None if gpu.topology is None else gpu.topology.nvlinks
    return any(one.peer_kind == "switch" for one in links or ())


def may_have_partitions(facts: HostFacts) -> bool:
    """True unless the host is known to have no Fabric Manager."""
    return facts.fabric_manager is not None or why_unknown(facts) is not None


def has_nvswitch(gpu: Gpu) -> bool:
    """True if a GPU sits behind NVSwitches: its links lead there, or it has a fabric; else as the catalogue says."""
    told = gpu.topology
    if told is not None and told.fabric is not None:
        return True
    links = None if told is None else told.nvlinks
    kinds = {one.peer_kind for one in links or ()} - {None}
    if kinds or links == ():  # of boards with four GPUs they lead from GPU to GPU
        return "switch" in kinds
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    return board is not None and board_has_nvswitch(board)


def board_has_nvswitch(board: catalog.Board) -> bool:
    """True if NVLinks of the model lead to NVSwitches, as far as the catalogue knows."""
    return board.nvlink is not None and board.nvlink.topology.startswith("nvswitch")


def on_fabric(gpu: Gpu, facts: HostFacts) -> OnFabric | None:
    """Where a GPU is on the fabric; None for one without NVSwitch, or on a host without Fabric Manager."""
    manager, module = facts.fabric_manager, _module(gpu)
    if not has_nvswitch(gpu) and (manager is None or module is None):
        return None
    if manager is None:
        why = why_unknown(facts)
        return None if why is None else OnFabric(None, module, why, ())
    listed = [one for one in manager.partitions or () if module in one.modules]
    return OnFabric(
        manager.mode,
        module,
        manager.problem or (_PENDING if manager.needs_restart else None),
        tuple(map(_partition, listed)),
        next((one.number for one in listed if one.is_active), None),
    )


def _module(gpu: Gpu) -> int | None:
    return None if gpu.topology is None else gpu.topology.module


def _partition(told: FabricPartition) -> KnownPartition:
    failed = frozenset(gpu.module for gpu in told.gpus if gpu.links < gpu.most_links)
    return KnownPartition(told.number, told.modules, failed)


def partition_of(gpus: Collection[str], facts: HostFacts) -> FabricPartition | None:
    """The partition of exactly these GPUs as Fabric Manager lists it; None where it lists none or a GPU is unknown."""
    modules = {_module(gpu) for gpu in facts.gpus if gpu.address in gpus}
    listed = () if facts.fabric_manager is None else facts.fabric_manager.partitions or ()
    return next((one for one in listed if one.modules == modules and len(gpus) == len(modules)), None)


def loss_of(given: frozenset[int], partitions: Iterable[KnownPartition], free: Collection[int]) -> float:
    """What giving these GPUs away takes from the fabric: partitions that could be activated, the largest first.

    free: the GPUs that nobody uses. Two of a size weigh less than one of the next larger size.
    """
    lost: dict[int, int] = {}
    sizes = set()
    for one in partitions:
        sizes.add(len(one.modules))
        if one.works and one.modules <= set(free) and one.modules & given:
            lost[len(one.modules)] = lost.get(len(one.modules), 0) + 1
    total = 0.0
    for size in sorted(sizes, reverse=True):
        total = total * 64 + lost.get(size, 0)
    return total


def with_active(facts: HostFacts, used: UsedPartition) -> HostFacts:
    """The facts after the partition of a VM was activated."""
    manager, found = facts.fabric_manager, partition_of(used.gpus, facts)
    if manager is None or manager.partitions is None or found is None:
        return facts
    listed = tuple(
        replace(one, is_active=True, vm=used.vm) if one.number == found.number else one for one in manager.partitions
    )
    return replace(facts, fabric_manager=replace(manager, partitions=listed))


def without_active(facts: HostFacts, gpus: Collection[str]) -> HostFacts:
    """The facts after the VMs that have these GPUs have given them back."""
    manager = facts.fabric_manager
    if manager is None or not manager.partitions:
        return facts
    modules = {_module(gpu) for gpu in facts.gpus if gpu.address in gpus}
    partitions = tuple(
        replace(one, is_active=False, vm=None) if one.is_active and one.modules & modules else one
        for one in manager.partitions
    )
    return replace(facts, fabric_manager=replace(manager, partitions=partitions))
