# SPDX-License-Identifier: Apache-2.0
"""PCI functions as sysfs shows them (reference 1.1): identity, driver, BARs, companions, reset."""

import re
from typing import List, Optional, Tuple

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.values import dataclass

DEVICES = "/sys/bus/pci/devices"
DRIVERS = "/sys/bus/pci/drivers"
NVIDIA = "10de"
GPU_VENDORS = (NVIDIA, "1002", "8086")
# VGA, 3D, other display controllers, and processing accelerators (AMD Instinct).
GPU_CLASSES = ("0300", "0302", "0380", "1200")
BRIDGE_CLASS = "0604"

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_IORESOURCE_MEM = 0x200
_BARS = 6


@dataclass(frozen=True)
class Function:
    """One PCI function: who it is and who drives it."""

    address: str
    vendor_id: str
    device_id: str
    subsystem_id: Optional[str]
    pci_class: str
    driver: Optional[str]
    is_virtual: bool

    def is_gpu(self) -> bool:
        """True if this is a physical function of a GPU that tenants can be given."""
        return self.vendor_id in GPU_VENDORS and self.pci_class.startswith(GPU_CLASSES) and not self.is_virtual


def folder(address: str) -> str:
    """Return a function's folder. Raises Problem `bad-address` for any other text."""
    if not _ADDRESS.fullmatch(address):
        raise Problem(ProblemCode.BAD_ADDRESS, f"{address!r} is not a PCI address like 0000:41:00.0")
    return f"{DEVICES}/{address}"


def is_address(text: str) -> bool:
    """Tell whether a text is the address of a PCI function."""
    return _ADDRESS.fullmatch(text) is not None


def require(host: Host, address: str) -> str:
    """Return the folder of a function that exists. Raises Problem `not-found`."""
    path = folder(address)
    if not host.exists(path):
        raise Problem(
            ProblemCode.NOT_FOUND, f"there is no PCI function {address} on this host", path=path, errno="ENOENT"
        )
    return path


def read_addresses(host: Host) -> List[str]:
    """Return the addresses of every function of the machine, in order."""
    return [name for name in host.listdir_optional(DEVICES) or [] if _ADDRESS.fullmatch(name)]


def read(host: Host, address: str) -> Function:
    """Read who a function is. Raises Problem."""
    path = require(host, address)
    subsystem = [
        _identifier(text)
        for name in ("subsystem_vendor", "subsystem_device")
        for text in [host.read_optional(f"{path}/{name}")]
        if text is not None
    ]
    return Function(
        address,
        _identifier(host.read(f"{path}/vendor")),
        _identifier(host.read(f"{path}/device")),
        ":".join(subsystem) if len(subsystem) == 2 else None,
        _identifier(host.read(f"{path}/class"), digits=6),
        read_driver(host, address),
        host.link(f"{path}/physfn") is not None,
    )


def read_gpu(host: Host, address: str) -> Optional[Function]:
    """Read a function if it is a GPU's physical one, else None. Raises Problem, except for a VF of any device.

    One read tells the VFs apart, which are most of the functions of a host with vGPUs.
    """
    if host.link(f"{folder(address)}/physfn") is not None:
        return None
    function = read(host, address)
    return function if function.is_gpu() else None


def read_driver(host: Host, address: str) -> Optional[str]:
    """Return the name of the driver a function is bound to, None when it is not bound."""
    return host.link_name(f"{folder(address)}/driver")


def read_numa_node(host: Host, address: str) -> Optional[int]:
    """Return the NUMA node of a function, None when the firmware does not say (-1)."""
    text = host.read_optional(f"{folder(address)}/numa_node")
    return None if text is None or int(text) < 0 else int(text)


def read_bars(host: Host, address: str) -> Tuple[int, ...]:
    """Return the sizes in bytes of the memory BARs that are present, in order."""
    text = host.read_optional(f"{folder(address)}/resource") or ""
    sizes = []
    for line in text.splitlines()[:_BARS]:
        start, end, flags = (int(word, 16) for word in line.split())
        if end > start and flags & _IORESOURCE_MEM:
            sizes.append(end - start + 1)
    return tuple(sizes)


def read_reset_methods(host: Host, address: str) -> Tuple[str, ...]:
    """Return how a function can be reset, in the kernel's order; `reset` when an old kernel does not say how."""
    path = folder(address)
    text = host.read_optional(f"{path}/reset_method")
    if text is not None:
        return tuple(text.split())
    return ("reset",) if host.exists(f"{path}/reset") else ()


def read_companions(host: Host, address: str) -> List[Function]:
    """Return the other physical functions in a GPU's slot that are not GPUs: its audio, USB and UCSI functions."""
    slot = address.rsplit(".", 1)[0] + "."
    others = [read(host, name) for name in read_addresses(host) if name.startswith(slot) and name != address]
    return [function for function in others if not function.is_virtual and not function.is_gpu()]


def is_bridge(host: Host, address: str) -> bool:
    """Tell whether a function is a PCI bridge, which may stay with its own driver in a group."""
    path = folder(address)
    return host.exists(f"{path}/pci_bus") or _identifier(host.read(f"{path}/class"), 6)[:4] == BRIDGE_CLASS


def describe(host: Host, address: str) -> str:
    """Say in a few words what a function is, for messages: `8086:1533 driven by igb`."""
    function = read(host, address)
    driver = f"driven by {function.driver}" if function.driver else "without driver"
    return f"{address} ({function.vendor_id}:{function.device_id} {driver})"


def _identifier(text: str, digits: int = 4) -> str:
    try:
        number = int(text, 16)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 4 * digits:
        raise Problem(
            ProblemCode.UNEXPECTED_VALUE, f"sysfs says {text[:40]!r}, which is no identifier of {digits} hex digits"
        )
    return f"{number:0{digits}x}"
