# SPDX-License-Identifier: Apache-2.0
"""Fabric Manager's mode, and whether a GPU behind NVSwitch can compute (fabric reference)."""

from typing import Optional

from vgpuctl.agent.fabric_manager import read_settings
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.facts import FabricFacts

_MOST_DIGITS = 18


def read_mode(host: Host) -> Optional[int]:
    """Return FABRIC_MODE of Fabric Manager's configuration, None where there is none. Raises Problem."""
    value = read_settings(host).get("FABRIC_MODE", "")
    return int(value) if value.isdecimal() and len(value) <= _MOST_DIGITS else None


def find_problem(host: Host, fabric: Optional[FabricFacts]) -> Optional[str]:
    """Say why a GPU with this fabric cannot compute; None when it can, or will once its partition is active.

    Raises Problem where the mode cannot be read.
    """
    if fabric is None or fabric.is_up():
        return None
    if fabric.is_between_partitions(None if fabric.state == "completed" else read_mode(host)):
        return None
    return f"its NVSwitch fabric is not set up: {fabric.describe()}"
