# SPDX-License-Identifier: Apache-2.0
"""Settings for all vGPUs of a GPU: equal or mixed sizes (reference 3.3), scheduler (3.4), allowed types."""

from collections.abc import Sequence

from vgpuctl.agent.wire.steps import SetHeterogeneousMode, SetVgpuScheduler, Step
from vgpuctl.catalog import boards_with_type, short_name
from vgpuctl.model.layout import MigVgpuLayout, SchedulerLayout, SchedulerPolicy, SizeMode, VgpuLayout
from vgpuctl.planner.layout import shares
from vgpuctl.planner.layout.result import Phase
from vgpuctl.planner.layout.work import GpuWork
from vgpuctl.sharing.kinds import existing_vgpus
from vgpuctl.sharing.types_together import mixes_sizes


def ensure_size_mode(work: GpuWork, mode: SizeMode | None) -> None:
    """Switch mixed-size mode on or off for the whole GPU. None leaves it as it is, unless new VFs reset it."""
    wanted = _wanted(mode, work.gpu.heterogeneous)
    if wanted is None:
        return
    if wanted and mixes_sizes(work.gpu, work.board) is False:
        work.block("no-mixed-size", f"{work.name} has no mixed-size mode", remedy="declare equal-size")
        return
    if work.gpu.heterogeneous is None and not work.is_rebuilt:
        if wanted:
            work.differ("size-mode", SizeMode.MIXED, "not told by the driver")
            work.block("no-mixed-size", f"the driver of {work.address} offers no mixed-size mode")
        return
    if work.gpu.heterogeneous != wanted and (wanted or work.gpu.heterogeneous is not None):
        work.differ("size-mode", mode, _word(work.gpu.heterogeneous))
    if bool(work.heterogeneous) == wanted:
        return
    was_rebuilt = work.is_rebuilt
    shares.tear_down(work)
    work.add(
        _phase(mixed=wanted),
        SetHeterogeneousMode(work.address, wanted),
        f"switch mixed-size mode of {work.address} {'on' if wanted else 'off'}",
        undo=(SetHeterogeneousMode(work.address, not wanted),),
        disturbs=() if was_rebuilt else work.users,
    )
    work.heterogeneous = wanted


def ensure_instance_size_modes(work: GpuWork, mode: SizeMode | None, starts: Sequence[tuple[str, int]]) -> None:
    """The same for every GPU instance, by the slot it begins at (boards with several vGPUs to an instance)."""
    if mode is None:
        return
    wanted = mode is SizeMode.MIXED
    found = {one.start: one.heterogeneous for one in work.instances}
    for profile, start in starts:
        if bool(found.get(start)) == wanted:
            continue
        if start in found:
            shares.tear_down(work)
            work.differ("size-mode", mode, f"{_word(found[start])} in {profile} at {start}")
        work.add(
            _phase(mixed=wanted),
            SetHeterogeneousMode(work.address, wanted, start),
            f"switch mixed-size mode of {profile} at {start} of {work.address} {'on' if wanted else 'off'}",
            undo=(SetHeterogeneousMode(work.address, not wanted, start),),
            disturbs=work.users if start in found else (),
        )


def refuse_contradiction(work: GpuWork, layout: VgpuLayout | MigVgpuLayout) -> None:
    """Block where mixed sizes and fixed-share would meet because the layout declares one and leaves the other as it is.

    The driver refuses that for ever (reference 3.3). A layout that declares both ways is refused when it is read.
    """
    declared, found = layout.scheduler, work.gpu.scheduler
    is_mixed = work.gpu.heterogeneous or any(one.heterogeneous for one in work.instances)
    is_fixed = found is not None and not SchedulerPolicy(found.policy).works_with_mixed_size()
    wants_fixed = declared is not None and not declared.policy.works_with_mixed_size()
    if wants_fixed and is_mixed and layout.size_mode is None:
        left, remedy = "mixed sizes", f"declare `size_mode: {SizeMode.EQUAL}` too"
    elif layout.size_mode is SizeMode.MIXED and is_fixed and declared is None:
        left, remedy = "its scheduler", "declare another `scheduler` too"
    else:
        return
    reason = f"mixed sizes do not work with {SchedulerPolicy.FIXED_SHARE}, and the layout leaves {work.address} {left}"
    work.block("mixed-with-fixed-share", reason, remedy=remedy)


def ensure_scheduler(work: GpuWork, declared: SchedulerLayout | None) -> None:
    """Set the scheduler. A declared policy without a time slice is content with any slice."""
    if declared is None:
        return
    found = work.gpu.scheduler
    is_same = (
        found is not None and found.policy == declared.policy and declared.time_slice_us in (None, found.time_slice_us)
    )
    if is_same:
        return
    told = describe_scheduler(found.policy, found.time_slice_us) if found else "not told by the driver"
    work.differ("scheduler", describe_scheduler(declared.policy, declared.time_slice_us), told)
    if found is None and not work.is_rebuilt:
        work.block(
            "scheduler-unreadable",
            f"the driver of {work.address} does not tell its vGPU scheduler",
            remedy="set it at boot: RmPVMRL in /etc/modprobe.d (docs/layout.md)",
        )
        return
    undo: tuple[Step, ...] = ()
    if found is not None:
        undo = (SetVgpuScheduler(work.address, found.policy, found.time_slice_us),)
    running = tuple(one for one in work.users if one.is_running)
    work.add(
        Phase.SCHEDULER,
        SetVgpuScheduler(work.address, str(declared.policy), declared.time_slice_us),
        f"set the vGPU scheduler of {work.address} to {describe_scheduler(declared.policy, declared.time_slice_us)}",
        undo=undo,
        disturbs=running,
    )


def check_types(work: GpuWork, allowed: Sequence[str]) -> None:
    """Note vGPUs of types that are not allowed; they are left alone, for they may be anybody's.

    An allowed type that neither the GPU nor the catalogue knows is noted too; one of another model is not.
    """
    if not allowed:
        return
    names = {one.type_id: short_name(one.name) for one in work.gpu.types}
    for name in allowed:
        if names and not work.is_rebuilt and name not in names.values() and not boards_with_type(name):
            work.differ("types", name, "no such type", remedy=shares.not_offered(work, name))
    for vgpu in existing_vgpus(work.gpu):
        name = shares.name_of(vgpu, work.gpu)
        if name not in allowed:
            work.differ(
                "types",
                ", ".join(allowed),
                f"{name} on {vgpu.vfio_device}",
                remedy="it goes with its VM; vgpuctl does not delete it",
            )


def check_no_vgpus(work: GpuWork) -> None:
    """Note vGPUs on a GPU that is declared to have none; idle shares that a layout made are deleted elsewhere."""
    found = existing_vgpus(work.gpu)
    if found:
        remedy = "they go with their VMs; vgpuctl does not delete them" if work.users else None
        work.differ("vgpus", "none", ", ".join(one.vfio_device for one in found), remedy=remedy)


def _phase(*, mixed: bool) -> Phase:
    return Phase.MIXED_SIZES if mixed else Phase.EQUAL_SIZES


def _wanted(mode: SizeMode | None, found: bool | None) -> bool | None:
    return found if mode is None else mode is SizeMode.MIXED


def _word(heterogeneous: bool | None) -> str:
    return str(SizeMode.MIXED if heterogeneous else SizeMode.EQUAL)


def describe_scheduler(policy: str, time_slice_us: int | None) -> str:
    """A scheduler in words: `equal-share with 4 ms`."""
    return str(policy) if time_slice_us is None else f"{policy} with {time_slice_us / 1000:g} ms"
