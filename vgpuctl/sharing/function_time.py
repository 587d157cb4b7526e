# SPDX-License-Identifier: Apache-2.0
"""The part of a card's time that Intel's driver `xe` gives a VF, as its layout declares time slices.

Source: Linux Documentation/ABI/testing/sysfs-driver-intel-xe-sriov: `exec_quantum_ms` is the time slice of a function,
`preempt_timeout_us` the time until work that does not end with the slice is ended, 0 of both is unlimited;
`sched_priority` high takes the next slice. So the others' turns last their slices and timeouts at most, and the PF has
a turn too. A VM's own slice is never longer than the layout's (`refuse_longer`), so that no later VM takes from it.
"""

from collections.abc import Collection, Mapping
from fractions import Fraction

from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.model.layout import VfLayout
from vgpuctl.model.vgpu_params import FunctionParam, VgpuParams, split_params
from vgpuctl.sharing.declared import Declared

_QUANTUM, _TIMEOUT = FunctionParam.EXEC_QUANTUM_MS, FunctionParam.PREEMPT_TIMEOUT_US
PROMISED_BY = f"{_QUANTUM} and {_TIMEOUT}"


def part_of_vf(function: str | None, gpu: Gpu, declared: Declared) -> tuple[Fraction | None, str]:
    """The part of the card's time that a VF has at least, 0 to 1, and how; None with the reason without a promise.

    The longer of what is declared and what is read counts of the others, the shorter of the VF itself.
    """
    layout = _layout(declared)
    if gpu.pf_params is None:
        return None, "nobody documents what its driver gives to its VFs"
    if layout is None or not (_limits(dict(layout.vf_params)) and _limits(dict(layout.pf_params))):
        return None, f"its layout does not declare {PROMISED_BY} of all its functions"
    of_vfs, of_pf = dict(layout.vf_params), dict(layout.pf_params)
    now = {one.address: dict(split_params(one.vgpu_params)) for one in gpu.vfs}
    found = [dict(split_params(gpu.pf_params)), *now.values()]
    if any(one.problem is not None for one in gpu.vfs) or not all(map(_limits, found)):
        return None, f"{PROMISED_BY} of a function of it are unlimited, or could not be read"
    if any(one.get(FunctionParam.SCHED_PRIORITY) == "high" for one in (of_vfs, of_pf, *found)):
        return None, "a function of it has the priority high"
    own = min(_us(one)[0] for one in (of_vfs, now.get(function or "", of_vfs)))
    others = [one for address, one in now.items() if address != function]
    turns = _turn(of_pf, found[0]) + sum(_turn(of_vfs, one) for one in others)
    turns += sum(_us(of_vfs)) * max(0, layout.count - 1 - len(others))
    slices = f"{own // 1000} ms of a round of {(own + turns) / 1000:g} ms at most"
    return Fraction(own, own + turns), f"time slices of {1 + max(layout.count, len(gpu.vfs))} functions: {slices}"


def refuse_longer(params: VgpuParams, declared: Declared) -> str | None:
    """Say why a VM's own parameters break what the layout's promise to its neighbours; None where they do not."""
    layout = _layout(declared)
    if layout is None:
        return None
    most = dict(layout.vf_params)
    for name, value in params:
        limit = most.get(name, "0")
        if name in (_QUANTUM, _TIMEOUT) and limit != "0" and (value == "0" or int(value) > int(limit)):
            where = "" if declared.entry is None else f" ({declared.entry.origin})"
            return (
                f"its layout{where} gives each VF {name}={limit}, and {value if value != '0' else 'no limit'} is more"
            )
    return None


def shorter_slice(functions: Collection[str], gpu: Gpu) -> int | str:
    """The time slice in milliseconds that brings a VM's VFs down to their neighbours, or why there is none.

    functions: those VFs. The slice is the shortest of the other VFs. 0 is longer than any.
    """
    now = {one.address: dict(split_params(one.vgpu_params)).get(_QUANTUM) or "" for one in gpu.vfs}
    for function in functions:
        if not now.get(function, "").isdigit():
            return f"the driver of {gpu.address} has no time slice of the VF {function}"
    own = [int(now[function]) for function in functions]
    limited = [int(one) for address, one in now.items() if address not in functions and one.isdigit() and int(one)]
    if not limited:
        return f"no other VF of {gpu.address} has a time slice to go by: declare {_QUANTUM} in its layout"
    if all(own) and max(own) <= min(limited):
        return f"its VF has {max(own)} ms already, no more than its neighbours"
    return min(limited)


def _layout(declared: Declared) -> VfLayout | None:
    layout = None if declared.entry is None else declared.entry.layout
    return layout if isinstance(layout, VfLayout) else None


def _limits(params: Mapping[str, str]) -> bool:
    return all(params.get(name, "").isdigit() and int(params[name]) > 0 for name in (_QUANTUM, _TIMEOUT))


def _us(params: Mapping[str, str]) -> tuple[int, int]:
    """Slice and timeout in microseconds."""
    return int(params[_QUANTUM]) * 1000, int(params[_TIMEOUT])


def _turn(*params: Mapping[str, str]) -> int:
    """The longest turn that one of them allows, in microseconds."""
    return max(_us(one)[0] for one in params) + max(_us(one)[1] for one in params)
