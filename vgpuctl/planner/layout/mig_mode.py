# SPDX-License-Identifier: Apache-2.0
"""MIG on or off (reference 5.1). A change that is pending after its step is committed by a reset."""

from vgpuctl.agent.wire.steps import DestroyGpuInstance, ResetGpu, SetMigMode
from vgpuctl.planner.layout import shares, virtual_functions
from vgpuctl.planner.layout.driver import is_on_vendor_driver
from vgpuctl.planner.layout.result import Phase
from vgpuctl.planner.layout.work import GpuWork, made_again

_RESET_FOR_MIG = frozenset({"Ampere"})
"""Where the driver resets an idle GPU to switch MIG, and leaves the mode pending for a user that the host may not show
(reference 5.1). Later GPUs switch without a reset, or refuse."""


def ensure(work: GpuWork, *, enabled: bool) -> None:
    """Bring the MIG mode to `enabled`, current and pending, tearing down first what stands in its way."""
    mig = work.gpu.mig
    if mig is None:
        if enabled:
            _explain_missing(work)
        return
    if (mig.current, mig.pending) == (enabled, enabled):
        return
    work.differ("mig-mode", _word(enabled), _found(mig.current, mig.pending))
    if mig.current == enabled:  # the other mode waits for a reset: call it off
        work.add(
            Phase.MIG_MODE,
            SetMigMode(work.address, enabled),
            f"call off the pending change of MIG on {work.address}",
            undo=(SetMigMode(work.address, mig.pending),),
        )
        return
    _tear_down(work)
    if mig.pending == enabled:
        summary = f"reset {work.address}, so that its pending MIG mode ({_word(enabled)}) counts"
        work.add(Phase.MIG_MODE, ResetGpu(work.address), summary, disturbs=work.users, needs_reset=True)
    else:
        work.add(
            Phase.MIG_MODE,
            SetMigMode(work.address, enabled),
            f"switch MIG of {work.address} {'on' if enabled else 'off'}",
            undo=(SetMigMode(work.address, mig.current),),
            disturbs=work.users,
            needs_reset=_resets(work),
        )
    work.is_rebuilt = True


def _tear_down(work: GpuWork) -> None:
    """Take away GPU instances and VFs: the driver refuses a change of MIG over them (reference 3.1, 5.3)."""
    shares.tear_down(work)
    if work.block_busy_instances("a change of MIG would destroy"):
        return
    if work.vf_count:
        virtual_functions.tear_down(work)
        return
    for one in work.instances:
        work.add(
            Phase.TEAR_DOWN,
            DestroyGpuInstance(work.address, one.profile, one.start),
            f"destroy the GPU instance {one.profile} at {one.start}:{one.size} of {work.address}",
            undo=(made_again(work.address, one),),
            disturbs=work.users,
        )
    work.instances = ()


def _explain_missing(work: GpuWork) -> None:
    if not work.is_nvidia or (work.board is not None and not work.board.mig.capable):
        work.block("no-mig", f"{work.name} has no MIG")
    elif is_on_vendor_driver(work):
        work.differ("mig-mode", _word(True), "not told by the driver")
        work.block(
            "mig-unreadable",
            f"the driver of {work.address} tells nothing of MIG",
            remedy="look whether NVML works on the host: `vgpuctl inspect-host`",
        )
    else:
        work.differ("mig-mode", _word(True), "unknown")
        work.later.append(f"{work.address}: MIG, once its driver has it")
        if _resets(work):
            work.need_reset()


def _resets(work: GpuWork) -> bool:
    return work.board is None or work.board.architecture in _RESET_FOR_MIG


def _word(enabled: bool) -> str:
    return "enabled" if enabled else "disabled"


def _found(current: bool, pending: bool) -> str:
    return _word(current) if current == pending else f"{_word(current)}, {_word(pending)} pending"
