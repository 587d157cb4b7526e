# SPDX-License-Identifier: Apache-2.0
"""What a VM shows, and to whom (reference vdi-guests, section 2)."""

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
    """Whether the console shows the vGPU's picture; ramfb: also before the guest's driver is loaded."""

    OFF = "off"
    ON = "on"
    RAMFB = "ramfb"


@dataclass(frozen=True)
class DisplayRequest:
    """The display. kind, video, vgpu: None as the operating system's profile and the GPU's sharing kind say."""

    kind: DisplayKind | None = None
    video: VideoModel | None = None
    vgpu: VgpuDisplay | None = None
