# SPDX-License-Identifier: Apache-2.0
"""One GPU as the scheduler sees it: what the host showed last, and what the store has promised since.

A device is free only if neither says that it is taken.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.model.host_constraints import NO_GPU_CONSTRAINTS, NO_HOST_CONSTRAINTS, GpuConstraints, HostRules
from vgpuctl.model.lease import Lease, Share
from vgpuctl.scheduler.performance.measurement import UNLABELLED, Neighbour
from vgpuctl.sharing.declared import UNDECLARED, Declared, declared_of
from vgpuctl.sharing.fabric import OnFabric, on_fabric
from vgpuctl.sharing.gate import closed_functions, constraints_of, refuse_closed_gpu
from vgpuctl.sharing.gpu_state import GpuState, HeldVgpu
from vgpuctl.sharing.kind import Takes
from vgpuctl.sharing.kinds import kind_of, live_gpu
from vgpuctl.sharing.offer import Refusal
from vgpuctl.sharing.type_names import likely_name
from vgpuctl.sharing.whole_card import find_obstacle


@dataclass(frozen=True)
class GpuByFacts:
    """One GPU by its facts alone, computed once; leases come and go on top of it.

    vgpus: those the host showed. functions: VFs that carry or serve something, or are in quarantine. devices: what a
    lease must name to be one of those vGPUs.
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
    obstacle: Refusal | None = None
    closed: Refusal | None = None
    fabric: OnFabric | None = None

    def with_leases(self, leases: Collection[Lease], workloads: Mapping[str, str] | None = None) -> GpuState:
        """The GPU with everything that is promised on it, too. workloads: by VM, where a policy predicts throughput."""
        vgpus = list(self.vgpus)
        functions = set(self.functions)
        whole = None
        for lease in leases:
            promised = lease.share
            kind = kind_of(promised.sharing)
            if kind.takes is Takes.CARD:
                whole = _name(lease)
            elif kind.takes is Takes.VGPU and promised.device not in self.devices:
                vgpus.append(_promised(promised))
            if kind.is_on_vf:
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
            neighbours=() if workloads is None else self._neighbours(leases, workloads),
            constraints=self.constraints,
            declared=self.declared,
            obstacle=self.obstacle,
            closed=self.closed,
            fabric=self.fabric,
        )

    def _neighbours(self, leases: Collection[Lease], workloads: Mapping[str, str]) -> tuple[Neighbour, ...]:
        """The vGPUs of the leases, and those that no lease explains."""
        shown = Counter(held.name or "" for held in self.vgpus)
        found = neighbours_of(leases, workloads)
        shown.subtract(lease.share.profile for lease in leases if lease.share.device in self.devices)
        return tuple(sorted([*found, *((UNLABELLED, name) for name in (+shown).elements())]))


def neighbours_of(leases: Collection[Lease], workloads: Mapping[str, str]) -> tuple[Neighbour, ...]:
    """Workload class and profile of the vGPUs among the leases, sorted. workloads: by VM; others are unlabelled."""
    vgpus = [lease for lease in leases if kind_of(lease.share.sharing).takes is Takes.VGPU]
    return tuple(sorted((workloads.get(one.vm_uuid, UNLABELLED), one.share.profile) for one in vgpus))


def with_share(state: GpuState, added: Share) -> GpuState:
    """The state after one more share of the VM that is being placed."""
    kind = kind_of(added.sharing)
    return replace(
        state,
        lease_holders=(*state.lease_holders, "this VM"),
        given=(*state.given, added.profile),
        whole="this VM" if kind.takes is Takes.CARD else state.whole,
        functions=state.functions | {added.function} if kind.is_on_vf else state.functions,
        vgpus=(*state.vgpus, _promised(added)) if kind.takes is Takes.VGPU else state.vgpus,
    )


def read_gpu(rules: HostRules, facts: HostFacts, gpu: Gpu, *, busy_percent: float = 0.0) -> GpuByFacts:
    """Work out what the facts and the rules of its host say of a GPU."""
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    live = live_gpu(gpu, facts)
    found = live.vgpus
    on_functions = {one.function for one in found if one.function != gpu.address}
    return GpuByFacts(
        host=rules.host,
        facts=facts,
        gpu=gpu,
        board=board,
        vgpus=tuple(_held(one.type_id, gpu, board) for one in found),
        functions=frozenset(
            on_functions
            | {one.address for one in gpu.vfs if one.holders or one.problem}
            | {*closed_functions(gpu, rules)}
        ),
        devices=frozenset(on_functions | {one.mdev_uuid for one in found if one.mdev_uuid}),
        busy_percent=busy_percent,
        constraints=NO_GPU_CONSTRAINTS
        if rules.constraints is NO_HOST_CONSTRAINTS
        else constraints_of(gpu, rules.constraints),
        declared=declared_of(gpu, facts, rules.declared),
        obstacle=find_obstacle(live),
        closed=refuse_closed_gpu(gpu, rules),
        fabric=on_fabric(gpu, facts),
    )


def _promised(share: Share) -> HeldVgpu:
    return HeldVgpu(share.profile, share.framebuffer_mib, seen=False, start=share.placement_start)


def _held(type_id: str | None, gpu: Gpu, board: catalog.Board | None) -> HeldVgpu:
    if type_id is None:
        return HeldVgpu(None, None, seen=True)
    offered = next((one for one in gpu.types if one.type_id == type_id), None)
    if offered is not None and offered.framebuffer_mib is not None:
        return HeldVgpu(catalog.short_name(offered.name), offered.framebuffer_mib, seen=True)
    name = likely_name(gpu, type_id)
    known = catalog.type_by_name(board, name) if board is not None and name is not None else None
    if known is not None:
        return HeldVgpu(known.name, known.fb_mib, seen=True)
    return HeldVgpu(offered.name if offered else None, None, seen=True)


def _name(lease: Lease) -> str:
    return f"{lease.tenant}/{lease.vm_name}"
