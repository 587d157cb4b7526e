# SPDX-License-Identifier: Apache-2.0
"""Equal GPUs share one number: what the rules look at, without addresses, names and processes.

Every GPU of a class gets the same answer to a wanted share; only the function's address differs.
"""

import bisect
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace

from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.agent.wire.vf_health import is_usable
from vgpuctl.model.lease import Lease, Share
from vgpuctl.scheduler.gpu_by_facts import GpuByFacts, neighbours_of
from vgpuctl.scheduler.scarcity import Model, Stock, model_of, stock_of
from vgpuctl.scheduler.scorer import free_part
from vgpuctl.scheduler.unmeasured import UnmeasuredLoad
from vgpuctl.sharing.gpu_state import GpuState
from vgpuctl.sharing.kind import Takes
from vgpuctl.sharing.kinds import KINDS, consoles_of, kind_of


class GpuClasses:
    """Numbers for shapes (facts) and for classes (facts with leases), and one GPU of each class as its example.

    models, stocks: of the classes, by their number; a model is a number too. workloads: of VMs, where a policy predicts
    throughput, so that GPUs with other neighbours are of another class. unmeasured: as in FleetView.
    """

    def __init__(self, workloads: Mapping[str, str] | None = None, unmeasured: UnmeasuredLoad | None = None) -> None:
        self.workloads = workloads
        self.unmeasured = unmeasured
        self._shapes: dict[Hashable, int] = {}
        self._classes: dict[Hashable, int] = {}
        self._models: dict[Model, int] = {}
        self.examples: list[GpuState] = []
        self.models: list[Model] = []
        self.stocks: list[Stock] = []

    def shape_of(self, reading: GpuByFacts, kinds: Iterable[Hashable]) -> int:
        """The number of what the facts say. kinds: of its VFs."""
        key = (frozenset(Counter(kinds).items()), *_describe(reading))
        return self._shapes.setdefault(key, len(self._shapes))

    def class_of(self, key: Hashable, card: "LeasedGpu") -> int:
        """The number of a card's class."""
        number = self._classes.get(key)
        if number is None:
            number = self._classes[key] = len(self.examples)
            self.examples.append(card.state)
            self.models.append(self._models.setdefault(model_of(card.state), len(self._models)))
            self.stocks.append(stock_of(card.state))
        return number


class LeasedGpu:
    """One GPU with its leases, which come and go. number: its class."""

    def __init__(self, reading: GpuByFacts, classes: GpuClasses) -> None:
        self.reading = reading
        self.leases: dict[str, Lease] = {}
        self.functions = set(reading.functions)
        self._classes = classes
        self._kinds = _kinds(reading.gpu)
        self._shape = classes.shape_of(reading, self._kinds.values())
        self._has_equal_functions = len(set(self._kinds.values())) <= 1
        if self._has_equal_functions:
            self._kinds.clear()
        self._unseen: list[tuple[str, int, int]] = []
        self._whole = 0
        self._state: GpuState | None = None
        self._number: int | None = None
        self.fabric_loss = 0.0

    def has_fabric_loss(self, loss: float) -> bool:
        """Note what the NVSwitch fabric of the host loses if this GPU alone is given away; whether that is news."""
        if loss == self.fabric_loss:
            return False
        self.fabric_loss = loss
        self._state = self._number = None
        return True

    @property
    def state(self) -> GpuState:
        """The GPU with everything that is taken on it."""
        if self._state is None:
            self._state = self.reading.with_leases(self.leases.values(), self._classes.workloads)
            if self.fabric_loss and self._state.fabric is not None:
                fabric = replace(self._state.fabric, loss=self.fabric_loss)
                self._state = replace(self._state, fabric=fabric)
            if added := self._unmeasured_percent():
                self._state = replace(self._state, busy_percent=self._state.busy_percent + added)
        return self._state

    @property
    def number(self) -> int:
        """The class."""
        if self._number is None:
            free: Hashable = len(self.functions)
            if not self._has_equal_functions:
                free = frozenset(Counter(self._kinds[one] for one in self.functions if one in self._kinds).items())
            looks = (self._company(), self._unmeasured_percent(), self.fabric_loss)
            key = (self._shape, tuple(self._unseen), free, bool(self.leases), self._whole > 0, looks)
            self._number = self._classes.class_of(key, self)
        return self._number

    def _company(self) -> Hashable:
        """The inputs of a prediction of throughput."""
        workloads, scheduler = self._classes.workloads, self.reading.gpu.scheduler
        if workloads is None:
            return None
        return (scheduler and scheduler.policy, neighbours_of(self.leases.values(), workloads))

    def _unmeasured_percent(self) -> float:
        unmeasured = self._classes.unmeasured
        return 0.0 if unmeasured is None else unmeasured.percent(self.leases.values(), self.reading.gpu)

    @property
    def example(self) -> GpuState:
        """A GPU of the class, perhaps another one: what the rules say of it holds for this one."""
        return self._classes.examples[self.number]

    @property
    def model(self) -> Model:
        """Its model, which requests that name none compare."""
        return self._classes.models[self.number]

    @property
    def stock(self) -> Stock:
        """Its memory that is free, and all of it."""
        return self._classes.stocks[self.number]

    @property
    def free(self) -> float:
        """How much of it is free, 0 to 1, where 1 is the fastest GPU of the fleet, empty."""
        return free_part(self.example)

    def take(self, lease: Lease) -> None:
        """Count a lease."""
        self.leases[lease.id] = lease
        self._state = self._number = None
        promised = lease.share
        kind = kind_of(promised.sharing)
        if kind.takes is Takes.CARD:
            self._whole += 1
        elif kind.takes is Takes.VGPU and promised.device not in self.reading.devices:
            bisect.insort(self._unseen, _counted(promised))
        if kind.is_on_vf:
            self.functions.add(promised.function)

    def release(self, lease: Lease) -> None:
        """Forget a lease that was counted."""
        del self.leases[lease.id]
        self._state = self._number = None
        promised = lease.share
        kind = kind_of(promised.sharing)
        if kind.takes is Takes.CARD:
            self._whole -= 1
        elif kind.takes is Takes.VGPU and promised.device not in self.reading.devices:
            self._unseen.remove(_counted(promised))
        if kind.is_on_vf and promised.function not in self.reading.functions:
            self.functions.discard(promised.function)


def _counted(promised: Share) -> tuple[str, int, int]:
    start = promised.placement_start
    return (promised.profile, promised.framebuffer_mib or 0, -1 if start is None else start)


def _kinds(gpu: Gpu) -> dict[str, Hashable]:
    """Facts of each VF for the rules: whether it can carry a vGPU, has an IOMMU group, and has that for itself."""
    members = Counter([gpu.iommu_group, *(function.iommu_group for function in gpu.vfs)])
    return {
        one.address: (
            one.driver,
            is_usable(one),
            one.iommu_group is None,
            members[one.iommu_group] == 1,
        )
        for one in gpu.vfs
    }


def _describe(reading: GpuByFacts) -> tuple[Hashable, ...]:
    gpu = reading.gpu
    return (
        reading.board.key if reading.board else (gpu.vendor_id, gpu.device_id),
        gpu.name,
        gpu.driver,
        gpu.sharing,
        gpu.types,
        gpu.total_vfs,
        gpu.memory_mib,
        gpu.mig_mode,
        gpu.mig,
        gpu.heterogeneous,
        gpu.scheduler,
        gpu.abilities,
        bool(gpu.problems),
        bool(gpu.holders),
        bool(gpu.users),
        reading.facts.iommu_active,
        tuple(kind.refuse_host(reading.facts) is None for kind in KINDS),
        consoles_of(reading.facts.libvirt_version),
        reading.facts.nvidia_driver,
        gpu.iommu_group is None,
        reading.obstacle.code if reading.obstacle else None,
        gpu.numa_node,
        reading.busy_percent,
        reading.constraints,
        reading.closed,
        reading.declared,
        reading.fabric,
        bool(gpu.displays),
        len(reading.functions),
        tuple(sorted((held.name or "", held.framebuffer_mib or -1) for held in reading.vgpus)),
    )
