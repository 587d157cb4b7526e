# SPDX-License-Identifier: Apache-2.0
"""Parameters of a layout for the PF and the VFs of Intel's cards: time and memory (reference open-gpus, 6.1).

A VM's own parameter stays while the VM has its VF; the layout's is what the VF gets back then.
"""

from collections.abc import Sequence
from dataclasses import replace

from vgpuctl.agent.wire.facts import Gpu, VirtualFunction
from vgpuctl.agent.wire.sharing import SetFunctionParams
from vgpuctl.model.gpu_positions import placed_gpus
from vgpuctl.model.layout import VfLayout
from vgpuctl.model.lease import Lease
from vgpuctl.model.units import MIB, exact_mib
from vgpuctl.model.vgpu_params import FunctionParam, VgpuParams, params_text, show_function_param, split_params
from vgpuctl.model.vm import VmRequest
from vgpuctl.planner.layout.result import Disturbed, Phase, PlannedStep
from vgpuctl.planner.layout.work import GpuWork
from vgpuctl.sharing.compute import refuse_compute
from vgpuctl.sharing.declared import Declared
from vgpuctl.sharing.function_time import refuse_longer
from vgpuctl.sharing.occupancy import vf_at
from vgpuctl.sharing.params import of_vf

_SUBJECT = "function-params"
_KERNEL = "the driver xe has them since Linux 6.19, vram_quota of VFs of discrete cards since 7.0"
_UNEQUAL = "differs"
"""What the agent reads where the card's tiles have different values."""


def ensure(work: GpuWork, layout: VfLayout) -> None:
    """Have each function's parameters, and note the differences. Of VMs that run, other memory alone disturbs one."""
    if work.obstacles or not (layout.vf_params or layout.pf_params):
        return
    if work.gpu.pf_params is None and not work.is_rebuilt:
        declared = ", ".join(sorted({name for name, _ in (*layout.vf_params, *layout.pf_params)}))
        work.differ(_SUBJECT, declared, "not told by the driver")
        work.block(
            "no-vf-params",
            f"the driver {work.gpu.driver or '(none)'} of {work.address} has no {declared}",
            remedy=_KERNEL,
        )
        return
    if not _memory_fits(work, layout):
        return
    _of_function(work, None, layout.pf_params, dict(split_params(work.gpu.pf_params)))
    there = {one.number: one for one in work.gpu.vfs} if len(work.gpu.vfs) == layout.count else {}
    for number in sorted(range(layout.count), key=lambda one: _shrinks_last(there.get(one), layout.vf_params)):
        if work.obstacles:
            return
        _of_function(work, number, layout.vf_params, _standing(there.get(number)), vf=there.get(number))


def params_steps(address: str, layout: VfLayout, count: int) -> list[SetFunctionParams]:
    """The steps from a fresh boot. count: of the VFs that are there."""
    of_pf = [SetFunctionParams(address, None, params_text(layout.pf_params))] if layout.pf_params else []
    numbers = range(count) if layout.vf_params else ()
    return [*of_pf, *(SetFunctionParams(address, number, params_text(layout.vf_params)) for number in numbers)]


def rolled_back_with(broken: PlannedStep, done: Sequence[PlannedStep]) -> list[PlannedStep]:
    """The steps to undo where one fails, in order: its card's functions divide time and memory among each other."""
    if not isinstance(broken.step, SetFunctionParams):
        return []
    of_card = [one for one in done if one.gpu == broken.gpu and isinstance(one.step, SetFunctionParams)]
    return [one for one in reversed(of_card) if one.undo]


def with_declared(gpu: Gpu, layout: VfLayout) -> Gpu:
    """The card as it reads once each function has the layout's parameters, and VFs with a VM's own keep those."""
    if gpu.pf_params is None:
        return gpu
    of_vfs, of_pf = dict(layout.vf_params), dict(layout.pf_params)
    vfs = []
    for vf in gpu.vfs:
        own = dict(split_params(vf.first_params))
        declared = {name: value for name, value in of_vfs.items() if name not in own}
        params = dict(split_params(vf.vgpu_params)) | declared
        vfs.append(replace(vf, problem=None, vgpu_params=params_text(tuple(params.items()))))
    pf_params = params_text(tuple((dict(split_params(gpu.pf_params)) | of_pf).items()))
    return replace(gpu, pf_params=pf_params, vfs=tuple(vfs))


def refuse_for_vm(request: VmRequest, lease: Lease, gpu: Gpu, declared: Declared) -> str | None:
    """Say which promise to a VM the layout breaks while the VM keeps its VF; None where it breaks none.

    A VM whose VF is not there, or goes with another count of VFs, has to be placed again in any case.
    """
    layout = None if declared.entry is None else declared.entry.layout
    if not isinstance(layout, VfLayout) or gpu.pf_params is None:
        return None
    if len(gpu.vfs) != layout.count or vf_at(gpu, lease.share.function) is None:
        return None
    longer = refuse_longer(of_vf(request.vgpu_params), declared)
    if longer is not None:
        return f"it could not start again: {longer}"
    wanted = {one.position: one for one in placed_gpus(request.gpus)}.get(lease.index)
    refusal = wanted and refuse_compute(wanted, lease.share, with_declared(gpu, layout), declared, lease.host)
    return refusal.reason if refusal else None


def _of_function(
    work: GpuWork, number: int | None, wanted: VgpuParams, found: dict[str, str], *, vf: VirtualFunction | None = None
) -> None:
    step = SetFunctionParams(work.address, number, params_text(wanted))
    # A VF that is made by an earlier step has the driver's own values.
    is_new = not found
    missing = [] if is_new else [name for name, _ in wanted if name not in found]
    if missing:
        reason = f"the driver {work.gpu.driver} of {work.address} has no {', '.join(missing)} for {step.target}"
        work.differ(_SUBJECT, params_text(wanted), f"no {', '.join(missing)}")
        work.block("no-vf-params", reason, remedy=_KERNEL)
        return
    differing = [(name, value) for name, value in wanted if found.get(name) != value]
    if not differing:
        return
    if not is_new:
        told = tuple((name, found[name]) for name, _ in differing)
        where = "the PF" if number is None else f"VF {number}"
        work.differ(_SUBJECT, f"{_words(tuple(differing))} of {where}", _words(told))
    back = tuple((name, found[name]) for name, _ in differing if found.get(name) not in (None, _UNEQUAL))
    undo = (SetFunctionParams(work.address, number, params_text(back)),) if back else ()
    disturbs = _in_the_way(work, vf, () if is_new else tuple(differing))
    work.add(Phase.SCHEDULER, step, f"set {_words(wanted)} of {step.target}", undo=undo, disturbs=disturbs)


def _standing(vf: VirtualFunction | None) -> dict[str, str]:
    """The parameters of a VF while no VM asks for others."""
    return {} if vf is None else dict(split_params(vf.vgpu_params)) | dict(split_params(vf.first_params))


def _shrinks_last(vf: VirtualFunction | None, wanted: VgpuParams) -> tuple[bool, int]:
    """The VFs whose memory shrinks come first, so that others can have it."""
    has, needs = _standing(vf).get(FunctionParam.VRAM_QUOTA, "0"), dict(wanted).get(FunctionParam.VRAM_QUOTA, "0")
    number = 0 if vf is None else vf.number
    return (not has.isdigit() or int(has) <= int(needs)), number


def _in_the_way(work: GpuWork, vf: VirtualFunction | None, differing: VgpuParams) -> tuple[Disturbed, ...]:
    """Who has to be gone before a VF gets other memory: its guest's driver has read the size."""
    if vf is None or not vf.holders or FunctionParam.VRAM_QUOTA not in dict(differing):
        return ()
    return tuple(one for one in work.users if one.device == vf.address)


def _memory_fits(work: GpuWork, layout: VfLayout) -> bool:
    quota = int(dict(layout.vf_params).get(FunctionParam.VRAM_QUOTA, "0")) // MIB
    memory = work.gpu.memory_mib or (work.board.memory_mib if work.board else 0)
    if not memory or quota * layout.count <= memory:
        return True
    reason = (
        f"{layout.count} VFs with {exact_mib(quota)} each need {exact_mib(quota * layout.count)}, and {work.name} at"
        f" {work.address} has {exact_mib(memory)}"
    )
    work.block("too-much-memory", reason, remedy="declare a smaller vram_quota, or fewer VFs")
    return False


def _words(params: VgpuParams) -> str:
    return ", ".join(map(show_function_param, params))
