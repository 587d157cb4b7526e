# SPDX-License-Identifier: Apache-2.0
"""A small Linux guest that draws on its framebuffer: a line of text, and a red band at a known place."""

from pathlib import Path

from vgpuctl_lab.initramfs import Archive, busybox
from vgpuctl_lab.kernel import Kernel

TEXT = "vgpuctl small guest"
WIDTH, HEIGHT = 800, 600
BAND = range(400, 450)
DRAWN = "the picture is drawn"
# VESA mode 0x114 has 800x600 pixels of 16 bits (5 red, 6 green, 5 blue); the kernel counts from 0x200.
ARGUMENTS = "console=ttyS0 console=tty0 vga=0x314 quiet vt.global_cursor_default=0"
_RED = (0xF800).to_bytes(2, "little")
_INIT = f"""#!/bin/busybox sh
/bin/busybox mount -t devtmpfs none /dev
/bin/busybox clear >/dev/tty0
/bin/busybox echo -n "{TEXT}" >/dev/tty0
/bin/busybox dd if=/band of=/dev/fb0 bs={WIDTH * 2} seek={BAND.start} 2>/dev/null
echo "{DRAWN}" >/dev/ttyS0
while true; do /bin/busybox sleep 1000; done
"""


def kernel_image(kernel: Kernel) -> Path:
    """The kernel with its own start-up code, which asks the firmware for the framebuffer."""
    return kernel.modules.parents[2] / "boot" / f"vmlinuz-{kernel.release}"


def initramfs() -> bytes:
    """Its only files."""
    archive = Archive()
    archive.add_folder("dev")
    archive.add_character_device("dev/console", 5, 1)
    archive.add("bin/busybox", busybox(), 0o755)
    archive.add("band", _RED * WIDTH * len(BAND))
    archive.add("init", _INIT.encode(), 0o755)
    return archive.finished()
