# SPDX-License-Identifier: Apache-2.0
"""PCI addresses in one form, whoever writes them: NVML, the driver, the kernel, a user."""

import re

_BUS_ID = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


def normalise_bus_id(bus_id: str) -> str:
    """Return NVML's `00000000:C1:00.0` as sysfs writes it, `0000:c1:00.0`; `c1:00.0` is of domain 0."""
    match = _BUS_ID.fullmatch(bus_id.lower())
    return f"{int(match[1] or '0', 16):04x}:{match[2]}" if match else bus_id.lower()
