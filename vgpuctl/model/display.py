# SPDX-License-Identifier: Apache-2.0
"""The display of a VM (reference vdi-guests, section 2)."""

from dataclasses import dataclass
from enum import StrEnum


class DisplayKind(StrEnum):
    """The protocol of the console's picture. It never listens on a network: `vgpuctl view` reaches it over SSH."""

    NONE = "none"
    VNC = "vnc"
    SPICE = "spice"


class VideoModel(StrEnum):
    """The emulated graphics adapter; none where the vGPU is to be the only one."""

    NONE = "none"
    BOCHS = "bochs"
    VGA = "vga"
    VIRTIO = "virtio"
    QXL = "qxl"


class VgpuDisplay(StrEnum):
    """The vGPU's picture in the console; ramfb: also before the guest's driver is loaded."""

    OFF = "off"
    ON = "on"
    RAMFB = "ramfb"


@dataclass(frozen=True)
class DisplayRequest:
    """The display. All three are None for a VM without one; `catalog.guest_display` decides what a user left out."""

    kind: DisplayKind | None = None
    video: VideoModel | None = None
    vgpu: VgpuDisplay | None = None

    @property
    def has_picture(self) -> bool:
        """True if the VM has a display that `vgpuctl view` can show."""
        return self.kind not in (None, DisplayKind.NONE)

    @property
    def shows_vgpu(self) -> bool:
        """True if the console shows the picture of a vGPU."""
        return self.vgpu not in (None, VgpuDisplay.OFF)


class ConsolePicture(StrEnum):
    """The picture of the console, as `vgpuctl set-console` names it.

    vgpu: the vGPU's alone, which is then the guest's only and primary adapter. emulated: of an emulated adapter, for
    installing and for rescue. none: no picture.
    """

    VGPU = "vgpu"
    EMULATED = "emulated"
    NONE = "none"
