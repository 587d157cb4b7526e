# SPDX-License-Identifier: Apache-2.0
"""Lines of the kernel's log that name a GPU: Xids, and a driver that gave a card up. Every reader of them asks here."""

import re
from typing import Dict, Iterable, List, Optional, Set, Tuple

from vgpuctl.agent.wire.bus_id import normalise_bus_id
from vgpuctl.agent.wire.values import dataclass

# `NVRM: Xid (PCI:0000:c1:00): 79, pid=…` (telemetry reference 8). Newer drivers add the function to the bus id, old
# ones have no `PCI:`. In MIG mode the bracket also names the GPU instance, and the compute instance where it is known:
# `(PCI:0000:c1:00 GPU-I:05 GPU-CI:00)`. Source: open-gpu-kernel-modules, kernel_rc.c. The bracket is the driver's own
# text, so what a later driver adds to it does not hide the Xid.
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)? ?([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?![0-9a-f])[^)]{0,80}\)"
    r": ?(\d{1,9})(?!\d)[,:]? ?(.*)",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"(?<![0-9a-f])([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?![0-9a-f])", re.IGNORECASE)

_DRIVERS = "nvidia|amdgpu|gim|xe|i915"
# `nvidia 0000:41:00.0: probe with driver nvidia failed with error -1`, before Linux 6.10 `nvidia: probe of 0000:41:00.0
# failed with error -1` (drivers/base/dd.c). Drivers that only try every card, such as nvidiafb, give up none.
_PROBE_FAILED = re.compile(
    rf"(?:{_DRIVERS}) [0-9a-f:.]+: probe with driver \w+ failed|(?:{_DRIVERS}): probe of [0-9a-f:.]+ failed",
    re.IGNORECASE,
)
# The driver's own words, which name no Xid (open-gpu-kernel-modules osinit.c, nv.c; Linux amdgpu_kms.c, xe_device.c).
_GIVEN_UP = re.compile(
    r"NVRM: .*(?:fallen off the bus|RmInitAdapter failed|rm_init_adapter failed)"
    r"|amdgpu .*Fatal error during GPU init|xe .*has declared device .* as wedged",
    re.IGNORECASE,
)
# A driver that does not know the board refuses it: the card is well, and another driver or a guest may serve it.
_UNKNOWN_TO_DRIVER = re.compile(
    r"NVRM: .*(?:not supported by|Legacy drivers|requires use of the NVIDIA open kernel|Supported NVIDIA GPU Products)",
    re.IGNORECASE,
)
_FIRST_LINE = re.compile(r"NVRM: The NVIDIA GPU (?=[0-9a-f]{4,8}:)", re.IGNORECASE)
_LINES_OF_ONE = 8
"""NVIDIA's driver says some things in so many lines, of which the first names the card. Old kernels log each alone."""


@dataclass(frozen=True)
class XidLine:
    """An Xid. bus: the GPU's address without function, `0000:c1:00`. text: the driver's words after the code."""

    bus: str
    code: int
    text: str


def read_xid(line: str) -> Optional[XidLine]:
    """Return the Xid of a line, None for any other line. A line that quotes an Xid in its middle is another line."""
    match = _XID.match(line)
    if match is None:
        return None
    return XidLine(normalise_bus_id(f"{match[1]}.0").rpartition(".")[0], int(match[2]), match[3])


def device_of(line: str) -> Optional[str]:
    """Return the PCI function that a line names first, `0000:c1:00.0`; None for a line that names none."""
    match = _ADDRESS.search(line)
    return None if match is None else normalise_bus_id(match[1])


def read_driver_failures(records: Iterable[Tuple[float, str]]) -> Dict[str, Tuple[Tuple[float, str], ...]]:
    """Return what drivers said when they gave cards up, with its time, by the card's address; Xids are not among it.

    records: the kernel's messages with their times in seconds since the boot, oldest first.
    """
    found: Dict[str, List[Tuple[float, str]]] = {}
    unknown: Set[str] = set()
    for at_s, text in _joined(records):
        device = device_of(text)
        if device is None or read_xid(text) is not None:
            continue
        if _UNKNOWN_TO_DRIVER.match(text):
            unknown.add(device)
        elif _GIVEN_UP.match(text) or (_PROBE_FAILED.match(text) and device not in unknown):
            found.setdefault(device, []).append((at_s, text))
    return {device: tuple(failures) for device, failures in found.items()}


def _joined(records: Iterable[Tuple[float, str]]) -> Iterable[Tuple[float, str]]:
    """Yield the messages, with those that NVIDIA's driver says in several lines as one."""
    whole: Optional[Tuple[float, str]] = None
    lines = 0
    for at_s, text in records:
        if whole is not None:
            if lines < _LINES_OF_ONE and text.startswith("NVRM: ") and device_of(text) is None:
                whole, lines = (whole[0], f"{whole[1]} {text[len('NVRM: ') :]}"), lines + 1
                continue
            yield whole
            whole = None
        if _FIRST_LINE.match(text):
            whole, lines = (at_s, text), 1
        else:
            yield at_s, text
    if whole is not None:
        yield whole
