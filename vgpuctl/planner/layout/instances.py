# SPDX-License-Identifier: Apache-2.0
"""The MIG instances of one GPU (reference 5.2), by the geometry planner."""

from collections import Counter
from collections.abc import Sequence

from vgpuctl.agent.wire.steps import CreateGpuInstance, DestroyGpuInstance
from vgpuctl.model.layout import WantedInstance
from vgpuctl.planner.layout import slices
from vgpuctl.planner.layout.result import Phase
from vgpuctl.planner.layout.work import GpuWork
from vgpuctl.planner.mig_geometry import Impossible, describe, plan_geometry, table_of, table_of_board


def ensure(work: GpuWork, wanted: Sequence[WantedInstance], *, compute_instance: bool) -> tuple[tuple[str, int], ...]:
    """Bring the instances to `wanted`; the answer is (profile, start) of each as it will be, where starts are known.

    compute_instance: each new one gets a compute instance that fills it (the host's own use, not vGPUs).
    """
    mig = work.gpu.mig
    if mig is None and work.board is None:
        return ()
    table = table_of(mig, work.board, name=work.name) if mig else None
    if table is None and work.board is not None:
        table = table_of_board(work.board)
    if table is None:
        work.block("mig-profiles-unknown", f"no source knows the MIG profiles of {work.name}")
        return ()
    _note_difference(work, wanted)
    plan = plan_geometry(table, wanted, work.instances)
    if isinstance(plan, Impossible):
        work.block(plan.code, str(plan), disturbs=work.users if plan.in_use else ())
        return ()
    if mig is None:  # its driver does not have it yet
        return ()
    if plan.destroy:
        slices.tear_down(work)
    for one in plan.destroy:
        remade = CreateGpuInstance(work.address, one.profile, one.start, compute_instance=one.compute_instances > 0)
        work.add(
            Phase.INSTANCES,
            DestroyGpuInstance(work.address, one.profile, one.start),
            f"destroy the GPU instance {one.profile} at {one.start}:{one.size} of {work.address}",
            undo=(remade,),
        )
    counts = Counter(one.profile for one in plan.keep)
    for placed in plan.create:
        counts[placed.profile] += 1
        start, count = (placed.start, 1) if table.knows_placements else (None, counts[placed.profile])
        work.add(
            Phase.INSTANCES,
            CreateGpuInstance(work.address, placed.profile, start, count, compute_instance),
            f"create the GPU instance {placed if start is not None else placed.profile} on {work.address}",
            undo=(DestroyGpuInstance(work.address, placed.profile, start, count - 1),),
        )
    work.is_rebuilt = work.is_rebuilt or bool(plan.destroy or plan.create)
    if not table.knows_placements:
        return ()
    starts = [(one.profile, one.start) for one in plan.keep] + [(one.profile, one.start) for one in plan.create]
    return tuple(sorted(starts, key=lambda one: one[1]))


def _note_difference(work: GpuWork, wanted: Sequence[WantedInstance]) -> None:
    """Compare with what was read, not with what the steps so far leave."""
    found = work.gpu.mig.instances if work.gpu.mig else ()
    if Counter(one.profile for one in wanted) != Counter(one.profile for one in found):
        work.differ("mig-geometry", describe(wanted), describe(one.profile for one in found))
        return
    at = {(one.profile, one.start) for one in found}
    elsewhere = [
        f"{one.profile} at {one.start}"
        for one in wanted
        if one.start is not None and (one.profile, one.start) not in at
    ]
    if elsewhere:
        where = ", ".join(f"{one.profile} at {one.start}" for one in found)
        work.differ("mig-placement", ", ".join(elsewhere), where)
