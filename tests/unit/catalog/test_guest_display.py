# SPDX-License-Identifier: Apache-2.0
"""The display of a VM: what is decided for a user, and what is refused."""

import pytest

from vgpuctl.catalog.guest_display import console_display
from vgpuctl.catalog.guest_os import with_os_defaults
from vgpuctl.errors import UsageError
from vgpuctl.model.display import ConsolePicture, DisplayKind, DisplayRequest, VgpuDisplay, VideoModel
from vgpuctl.model.gpu_request import parse_gpu_request
from vgpuctl.model.vm import Firmware, VmRequest

VGPU = (parse_gpu_request("A40-8Q"),)


def decided(
    kind: str | None = None,
    video: str | None = None,
    vgpu: str | None = None,
    *,
    os: str | None = None,
    has_gpu: bool = True,
    params: tuple[tuple[str, str], ...] = (),
) -> DisplayRequest:
    asked = DisplayRequest(
        None if kind is None else DisplayKind(kind),
        None if video is None else VideoModel(video),
        None if vgpu is None else VgpuDisplay(vgpu),
    )
    request = VmRequest("web-1", "acme", VGPU if has_gpu else (), os=os, display=asked, vgpu_params=params)
    once = with_os_defaults(request)
    assert with_os_defaults(once) == once
    return once.display


@pytest.mark.parametrize(
    ("asked", "os", "shown"),
    [
        ((None, None, None), None, None),
        ((None, None, None), "debian-12", None),
        ((None, None, None), "win11", ("vnc", "bochs", "off")),
        (("vnc", None, None), None, ("vnc", "vga", "off")),
        (("vnc", None, None), "debian-12", ("vnc", "bochs", "off")),
        (("spice", "qxl", None), None, ("spice", "qxl", "off")),
        ((None, "virtio", None), None, ("vnc", "virtio", "off")),
        ((None, None, "on"), None, ("vnc", "vga", "on")),
        ((None, None, "ramfb"), "win11", ("vnc", "none", "ramfb")),
        (("vnc", "none", None), None, ("vnc", "none", "ramfb")),
        ((None, "none", None), None, ("none", "none", "off")),
        (("none", None, None), "win11", ("none", "none", "off")),
    ],
)
def test_what_a_user_left_out_is_decided(
    asked: tuple[str | None, str | None, str | None], os: str | None, shown: tuple[str, str, str] | None
) -> None:
    display = decided(*asked, os=os)
    assert (display == DisplayRequest()) if shown is None else (display.kind, display.video, display.vgpu) == shown


@pytest.mark.parametrize(
    ("asked", "has_gpu", "said"),
    [
        (("none", "bochs", None), True, "video bochs needs a display"),
        (("none", None, "on"), True, "the picture of a vGPU needs a display"),
        (("vnc", "qxl", None), True, "qxl is for SPICE"),
        (("vnc", "none", "off"), True, "it would show nothing"),
        (("vnc", "none", None), False, "it would show nothing"),
        (("vnc", "bochs", "on"), False, "the VM has no GPU"),
        (("vnc", "bochs", "ramfb"), True, "video bochs would be a second one"),
    ],
)
def test_a_display_that_contradicts_itself_is_refused(
    asked: tuple[str | None, str | None, str | None], has_gpu: bool, said: str
) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        decided(*asked, has_gpu=has_gpu)
    assert caught.value.hint


def test_a_parameter_that_takes_the_picture_away_is_refused() -> None:
    with pytest.raises(UsageError, match="disable_vnc=1 takes away"):
        decided("vnc", "bochs", "on", params=(("disable_vnc", "1"),))
    assert decided("vnc", "bochs", "on", params=(("disable_vnc", "0"),)).vgpu is VgpuDisplay.ON


def test_a_console_is_chosen_and_kept() -> None:
    request = VmRequest("web-1", "acme", VGPU, firmware=Firmware.UEFI)
    for console in ConsolePicture:
        display = console_display(request, console)
        assert with_os_defaults(VmRequest("web-1", "acme", VGPU, display=display)).display == display
    assert console_display(request, ConsolePicture.EMULATED).video is VideoModel.BOCHS
    spice = VmRequest("web-1", "acme", VGPU, display=DisplayRequest(DisplayKind.SPICE, VideoModel.QXL, VgpuDisplay.OFF))
    assert console_display(spice, ConsolePicture.EMULATED) == spice.display
    assert console_display(spice, ConsolePicture.VGPU).kind is DisplayKind.SPICE
