# SPDX-License-Identifier: Apache-2.0
"""The display of a domain: graphics that listen nowhere, the emulated adapter, and the vGPU whose picture is shown."""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import GuestError
from vgpuctl.model.display import DisplayKind, DisplayRequest, VgpuDisplay, VideoModel
from vgpuctl.model.lease import Lease
from vgpuctl.sharing.kinds import kind_of


@dataclass(frozen=True)
class DisplayView:
    """The display of a VM that has one. kind: vnc or spice. usb_bus: of the controller that the tablet is on.

    It has no listener at all: libvirt hands a connected socket to whom its own rules allow (virDomainOpenGraphicsFD).
    """

    kind: DisplayKind
    video: VideoModel
    usb_bus: int


def display_view(display: DisplayRequest, usb_bus: int | None) -> DisplayView | None:
    """The display of a domain, None without one. A tablet comes with it, for a pointer without an offset."""
    if not display.has_picture or display.kind is None or usb_bus is None:
        return None
    return DisplayView(display.kind, display.video or VideoModel.NONE, usb_bus)


def shown_device(display: DisplayRequest, leases: Sequence[Lease], facts: HostFacts) -> int | None:
    """The index of the lease whose share the console shows, None when it shows none.

    It is the first that can be shown, and no other: libvirt takes one ramfb, and a viewer shows the first head.
    Raises GuestError when none can be, with the reason for each.
    """
    if not display.shows_vgpu or display.vgpu is None:
        return None
    shares = [lease.share for lease in leases]
    refusals = [kind_of(share.sharing).refuse_console(display.vgpu, facts.libvirt_version) for share in shares]
    if None in refusals:
        return refusals.index(None)
    reasons = [
        f"{share.profile} on {share.function}: {refusal.reason}"
        for share, refusal in zip(shares, refusals, strict=True)
        if refusal is not None
    ]
    raise GuestError(
        f"vGPU display {display.vgpu} is not possible on {leases[0].host if leases else facts.hostname}",
        context=reasons,
        hint=next((one.remedy for one in refusals if one is not None and one.remedy), None),
    )


def hostdev_display(display: DisplayRequest, *, is_shown: bool) -> VgpuDisplay:
    """How one host device is shown."""
    return display.vgpu if is_shown and display.vgpu is not None else VgpuDisplay.OFF
