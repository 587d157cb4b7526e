# SPDX-License-Identifier: Apache-2.0
"""The driver of a GPU: its vendor's for everything but whole cards (reference 1.2 and 9, rows 3 and 5)."""

from vgpuctl.agent.wire.steps import BindDriver
from vgpuctl.agent.wire.vf_health import PF_STUB
from vgpuctl.planner.layout import shares
from vgpuctl.planner.layout.result import Phase
from vgpuctl.planner.layout.work import GpuWork

VFIO_PCI = "vfio-pci"
_FOREIGN = ("nouveau", "nova", "nova_core")


def is_on_vendor_driver(work: GpuWork) -> bool:
    """True if the vendor's driver has the GPU, so that what only it tells can be believed."""
    return work.gpu.driver not in (None, VFIO_PCI, PF_STUB, *_FOREIGN)


def ensure_vendor_driver(work: GpuWork) -> None:
    """Bring the GPU to its vendor's driver. That disturbs a VM that has the whole card."""
    gpu = work.gpu
    if is_on_vendor_driver(work):
        return
    wanted = "nvidia" if work.is_nvidia else None
    work.differ("driver", wanted or "the host's own", gpu.driver or "none")
    if gpu.driver in _FOREIGN:
        work.block(
            "foreign-driver",
            f"{work.name} is on {gpu.driver}, which does not let go of it",
            remedy=f"blacklist {gpu.driver}, rebuild the initramfs and reboot",
        )
        return
    if gpu.driver == PF_STUB:  # an interrupted sriov-manage; the step that sets the VFs fixes it
        return
    work.add(
        Phase.DRIVER,
        BindDriver((gpu.address,), wanted),
        f"bind {gpu.address} to {wanted or 'the driver that the kernel picks'}",
        undo=(BindDriver((gpu.address,), gpu.driver),) if gpu.driver else (),
        disturbs=work.users,
    )
    work.is_rebuilt = True


def ensure_vfio(work: GpuWork) -> None:
    """Bind the card with its companions to vfio-pci, ahead of any VM."""
    gpu = work.gpu
    drivers = {gpu.address: gpu.driver, **{other.address: other.driver for other in gpu.companions}}
    others = tuple(address for address, driver in drivers.items() if driver != VFIO_PCI)
    if not others:
        return
    work.differ("driver", VFIO_PCI, ", ".join(f"{one} on {drivers[one] or 'none'}" for one in others))
    shares.tear_down(work)
    undo = tuple(BindDriver((one,), drivers[one]) for one in others)
    work.add(
        Phase.HAND_OVER,
        BindDriver(others, VFIO_PCI),
        f"bind {', '.join(others)} to {VFIO_PCI}",
        undo=undo,
        disturbs=work.users,
    )
