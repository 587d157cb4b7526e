# SPDX-License-Identifier: Apache-2.0
"""How large the guest's 64-bit MMIO window must be, so that the firmware can map every BAR of its GPUs."""

from collections.abc import Sequence

from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.model.lease import Share
from vgpuctl.model.units import MIB
from vgpuctl.sharing.kind import Takes
from vgpuctl.sharing.kinds import kind_of

_GIB = 2**30

# q35's `pci-hole64-size` when nobody sets it (QEMU hw/pci-host/q35.c, Q35_PCI_HOST_HOLE64_SIZE_DEFAULT).
DEFAULT_WINDOW_GIB = 32
# Above it the window does not fit below 40 address bits beside the RAM, so the guest needs the host's real width.
LARGE_WINDOW_GIB = 256
# TCG has 40 address bits and refuses any other number (QEMU target/i386/cpu.c, TCG_PHYS_ADDR_BITS).
TCG_WINDOW_GIB = 256


def window_gib(devices: Sequence[tuple[Gpu, Share]]) -> int | None:
    """Give the window in GiB for these devices, a power of two; None when QEMU's default of 32 GiB is enough.

    A BAR is a power of two and lies on a multiple of its size, and a root port's window is aligned as its largest
    BAR: each device counts as its BARs' sum rounded up to a power of two, and so does the total.
    """
    total = sum(_rounded_up(_bars_bytes(gpu, share)) for gpu, share in devices)
    needed = -(-_rounded_up(total) // _GIB)
    return needed if needed > DEFAULT_WINDOW_GIB else None


def _bars_bytes(gpu: Gpu, share: Share) -> int:
    """Sum the BARs the guest sees.

    A vGPU's BARs are not visible on the host before it exists; none is larger than the card's own, nor than the
    vGPU's framebuffer rounded up.
    """
    limit = None
    if kind_of(share.sharing).takes is Takes.VGPU and share.framebuffer_mib is not None:
        limit = _rounded_up(share.framebuffer_mib * MIB)
    return sum(_rounded_up(bar if limit is None else min(bar, limit)) for bar in gpu.bars_bytes)


def _rounded_up(size_bytes: int) -> int:
    return 0 if size_bytes <= 0 else 1 << (size_bytes - 1).bit_length()
