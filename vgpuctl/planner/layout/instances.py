# SPDX-License-Identifier: Apache-2.0
"""The MIG instances of one GPU (reference 5.2), by the geometry planner, and the compute instances in them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from vgpuctl.agent.wire.facts import GpuInstance
from vgpuctl.agent.wire.steps import CreateGpuInstance, DestroyGpuInstance, Step
from vgpuctl.model.layout import WantedInstance
from vgpuctl.planner.layout import shares
from vgpuctl.planner.layout.result import Disturbed, Phase
from vgpuctl.planner.layout.work import GpuWork, made_again
from vgpuctl.planner.mig_geometry import (
    GeometryPlan,
    Impossible,
    describe,
    describe_compute,
    name_in,
    parts_of,
    plan_geometry,
    table_of,
    table_of_board,
)


def ensure(work: GpuWork, wanted: Sequence[WantedInstance], *, compute_instance: bool) -> tuple[tuple[str, int], ...]:
    """Bring the instances to `wanted`; the answer is (profile, start) of each as it will be, where starts are known.

    compute_instance: each gets its compute instances (the host's own use, not vGPUs).
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
    wanted = [replace(one, profile=name_in(table, work.board, one.profile)) for one in wanted]
    _note_difference(work, wanted)
    places = [WantedInstance(one.profile, one.start) for one in wanted]
    plan = plan_geometry(table, places, work.instances)
    disturbs: tuple[Disturbed, ...] = ()
    if isinstance(plan, Impossible) and plan.in_use:
        shares.tear_down(work)
        disturbs = work.users
        plan = plan_geometry(table, places, work.instances)
    if isinstance(plan, Impossible):
        work.block(plan.code, str(plan))
        return ()
    if mig is None:  # its driver does not have it yet
        return ()
    if not table.knows_placements and any(one.compute for one in wanted):
        work.block("mig-parts", f"no source knows where instances of {work.name} begin, so they cannot be parted")
        return ()
    if plan.destroy:
        shares.tear_down(work)
    for one in plan.destroy:
        work.add(
            Phase.INSTANCES,
            DestroyGpuInstance(work.address, one.profile, one.start),
            f"destroy the GPU instance {one.profile} at {one.start}:{one.size} of {work.address}",
            undo=(made_again(work.address, one),),
            disturbs=disturbs,
        )
    kept, created = _shared_out(wanted, plan)
    if compute_instance:
        for one, compute in zip(plan.keep, kept, strict=True):
            _ensure_compute(work, one, compute)
    counts = Counter(one.profile for one in plan.keep)
    for placed, compute in zip(plan.create, created, strict=True):
        counts[placed.profile] += 1
        start, count = (placed.start, 1) if table.knows_placements else (None, counts[placed.profile])
        work.add(
            Phase.INSTANCES,
            CreateGpuInstance(work.address, placed.profile, start, count, compute_instance, compute),
            f"create the GPU instance {placed if start is not None else placed.profile} on {work.address}"
            + (f" with {describe_compute(placed.profile, compute)}" if compute else ""),
            undo=(DestroyGpuInstance(work.address, placed.profile, start, count - 1),),
        )
    work.is_rebuilt = work.is_rebuilt or bool(plan.destroy or plan.create)
    work.instances = plan.keep
    if not table.knows_placements:
        return ()
    starts = [(one.profile, one.start) for one in plan.keep] + [(one.profile, one.start) for one in plan.create]
    return tuple(sorted(starts, key=lambda one: one[1]))


def _shared_out(
    wanted: Sequence[WantedInstance], plan: GeometryPlan
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """The compute instances of each instance that is kept, and of each that is created: whoever has them keeps them."""
    left: dict[str, list[tuple[int, ...]]] = {}
    for one in wanted:
        left.setdefault(one.profile, []).append(one.compute)
    kept: dict[int, tuple[int, ...]] = {}
    for number, there in enumerate(plan.keep):
        found = _compute_of(there)
        if found in left[there.profile]:
            left[there.profile].remove(found)
            kept[number] = found
    for number, there in enumerate(plan.keep):
        if number not in kept:
            kept[number] = left[there.profile].pop(0)
    return [kept[number] for number in range(len(plan.keep))], [left[one.profile].pop(0) for one in plan.create]


def _compute_of(one: GpuInstance) -> tuple[int, ...] | None:
    """The parts of an instance as a layout has them: none where a compute instance fills it; None where it has none."""
    return parts_of(one.profile, one.compute) if one.compute_instances else None


def _ensure_compute(work: GpuWork, one: GpuInstance, wanted: tuple[int, ...]) -> None:
    """Have the compute instances wanted in an instance that stays."""
    found = _compute_of(one)
    if found == wanted:
        return
    declared = describe_compute(one.profile, wanted)
    told = "no compute instance" if found is None else describe_compute(one.profile, found)
    work.differ("mig-compute", f"{declared} at {one.start}", told)
    if one.in_use:
        reason = f"the compute instances of {one.profile} at {one.start}:{one.size} cannot change while it is in use"
        work.block("mig-in-use", reason)
        return
    undo: tuple[Step, ...] = (made_again(work.address, one),)
    if found is None:
        undo = (DestroyGpuInstance(work.address, one.profile, one.start), *undo)
    work.add(
        Phase.INSTANCES,
        CreateGpuInstance(work.address, one.profile, one.start, 1, True, wanted),
        f"have {declared} in the GPU instance at {one.start}:{one.size} of {work.address}",
        undo=undo,
    )


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
