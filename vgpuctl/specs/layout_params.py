# SPDX-License-Identifier: Apache-2.0
"""The rules about the parameters of a layout's vGPUs that need no host, and the keys for those of Intel's functions."""

from collections.abc import Mapping, Sequence

from vgpuctl.model.layout import LayoutKind
from vgpuctl.model.vgpu_params import (
    FunctionParam,
    VgpuParam,
    VgpuParams,
    parse_function_param,
    show_function_param,
)
from vgpuctl.sharing.params import refuse_unified_memory
from vgpuctl.specs.field import Field, Text
from vgpuctl.specs.value import Value


def check_params(params: VgpuParams, types: Sequence[str], keys: Mapping[str, Value]) -> None:
    """Refuse a parameter that is there twice or that no vGPU has, and unified memory for types that have none.

    types: the declared ones.
    """
    names = [name for name, _ in params]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise keys["vgpu_params"].refuse(f"has {name} twice")
        if name not in tuple(VgpuParam):
            raise keys["vgpu_params"].refuse(f"has {name}, which a VF has and no vGPU")
    if (VgpuParam.ENABLE_UVM, "1") not in params:
        return
    for name in types:
        refusal = refuse_unified_memory(name)
        if refusal is not None:
            raise keys["vgpu_params"].refuse(f"contradicts the types: {refusal}")


def check_function_params(of_vfs: VgpuParams, of_pf: VgpuParams, keys: Mapping[str, Value]) -> None:
    """Refuse a parameter of functions that is there twice, and memory of the PF, which has what its VFs leave."""
    for key, params in (("vf_params", of_vfs), ("pf_params", of_pf)):
        names = [name for name, _ in params]
        for number, name in enumerate(names):
            if name in names[:number]:
                raise keys[key].refuse(f"has {name} twice")
    if FunctionParam.VRAM_QUOTA in dict(of_pf):
        raise keys["pf_params"].refuse("has vram_quota, which a VF has and no PF")


FUNCTION_FIELDS = (
    Field(
        "vf_params",
        Text(parse_function_param, show_function_param),
        "Parameters of each VF of an Intel card (docs/vgpu-parameters.md); a VM's own win",
        metavar="NAME=VALUE",
        is_list=True,
        at_least_one=True,
        example="[exec_quantum_ms=20, preempt_timeout_us=1000]",
        kinds=(LayoutKind.VF,),
    ),
    Field(
        "pf_params",
        Text(parse_function_param, show_function_param),
        "Parameters of the PF of an Intel card, which the host itself works with",
        metavar="NAME=VALUE",
        is_list=True,
        at_least_one=True,
        example="[exec_quantum_ms=20]",
        kinds=(LayoutKind.VF,),
    ),
)
