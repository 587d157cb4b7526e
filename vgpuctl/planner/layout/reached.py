# SPDX-License-Identifier: Apache-2.0
"""A host as it will be read once GPUs of it stand as declared, with no vGPU on them: what a VM could get there then."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, HostFacts, MigFacts, SchedulerFacts, VgpuType, VirtualFunction
from vgpuctl.model.layout import (
    HostLayout,
    MigLayout,
    MigVgpuLayout,
    OwnLayout,
    PassthroughLayout,
    SizeMode,
    VfLayout,
    VgpuLayout,
    WantedInstance,
)
from vgpuctl.model.vgpu_params import VfParam, params_text
from vgpuctl.planner.layout.driver import VFIO_PCI
from vgpuctl.planner.layout.function_params import with_declared
from vgpuctl.planner.mig_geometry import name_in, table_of_board
from vgpuctl.sharing.kind import Takes
from vgpuctl.sharing.kinds import KINDS, VGPU_KINDS
from vgpuctl.sharing.matching import entries_for

_AS_CARD = tuple(str(kind.sharing) for kind in KINDS if kind.takes is Takes.CARD)
_BY_FUNCTION = tuple(str(kind.sharing) for kind in KINDS if kind.takes is Takes.FUNCTION)


def reached(facts: HostFacts, layout: HostLayout, addresses: Collection[str]) -> HostFacts:
    """The facts after the steps of these GPUs. Types are the host's where it tells them now, else the catalogue's."""
    return replace(
        facts,
        gpus=tuple(_reached(gpu, layout) if gpu.address in addresses else gpu for gpu in facts.gpus),
    )


def _reached(gpu: Gpu, layout: HostLayout) -> Gpu:
    declared = entries_for(gpu, layout.gpus)[0].layout
    empty = replace(
        gpu,
        driver=gpu.driver if gpu.driver != VFIO_PCI else "nvidia",
        sharing=_AS_CARD,
        vfs=(),
        types=(),
        mdevs=(),
        holders=(),
        heterogeneous=None,
        mig=None if gpu.mig is None else replace(gpu.mig, current=False, pending=False, instances=()),
        mig_mode=None if gpu.mig_mode is None else "disabled",
    )
    if isinstance(declared, VgpuLayout | MigVgpuLayout) and declared.scheduler is not None:
        wanted = declared.scheduler
        empty = replace(empty, scheduler=SchedulerFacts(str(wanted.policy), wanted.time_slice_us))
    if isinstance(declared, VgpuLayout):
        is_mixed = gpu.heterogeneous if declared.size_mode is None else declared.size_mode is SizeMode.MIXED
        return _with_vgpus(replace(empty, heterogeneous=is_mixed), gpu, ())
    if isinstance(declared, MigVgpuLayout):
        return _with_vgpus(_with_mig(empty), gpu, declared.instances)
    if isinstance(declared, OwnLayout):
        return replace(_with_mig(empty) if declared.instances else empty, sharing=())
    if isinstance(declared, MigLayout):
        return replace(_with_mig(empty), sharing=())
    if isinstance(declared, VfLayout):
        told = None if gpu.pf_params is None else params_text(tuple((name, "0") for name in VfParam))
        vfs = tuple(replace(one, vgpu_params=told, first_params=None) for one in _functions(gpu, declared.count))
        return with_declared(replace(empty, sharing=_BY_FUNCTION, vfs=vfs), declared)
    if isinstance(declared, PassthroughLayout) and declared.driver is not None:
        return replace(empty, driver=declared.driver)
    return empty


def _with_mig(gpu: Gpu) -> Gpu:
    return replace(gpu, mig=replace(gpu.mig or MigFacts(True, True), current=True, pending=True), mig_mode="enabled")


def _with_vgpus(empty: Gpu, gpu: Gpu, instances: Sequence[WantedInstance]) -> Gpu:
    """The GPU with its VFs and the types that it offers: time-sliced ones, or those of MIG instances."""
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    interface = board.interface if board is not None else None
    on_vfs = interface == "sriov-vf" or (interface is None and gpu.total_vfs > 0)
    kinds = [str(kind.sharing) for kind in VGPU_KINDS if kind.is_on_vf == on_vfs]
    kind = next((one for one in kinds if one in gpu.sharing), kinds[0])
    functions = _functions(gpu, gpu.total_vfs) if on_vfs else ()
    types = [one for one in _types(gpu) if catalog.is_mig_backed(one.name) == (empty.mig_mode == "enabled")]
    offered = [_offered(one, empty, instances, most=len(functions) if on_vfs else None) for one in types]
    return replace(
        empty, sharing=(kind,), vfs=functions, types=tuple(one for one in offered if one.creatable or not instances)
    )


def _offered(one: VgpuType, gpu: Gpu, instances: Sequence[WantedInstance], *, most: int | None) -> VgpuType:
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    known = None if board is None else catalog.type_by_name(board, catalog.short_name(one.name))
    count = known.max_instances if known is not None else one.max_instances or 0
    starts: tuple[int, ...] | None = None
    size = one.placement_size
    if known is not None and board is not None and known.gi_profile is not None:
        table = table_of_board(board)
        names = [one.profile if table is None else name_in(table, board, one.profile) for one in instances]
        count = names.count(known.gi_profile) * (known.max_per_gi or 1)
    elif gpu.heterogeneous:
        places = None if board is None else catalog.mixed_size_table(board)
        # Without the places of a size the count of equal sizes is the best that is known.
        if known is not None and places is not None and known.placement_size in places.sizes:
            size, starts = known.placement_size, places.sizes[known.placement_size]
            count = len(starts)
    return replace(
        one,
        creatable=count if most is None else min(count, most),
        creatable_starts=starts,
        placement_size=size,
    )


def _types(gpu: Gpu) -> list[VgpuType]:
    """The host's and those of the catalogue that the host does not tell in its present state."""
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    told = {catalog.short_name(one.name) for one in gpu.types}
    known = () if board is None else catalog.types_of(board)
    return [
        *gpu.types,
        *(
            VgpuType(str(one.type_id), one.name, one.full_name or one.name, one.fb_mib, one.max_instances, 0)
            for one in known
            if one.name not in told
        ),
    ]


def _functions(gpu: Gpu, count: int) -> tuple[VirtualFunction, ...]:
    """The VFs with nothing on them; those that are not there yet have names of their own."""
    there = [
        replace(one, current_type=None, mdev_uuid=None, holders=(), problem=None, vgpu_params=None)
        for one in gpu.vfs[:count]
    ]
    if len(gpu.vfs) != count:
        there = [
            VirtualFunction(f"{gpu.address}-vf{number}", number, "nvidia", number, offers_types=True)
            for number in range(count)
        ]
    return tuple(there)
