# SPDX-License-Identifier: Apache-2.0
"""The display of a VM: what a user left out is decided, and what cannot be is refused (docs/display.md)."""

from dataclasses import replace

from vgpuctl.errors import UsageError
from vgpuctl.model.display import ConsolePicture, DisplayKind, DisplayRequest, VgpuDisplay, VideoModel
from vgpuctl.model.vgpu_params import VgpuParam
from vgpuctl.model.vm import Firmware, VmRequest

NO_DISPLAY = DisplayRequest()
_HEADLESS = DisplayRequest(DisplayKind.NONE, VideoModel.NONE, VgpuDisplay.OFF)


def with_display_defaults(request: VmRequest, *, is_windows: bool) -> VmRequest:
    """The request with its display decided; it may be repeated. A VM that asks for none has none, except on Windows.

    Raises UsageError for a display that contradicts itself.
    """
    asked = request.display
    if asked == NO_DISPLAY and not is_windows:
        return request
    kind = asked.kind or (DisplayKind.NONE if asked.video is VideoModel.NONE and not asked.shows_vgpu else None)
    kind = kind or DisplayKind.VNC
    if kind is DisplayKind.NONE:
        video = asked.video or VideoModel.NONE
        decided = DisplayRequest(kind, video, asked.vgpu or VgpuDisplay.OFF)
    else:
        default = VideoModel.NONE if asked.vgpu is VgpuDisplay.RAMFB else _emulated(request)
        video = asked.video or default
        is_vgpu_alone = video is VideoModel.NONE and bool(request.gpus)
        decided = DisplayRequest(kind, video, asked.vgpu or (VgpuDisplay.RAMFB if is_vgpu_alone else VgpuDisplay.OFF))
    decided_request = replace(request, display=decided)
    refuse_contradiction(decided_request)
    return decided_request


def console_display(request: VmRequest, console: ConsolePicture) -> DisplayRequest:
    """The display that shows this console. The protocol stays where there is one."""
    if console is ConsolePicture.NONE:
        return _HEADLESS
    kind = request.display.kind if request.display.has_picture else None
    if console is ConsolePicture.VGPU:
        return DisplayRequest(kind or DisplayKind.VNC, VideoModel.NONE, VgpuDisplay.RAMFB)
    video = request.display.video
    if video in (None, VideoModel.NONE):
        video = _emulated(request)
    return DisplayRequest(kind or DisplayKind.VNC, video, VgpuDisplay.OFF)


def refuse_contradiction(request: VmRequest) -> None:
    """Raise UsageError for a display that no VM can have, whatever its host and GPU are."""
    found = _contradiction(request)
    if found is not None:
        raise UsageError(f"display of VM {request.name}: {found[0]}", hint=found[1])


def _contradiction(request: VmRequest) -> tuple[str, str] | None:
    display = request.display
    video = display.video or VideoModel.NONE
    if not display.has_picture:
        if video is not VideoModel.NONE:
            return f"video {video} needs a display to be seen", "give --display vnc too, or leave the video out"
        if display.shows_vgpu:
            return "the picture of a vGPU needs a display to be seen", "give --display vnc too, or --vgpu-display off"
        return None
    if video is VideoModel.QXL and display.kind is not DisplayKind.SPICE:
        return "video qxl is for SPICE", "give --display spice, or --video bochs"
    if not display.shows_vgpu:
        if video is VideoModel.NONE:
            return "it would show nothing: no emulated adapter, and no vGPU", "give --video bochs or --vgpu-display on"
        return None
    if not request.gpus:
        return f"vGPU display {display.vgpu} needs a vGPU, and the VM has no GPU", "give --gpu, or --vgpu-display off"
    if display.vgpu is VgpuDisplay.RAMFB and video is not VideoModel.NONE:
        return (
            f"ramfb makes the vGPU the primary adapter, and video {video} would be a second one",
            "give --video none, or --vgpu-display on",
        )
    if (VgpuParam.DISABLE_VNC, "1") in request.vgpu_params:
        return (
            "the parameter disable_vnc=1 takes away the picture that --vgpu-display shows",
            "leave out one of them",
        )
    return None


def _emulated(request: VmRequest) -> VideoModel:
    """The adapter that every guest shows something on: bochs has no legacy VGA, which a BIOS wants."""
    return VideoModel.BOCHS if request.firmware is Firmware.UEFI else VideoModel.VGA
