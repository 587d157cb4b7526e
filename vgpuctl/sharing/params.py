# SPDX-License-Identifier: Apache-2.0
"""Parameters of vGPUs and VFs: which a share gets, and which its device, its type or its guest cannot have.

Source: NVIDIA vGPU user guide, "vGPU plugin parameters"; NVIDIA AI Enterprise 8, "Unified Memory" (full-size
time-sliced types and whole GPU instances, Linux guests, no migration); for VFs as in model/vgpu_params.py.
"""

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.catalog.names import series_of
from vgpuctl.model.layout import MigVgpuLayout, VgpuLayout
from vgpuctl.model.vgpu_params import VfParam, VgpuParam, VgpuParams, merge_params, split_params
from vgpuctl.model.vgpu_terms import VgpuTerms
from vgpuctl.sharing.declared import Declared

_WITH_UVM = {False: ("Q", "C"), True: ("C",)}
"""Series with unified memory, by whether the type sits in a MIG instance."""


def params_on(declared: Declared, own: VgpuParams) -> VgpuParams:
    """The parameters of a VM's vGPU: those of the GPU's layout, with the VM's own in place of equal names."""
    layout = None if declared.entry is None else declared.entry.layout
    given = layout.vgpu_params if isinstance(layout, VgpuLayout | MigVgpuLayout) else ()
    return merge_params(given, own)


def refuse_params(params: VgpuParams, terms: VgpuTerms, gpu: Gpu, profile: str) -> str | None:
    """Say why a vGPU of this type cannot have these parameters, None when it can. profile: the type's short name."""
    if not params:
        return None
    if gpu.vendor_id != _NVIDIA:
        return "its vGPUs take no parameters: they are of NVIDIA's vGPU plugin"
    if (VgpuParam.ENABLE_UVM, "1") in params:
        if terms.is_linux is False:
            return "enable_uvm=1 is for Linux guests only"
        refusal = refuse_unified_memory(profile, gpu)
        if refusal is not None:
            return refusal
    if terms.shows_vgpu and (VgpuParam.DISABLE_VNC, "1") in params:
        return "disable_vnc=1 takes away the picture of the vGPU that the VM's console shows"
    return None


def refuse_vf_params(params: VgpuParams, gpu: Gpu, function: str) -> str | None:
    """Say why a VF cannot have these parameters, None when it can, or when a reboot has taken it: nobody knows then."""
    vf = next((one for one in gpu.vfs if one.address == function), None)
    if vf is None:
        return None
    told = dict(split_params(vf.vgpu_params))
    missing = [name for name, _ in params if name not in told]
    if missing:
        return f"its driver {gpu.driver or '(none)'} has no {', '.join(missing)} for the VF {function}"
    return None


def of_vgpu(params: VgpuParams) -> VgpuParams:
    """Those of a VM's parameters that a vGPU takes."""
    return tuple(one for one in params if one[0] in tuple(VgpuParam))


def of_vf(params: VgpuParams) -> VgpuParams:
    """Those of a VM's parameters that a VF takes."""
    return tuple(one for one in params if one[0] in tuple(VfParam))


def refuse_unified_memory(profile: str, gpu: Gpu | None = None) -> str | None:
    """Say why a type has no unified memory, None when it may have. gpu: None for what is known of any model."""
    is_in_mig = catalog.is_mig_backed(profile)
    series = series_of(profile)
    if series is not None and series not in _WITH_UVM[is_in_mig]:
        return f"enable_uvm=1 is not for types of the series {series}, and {profile} is one"
    if is_in_mig:
        most = {one.max_per_gi for one in _known(profile, gpu)}
        if most and None not in most and 1 not in most:
            return f"enable_uvm=1 needs a type that fills its GPU instance, and several {profile} share one"
        return None
    counts = {one.max_instances for one in _known(profile, gpu)}
    offered = () if gpu is None else gpu.types
    told = {one.max_instances for one in offered if catalog.short_name(one.name) == profile and one.max_instances}
    counts = told or counts
    if counts and 1 not in counts:
        return f"enable_uvm=1 needs a type that takes the whole GPU, and a GPU takes several {profile}"
    return None


def _known(profile: str, gpu: Gpu | None) -> list[catalog.CatalogType]:
    """The catalogue's entries of a type: of this model, or of every model that has it."""
    board = None if gpu is None else catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    boards = catalog.boards_with_type(profile) if gpu is None else () if board is None else (board,)
    found = [catalog.type_by_name(one, profile) for one in boards]
    return [one for one in found if one is not None]


_NVIDIA = "10de"
