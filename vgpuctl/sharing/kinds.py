# SPDX-License-Identifier: Apache-2.0
"""The sharing kinds. They are asked in this order, which is that of the reference's first table, passthrough first."""

import functools
from collections.abc import Mapping

from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.display import VgpuDisplay
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.layout import LayoutKind
from vgpuctl.model.lease import Share
from vgpuctl.model.vgpu_params import params_text
from vgpuctl.sharing import mdev, passthrough, plain_vf, vf_profile
from vgpuctl.sharing.kind import SharingKind, Takes, VgpuKind
from vgpuctl.sharing.occupancy import ExistingVgpu, LiveGpu, vf_at

VGPU_KINDS: tuple[VgpuKind, ...] = (vf_profile.KIND, mdev.ON_VF, mdev.ON_CARD)
KINDS: tuple[SharingKind, ...] = (passthrough.KIND, *VGPU_KINDS, plain_vf.KIND)
VGPU_LAYOUTS: frozenset[LayoutKind] = frozenset[LayoutKind]().union(*(kind.layouts for kind in VGPU_KINDS))

_BY_NAME: Mapping[str, SharingKind] = {kind.sharing: kind for kind in KINDS}
_CARD_KINDS = tuple(kind for kind in KINDS if kind.takes is Takes.CARD)
_CARD_NAMES = frozenset(str(kind.sharing) for kind in _CARD_KINDS)
_FUNCTION_KINDS = tuple(kind for kind in KINDS if kind.takes is Takes.FUNCTION)
_FUNCTION_NAMES = frozenset(kind.sharing for kind in _FUNCTION_KINDS)
_VGPU_BY_NAME: Mapping[str, VgpuKind] = {kind.sharing: kind for kind in VGPU_KINDS}


@functools.lru_cache(maxsize=256)
def consoles_of(libvirt_version: str | None) -> tuple[bool, ...]:
    """Return which pictures of shares libvirt of this version shows: by kind, and by `on` and `ramfb`."""
    how = (VgpuDisplay.ON, VgpuDisplay.RAMFB)
    return tuple(kind.refuse_console(display, libvirt_version) is None for kind in KINDS for display in how)


def kind_of(sharing: Sharing) -> SharingKind:
    """The kind of this name."""
    return _BY_NAME[sharing]


def vgpu_kind_of(vgpu: ExistingVgpu) -> VgpuKind:
    """The kind of a vGPU that exists or is wanted."""
    return _VGPU_BY_NAME[vgpu.sharing]


def vgpu_kind_on(gpu: Gpu) -> VgpuKind | None:
    """The kind of vGPU that the GPU offers now, None when it offers none."""
    return next((kind for kind in VGPU_KINDS if kind.sharing in gpu.sharing), None)


def takes_card(share: Share) -> bool:
    """True if the share is a whole card."""
    return _BY_NAME[share.sharing].takes is Takes.CARD


def takes_function(share: Share) -> bool:
    """True if the share is one of a card's equal functions."""
    return _BY_NAME[share.sharing].takes is Takes.FUNCTION


def asks_for_card(request: GpuRequest) -> bool:
    """True if a whole card is asked for by the name of its kind."""
    return request.sharing is not None and _BY_NAME[request.sharing].takes is Takes.CARD


def without_cards(sharing: tuple[str, ...]) -> tuple[str, ...]:
    """The kinds among those that a GPU offers that hand out a part of it."""
    return tuple(one for one in sharing if one not in _CARD_NAMES)


def offers_card(gpu: Gpu) -> bool:
    """True if the GPU can be handed out as a whole now."""
    return any(one in _CARD_NAMES for one in gpu.sharing)


def offers_functions(gpu: Gpu) -> bool:
    """True if the GPU's equal functions can be handed out now."""
    return any(kind.sharing in gpu.sharing for kind in _FUNCTION_KINDS)


def asks_for_function(request: GpuRequest) -> bool:
    """True if one of a GPU's equal functions is asked for."""
    return request.sharing in _FUNCTION_NAMES


def whole_requests() -> list[GpuRequest]:
    """A request for each way to get a whole card."""
    return [_request(kind) for kind in _CARD_KINDS]


def function_requests(gpu: Gpu) -> list[GpuRequest]:
    """A request for each way to get one of the GPU's equal functions now."""
    return [_request(kind) for kind in _FUNCTION_KINDS if kind.sharing in gpu.sharing]


def _request(kind: SharingKind) -> GpuRequest:
    return GpuRequest(str(kind.sharing), sharing=kind.sharing)


def existing_vgpus(gpu: Gpu) -> list[ExistingVgpu]:
    """Every vGPU that exists on the GPU, whoever made it."""
    return [vgpu for kind in VGPU_KINDS for vgpu in kind.existing(gpu)]


def params_found(held: Share, gpu: Gpu) -> str | None:
    """The parameters that a share's device had when it was read; None without any, or without the device.

    Of a VF, those that vgpuctl has set.
    """
    if takes_function(held):
        vf = vf_at(gpu, held.function)
        return None if vf is None else params_text(plain_vf.set_params(vf)) or None
    return next((one.params for one in existing_vgpus(gpu) if one.vfio_device == held.vfio_device), None) or None


def has_mdevs_on_vfs(gpu: Gpu) -> bool:
    """True if the GPU's vGPUs are mdevs on VFs, which another kernel may turn into something else."""
    return str(mdev.ON_VF.sharing) in gpu.sharing


def live_gpu(gpu: Gpu, facts: HostFacts) -> LiveGpu:
    """A GPU of these facts with its vGPUs."""
    return LiveGpu(gpu, facts, tuple(existing_vgpus(gpu)))
