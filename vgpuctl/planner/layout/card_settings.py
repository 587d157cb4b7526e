# SPDX-License-Identifier: Apache-2.0
"""Power limit, clocks, ECC and compute mode of a card, as its layout declares them.

No step disturbs a VM. ECC counts after a reboot of the host, which is not a step: until then it is a difference.
"""

from collections.abc import Iterator
from dataclasses import replace

from vgpuctl.agent.wire.boot import BootFacts, card_of
from vgpuctl.agent.wire.steps import Step
from vgpuctl.agent.wire.tuning import (
    UNLOCKED,
    ClockStep,
    GpuTuning,
    KeepPowerLimit,
    SetComputeMode,
    SetEccMode,
    SetGpuClocks,
    SetMemoryClocks,
    SetPowerLimit,
    clocks_in_words,
    watts,
)
from vgpuctl.model.layout import DEFAULT_POWER, ComputeMode, LayoutKind, TuningBounds, TuningLayout
from vgpuctl.planner.layout.driver import is_on_vendor_driver
from vgpuctl.planner.layout.result import Phase
from vgpuctl.planner.layout.step_words import describe_clocks
from vgpuctl.planner.layout.work import GpuWork

_MOST_NAMED = 3
_BEFORE_AMPERE = ("Maxwell", "Pascal", "Volta", "Turing")
"""nvml.h, nvmlDeviceSetMemoryLockedClocks: "For Ampere or newer fully supported devices"."""


def ensure(work: GpuWork, declared: TuningLayout) -> None:
    """Set what is declared. A setting that could not be read gets no step: it is unknown, not different."""
    if declared == TuningLayout():
        return
    named = " and ".join(declared.keys)
    if not work.is_nvidia:
        work.block("wrong-vendor", f"{work.name} has no {named}: only NVML sets them", remedy="leave them out")
        return
    tuning = work.gpu.tuning
    if tuning is None:
        _explain_missing(work, declared, named)
        return
    if declared.power_limit_mw is not None:
        _ensure_power_limit(work, tuning, declared.power_limit_mw)
    if declared.gpu_clocks_mhz is not None:
        _ensure_clocks(work, tuning, SetGpuClocks(work.address, declared.gpu_clocks_mhz))
    if declared.memory_clocks_mhz is not None:
        _ensure_clocks(work, tuning, SetMemoryClocks(work.address, declared.memory_clocks_mhz))
    if declared.ecc is not None:
        _ensure_ecc(work, tuning, enabled=declared.ecc)
    if declared.compute_mode is not None:
        _ensure_compute_mode(work, tuning, declared.compute_mode)


def check_bounds(work: GpuWork, bounds: TuningBounds) -> None:
    """Refuse bounds for a controller that the board does not take, or that its present setting is outside of.

    They ask for no step: a setting that a layout leaves to a controller is as declared wherever it is in its bounds.
    """
    if bounds.power_limit_mw is None:
        return
    if not work.is_nvidia:
        work.block("wrong-vendor", f"{work.name} has no power limit to tune: only NVML sets it", remedy="leave it out")
        return
    tuning = work.gpu.tuning
    if tuning is None or _is_unknown(work, "power limit", tuning.why_unread("power_limit_mw")):
        return
    (lowest, highest), found = bounds.power_limit_mw, tuning.power_limit_mw
    if found is None:
        _block_missing(work, "power-limit", "no-power-limit", f"{watts(lowest)} to {watts(highest)}")
        return
    refusals = [one for one in map(tuning.refuse_power_limit, bounds.power_limit_mw) if one is not None]
    if refusals:
        reason = f"{work.name} at {work.address}: tune.power_limit_w: {refusals[0]}"
        work.block("power-limit-refused", reason, remedy="declare bounds that it takes")
    elif (refusal := bounds.refuse_present(found)) is not None:
        remedy = "declare bounds with that limit in them, or set another one first with power_limit_w"
        work.block("power-limit-refused", f"{work.name} at {work.address}: {refusal}", remedy=remedy)


def check_kept(work: GpuWork, boot: BootFacts | None) -> None:
    """Have the boot set a tuned power limit no more that is of another card, or outside of the layout's bounds by now.

    boot: of the host, None where nothing restores it.
    """
    kept = None if boot is None else boot.kept_limit(work.address)
    if kept is None:
        return
    bounds, gpu = work.entry.bounds, work.gpu
    is_of_card = kept.card == card_of(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    limit = watts(kept.limit_mw)
    if is_of_card and bounds.power_limit_mw is not None and bounds.refuse_present(kept.limit_mw) is None:
        if work.is_rebuilt:  # the step that takes the card from its driver loses the limit
            step = SetPowerLimit(work.address, kept.limit_mw)
            work.add(Phase.CARD_SETTINGS, step, f"limit the power of {work.address} to {limit}, as tuned", undo=(step,))
        return
    work.differ("kept-power-limit", "none", f"{limit} at boot")
    # A limit of another card cannot be written again.
    undo = (KeepPowerLimit(work.address, kept.limit_mw),) if is_of_card else ()
    summary = f"have the tuned power limit of {work.address}, {limit}, set at boot no more"
    work.add(Phase.CARD_SETTINGS, KeepPowerLimit(work.address, None), summary, undo=undo)


def boot_steps(address: str, declared: TuningLayout) -> Iterator[Step]:
    """The steps from a fresh boot. The default power limit and compute mode come with the boot, and so does ECC."""
    if declared.power_limit_mw:
        yield SetPowerLimit(address, declared.power_limit_mw)
    if declared.gpu_clocks_mhz is not None:
        yield SetGpuClocks(address, declared.gpu_clocks_mhz)
    if declared.memory_clocks_mhz is not None:
        yield SetMemoryClocks(address, declared.memory_clocks_mhz)
    if declared.compute_mode not in (None, ComputeMode.DEFAULT):
        yield SetComputeMode(address, str(declared.compute_mode))


def _explain_missing(work: GpuWork, declared: TuningLayout, named: str) -> None:
    if is_on_vendor_driver(work):
        work.block(
            "settings-unreadable",
            f"NVML does not show {work.address}, so its {named} are unknown",
            remedy="look whether NVML works on the host: `vgpuctl inspect-host`",
        )
    elif work.entry.layout.kind is LayoutKind.PASSTHROUGH:
        driver = work.gpu.driver or "no driver"
        work.leave_unknown(
            f"{named} declared, unknown while {driver} has the card: pending until NVIDIA's driver has it"
        )
    else:
        for key in declared.keys:
            work.differ(key, "as in the layout", "unknown until NVIDIA's driver has the card")
        work.later.append(f"{work.address}: {named}, once its driver has it")


def _ensure_power_limit(work: GpuWork, tuning: GpuTuning, declared_mw: int) -> None:
    is_default = declared_mw == DEFAULT_POWER
    wanted = tuning.power_default_mw if is_default else declared_mw
    unread = tuning.why_unread("power_limit_mw", *(("power_default_mw",) if is_default else ()))
    found = tuning.power_limit_mw
    if _is_unknown(work, "power limit", unread):
        return
    if found is None or wanted is None:
        _block_missing(work, "power-limit", "no-power-limit", watts(declared_mw) if declared_mw else "default")
        return
    if found != wanted:
        work.differ("power-limit", watts(wanted) + (", the default" if is_default else ""), watts(found))
    if (refusal := tuning.refuse_power_limit(wanted)) is not None:
        work.block(
            "power-limit-refused", f"{work.name} at {work.address}: {refusal}", remedy="declare one that it takes"
        )
        return
    step = SetPowerLimit(work.address, None if is_default else wanted)
    undo = SetPowerLimit(work.address, found)
    _add(work, step, undo, f"limit the power of {work.address} to {watts(wanted)}", differs=found != wanted)


def _ensure_clocks(work: GpuWork, tuning: GpuTuning, step: ClockStep) -> None:
    domain, wanted = step.domain, step.clocks_mhz
    words, found, known = clocks_in_words(wanted), tuning.locked(domain), tuning.supported(domain)
    if wanted != UNLOCKED and _is_unknown(work, f"list of {domain.name}", tuning.why_unread(domain.supported)):
        return
    if found != wanted:
        subject = "memory-clocks" if isinstance(step, SetMemoryClocks) else "gpu-clocks"
        work.differ(subject, words, clocks_in_words(found))
    if isinstance(step, SetMemoryClocks) and work.board is not None and work.board.architecture in _BEFORE_AMPERE:
        reason = f"NVML locks no memory clocks of {work.name}, a board of {work.board.architecture}"
        work.block("no-clocks", reason, remedy="leave memory_clocks_mhz out")
        return
    if wanted != UNLOCKED and not known:
        work.block("no-clocks", f"the driver of {work.address} does not tell the {domain.name} of {work.name}")
        return
    if (refusal := tuning.refuse_clocks(wanted, domain)) is not None:
        work.block("clocks-refused", f"{work.name} at {work.address}: {refusal}", remedy="declare clocks that it has")
        return
    undo = replace(step, clocks_mhz=UNLOCKED if found is None else found)
    _add(work, step, undo, describe_clocks(step), differs=found != wanted)


def _ensure_ecc(work: GpuWork, tuning: GpuTuning, *, enabled: bool) -> None:
    current, pending = tuning.ecc, tuning.ecc_pending
    if _is_unknown(work, "ECC mode", tuning.why_unread("ecc")):
        return
    if current is None or pending is None:
        _block_missing(work, "ecc", "no-ecc", _word(enabled))
        return
    if current != enabled:
        found = f"{_word(current)}, {_word(pending)} pending" if pending != current else _word(current)
        work.differ("ecc", _word(enabled), found, remedy=_until_reboot(work))
    if pending == enabled:
        return
    if current == enabled:
        work.differ("ecc", _word(enabled), f"{_word(current)}, {_word(pending)} pending")
        summary = f"call off the pending change of ECC on {work.address}"
    else:
        summary = f"switch ECC of {work.address} {'on' if enabled else 'off'}, pending until the host reboots"
    work.add(Phase.CARD_SETTINGS, SetEccMode(work.address, enabled), summary, undo=(SetEccMode(work.address, pending),))


def _ensure_compute_mode(work: GpuWork, tuning: GpuTuning, wanted: ComputeMode) -> None:
    found = tuning.compute_mode
    if _is_unknown(work, "compute mode", tuning.why_unread("compute_mode")):
        return
    if found is None:
        _block_missing(work, "compute-mode", "no-compute-mode", str(wanted))
        return
    if found != wanted:
        work.differ("compute-mode", wanted, found)
    step, undo = SetComputeMode(work.address, str(wanted)), SetComputeMode(work.address, found)
    _add(work, step, undo, f"set the compute mode of {work.address} to {wanted}", differs=found != wanted)


def _add(work: GpuWork, step: Step, undo: Step, summary: str, *, differs: bool) -> None:
    """Add a step. One that takes the card from its driver loses the setting, so it is then set again."""
    if differs or work.is_rebuilt:
        work.add(Phase.CARD_SETTINGS, step, summary, undo=(undo,))


def _is_unknown(work: GpuWork, what: str, problem: str | None) -> bool:
    if problem is not None:
        work.leave_unknown(f"its {what} is declared and unknown: {problem}")
    return problem is not None


def _block_missing(work: GpuWork, subject: str, code: str, declared: str) -> None:
    work.differ(subject, declared, "none")
    what = subject.replace("-", " ").replace("ecc", "ECC")
    work.block(
        code, f"{work.name} at {work.address} has no {what}, or its driver does not tell it", remedy="leave it out"
    )


def _until_reboot(work: GpuWork) -> str:
    names = [f"VM {one.vm} of {one.tenant}" if one.vm else f"the vGPU {one.device}" for one in work.users]
    told = ", ".join(names[:_MOST_NAMED])
    if len(names) > _MOST_NAMED:
        told += f" and {len(names) - _MOST_NAMED} more"
    return "it counts after a reboot of the host" + (f", which ends {told}" if told else "")


def _word(enabled: bool) -> str:
    return "enabled" if enabled else "disabled"
