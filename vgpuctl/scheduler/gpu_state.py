# SPDX-License-Identifier: Apache-2.0
"""One GPU as the scheduler sees it: what the host showed last, and what the store has promised since.

A device is free only if neither says that it is taken.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, HostFacts, VgpuType
from vgpuctl.model.host_constraints import NO_GPU_CONSTRAINTS, NO_HOST_CONSTRAINTS, GpuConstraints, HostConstraints
from vgpuctl.model.layout import GpuLayout
from vgpuctl.model.lease import Lease, Share
from vgpuctl.model.occupancy import existing_vgpus
from vgpuctl.model.sharing import Sharing
from vgpuctl.sharing.declared import UNDECLARED, Declared, declared_of
from vgpuctl.sharing.matching import fits
from vgpuctl.sharing.whole_card import Obstacle, find_obstacle


@dataclass(frozen=True)
class HeldVgpu:
    """One vGPU that counts on the GPU. seen: the host showed it, so its `creatable` already counts it.

    start: where it is expected to lie in mixed-size mode, of one that was not seen.
    """

    name: str | None
    framebuffer_mib: int | None
    seen: bool
    start: int | None = None


@dataclass(frozen=True)
class GpuState:
    """One GPU with everything that is taken on it.

    functions: VFs that carry or serve something, are promised, or could not be read.
    lease_holders: the VMs that hold a lease on this GPU. whole: the VM that holds the whole card. given: profiles
    given to the VM that is being placed. busy_percent: measured utilisation, 0 where nobody measured.
    constraints: of the inventory, with the host's labels. declared: what its layout says of it. obstacle: why it
    cannot be handed out as a whole.
    """

    host: str
    facts: HostFacts
    gpu: Gpu
    board: catalog.Board | None
    vgpus: tuple[HeldVgpu, ...]
    functions: frozenset[str]
    lease_holders: tuple[str, ...]
    whole: str | None
    given: tuple[str, ...] = ()
    busy_percent: float = 0.0
    constraints: GpuConstraints = NO_GPU_CONSTRAINTS
    declared: Declared = UNDECLARED
    obstacle: Obstacle | None = None

    @property
    def title(self) -> str:
        """The model's name for people."""
        return self.gpu.name or (self.board.name if self.board else "GPU")

    @property
    def nodes(self) -> tuple[int, ...]:
        """Its NUMA node, if that is known."""
        return () if self.gpu.numa_node is None else (self.gpu.numa_node,)

    def with_share(self, added: Share) -> "GpuState":
        """The state after one more share of the VM that is being placed."""
        state = replace(
            self,
            lease_holders=(*self.lease_holders, "this VM"),
            given=(*self.given, added.profile),
            whole="this VM" if added.sharing is Sharing.PASSTHROUGH else self.whole,
        )
        if added.sharing.needs_virtual_functions():
            state = replace(state, functions=self.functions | {added.function})
        if added.sharing.is_vgpu():
            held = HeldVgpu(added.profile, added.framebuffer_mib, seen=False, start=added.placement_start)
            state = replace(state, vgpus=(*self.vgpus, held))
        return state


@dataclass(frozen=True)
class GpuReading:
    """What the facts alone say of one GPU, worked out once: leases come and go on top of it.

    vgpus: those the host showed. functions: VFs that carry or serve something. devices: what a lease must name to be
    one of those vGPUs.
    """

    host: str
    facts: HostFacts
    gpu: Gpu
    board: catalog.Board | None
    vgpus: tuple[HeldVgpu, ...]
    functions: frozenset[str]
    devices: frozenset[str]
    busy_percent: float = 0.0
    constraints: GpuConstraints = NO_GPU_CONSTRAINTS
    declared: Declared = UNDECLARED
    obstacle: Obstacle | None = None

    def with_leases(self, leases: Collection[Lease]) -> GpuState:
        """The GPU with everything that is promised on it, too."""
        vgpus = list(self.vgpus)
        functions = set(self.functions)
        whole = None
        for lease in leases:
            promised = lease.share
            if promised.sharing is Sharing.PASSTHROUGH:
                whole = _name(lease)
                continue
            if promised.sharing.is_vgpu() and promised.device not in self.devices:
                start = promised.placement_start
                vgpus.append(HeldVgpu(promised.profile, promised.framebuffer_mib, seen=False, start=start))
            if promised.sharing.needs_virtual_functions():
                functions.add(promised.function)
        return GpuState(
            host=self.host,
            facts=self.facts,
            gpu=self.gpu,
            board=self.board,
            vgpus=tuple(vgpus),
            functions=frozenset(functions),
            lease_holders=tuple(_name(lease) for lease in leases),
            whole=whole,
            busy_percent=self.busy_percent,
            constraints=self.constraints,
            declared=self.declared,
            obstacle=self.obstacle,
        )


def read_gpu(
    host: str,
    facts: HostFacts,
    gpu: Gpu,
    *,
    busy_percent: float = 0.0,
    constraints: HostConstraints = NO_HOST_CONSTRAINTS,
    declared: Sequence[GpuLayout] = (),
) -> GpuReading:
    """Work out what the facts and the host's layout say of a GPU. declared: the entries of the layout."""
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    found = existing_vgpus(gpu)
    on_functions = {one.function for one in found if one.function != gpu.address}
    return GpuReading(
        host=host,
        facts=facts,
        gpu=gpu,
        board=board,
        vgpus=tuple(_held(one.type_id, gpu, board) for one in found),
        functions=frozenset(on_functions | {one.address for one in gpu.vfs if one.holders or one.problem}),
        devices=frozenset(on_functions | {one.mdev_uuid for one in found if one.mdev_uuid}),
        busy_percent=busy_percent,
        constraints=constraints_of(gpu, constraints) if constraints is not NO_HOST_CONSTRAINTS else NO_GPU_CONSTRAINTS,
        declared=declared_of(gpu, facts.gpus, declared),
        obstacle=find_obstacle(gpu, facts),
    )


def constraints_of(gpu: Gpu, constraints: HostConstraints) -> GpuConstraints:
    """What the entries that match a GPU say together; where two give a value, the narrower one counts."""
    labels = constraints.labels
    quarantine, speed = None, None
    for entry in sorted(constraints.gpus, key=lambda one: one.match.rank):
        if fits(entry.match, gpu):
            labels |= entry.labels
            quarantine = entry.quarantine or quarantine
            speed = entry.speed or speed
    return GpuConstraints(labels=labels, quarantine=quarantine, speed=speed)


def _held(type_id: str | None, gpu: Gpu, board: catalog.Board | None) -> HeldVgpu:
    if type_id is None:
        return HeldVgpu(None, None, seen=True)
    known = catalog.type_by_id(board, type_id) if board else None
    offered = next((one for one in gpu.types if _number(one.type_id) == _number(type_id)), None)
    if offered is not None and offered.framebuffer_mib is not None:
        return HeldVgpu(catalog.short_name(offered.name), offered.framebuffer_mib, seen=True)
    if known is not None:
        return HeldVgpu(known.name, known.fb_mib, seen=True)
    return HeldVgpu(offered.name if offered else None, None, seen=True)


def framebuffer_of(offered: VgpuType, board: catalog.Board | None) -> int | None:
    """The framebuffer of a type: as the host says, else as the catalogue knows it."""
    if offered.framebuffer_mib is not None or board is None:
        return offered.framebuffer_mib
    known = catalog.type_by_name(board, catalog.short_name(offered.name))
    return known.fb_mib if known else None


def max_instances_of(offered: VgpuType, board: catalog.Board | None) -> int | None:
    """How many of a type an empty GPU takes: as the host says, else as the catalogue knows it."""
    if offered.max_instances is not None or board is None:
        return offered.max_instances
    known = catalog.type_by_name(board, catalog.short_name(offered.name))
    return known.max_instances if known else None


def _number(type_id: str) -> str:
    return type_id.removeprefix("nvidia-")


def _name(lease: Lease) -> str:
    return f"{lease.tenant}/{lease.vm_name}"
