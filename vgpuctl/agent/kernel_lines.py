# SPDX-License-Identifier: Apache-2.0
"""Lines of the kernel's log that name a GPU. Everything that looks for an Xid asks here."""

import re
from typing import Optional

from vgpuctl.agent.nvml import normalise_bus_id
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
_ADDRESS = re.compile(r"(?<![0-9a-f:])([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?![0-9a-f])", re.IGNORECASE)


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
