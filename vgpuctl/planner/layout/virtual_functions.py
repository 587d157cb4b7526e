# SPDX-License-Identifier: Apache-2.0
"""Number and health of a GPU's VFs. Any change removes every vGPU, every GPU instance and the mixed-size mode.

NVIDIA's VFs are created all together (reference 3.1), so sick ones are repaired by recreating all.
"""

from vgpuctl.agent.wire.steps import SetHeterogeneousMode, SetVirtualFunctions, Step
from vgpuctl.agent.wire.vf_health import PF_STUB, describe
from vgpuctl.planner.layout import shares
from vgpuctl.planner.layout.result import Phase
from vgpuctl.planner.layout.work import GpuWork, made_again


def ensure(work: GpuWork, count: int, *, phase: Phase = Phase.VIRTUAL_FUNCTIONS) -> None:
    """Bring the VFs to `count` healthy ones, and note the difference to what was found.

    Sick ones of a card that somebody uses stay until nobody does: the difference then carries the remedy.
    """
    found = len(work.gpu.vfs)
    if found != count:
        work.differ("virtual-functions", count, found)
    elif work.sick_vfs and work.vf_count == count:
        remedy = "all VFs are recreated once nobody uses one: stop or move the VMs, then run again"
        sick = describe(work.sick_vfs, found)
        work.differ("virtual-functions", f"{count} that work", sick, remedy=remedy if work.users else None)
    _change(work, count, phase)


def tear_down(work: GpuWork) -> None:
    """Take the VFs away because something below them changes; whether any are declared is asked elsewhere."""
    _change(work, 0, Phase.TEAR_DOWN)


def _change(work: GpuWork, count: int, phase: Phase) -> None:
    is_stranded = work.gpu.driver == PF_STUB and not work.is_rebuilt
    is_sick = bool(work.sick_vfs) and not work.users
    if work.vf_count == count and not is_stranded and not is_sick:
        return
    shares.tear_down(work)
    if work.vf_count != count and work.block_busy_instances("a change of the VFs would destroy"):
        return
    before = work.vf_count
    undo: list[Step] = [SetVirtualFunctions(work.address, before)]
    undo += [made_again(work.address, one) for one in work.instances]
    if work.heterogeneous and before:
        undo.append(SetHeterogeneousMode(work.address, True))
    what = f"disable the {before} VFs of {work.address}" if count == 0 else f"enable {count} VFs of {work.address}"
    if before == count and is_stranded:
        what = f"bring {work.address} back from {PF_STUB} with {count} VFs"
    elif before == count:
        what = f"make the {count} VFs of {work.address} anew: {describe(work.sick_vfs, before)}"
    work.add(phase, SetVirtualFunctions(work.address, count), what, undo=undo, disturbs=work.users)
    work.vf_count = count
    work.sick_vfs = ()
    work.instances = ()
    work.heterogeneous = None if work.heterogeneous is None else False
    work.is_rebuilt = True
