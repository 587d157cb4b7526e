# SPDX-License-Identifier: Apache-2.0
"""Fabric Manager's mode, and whether a GPU behind NVSwitch can compute (fabric reference)."""

from typing import Optional

from vgpuctl.agent.fabric_manager import FabricManager, address_of, read_settings
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.fabric import FabricManagerFacts
from vgpuctl.agent.wire.facts import FabricFacts

_MOST_DIGITS = 18

_WITH_PARTITIONS = (1, 2)


def read_mode(host: Host) -> Optional[int]:
    """Return FABRIC_MODE of Fabric Manager's configuration, None where there is none. Raises Problem."""
    value = read_settings(host).get("FABRIC_MODE", "")
    return int(value) if value.isdecimal() and len(value) <= _MOST_DIGITS else None


def read_manager(host: Host) -> Optional[FabricManagerFacts]:
    """Return what Fabric Manager tells, None where it has no configuration. Raises Problem if that cannot be read."""
    settings = read_settings(host)
    if not settings:
        return None
    mode, address = read_mode(host), address_of(settings)
    if mode not in _WITH_PARTITIONS:
        return FabricManagerFacts(mode, address)
    try:
        with FabricManager(host) as manager:
            return FabricManagerFacts(mode, address, manager.partitions(), manager.failed_devices())
    except Problem as problem:
        return FabricManagerFacts(mode, address, problem=f"{problem.message}; {problem.hint}")


def find_problem(host: Host, fabric: Optional[FabricFacts]) -> Optional[str]:
    """Say why a GPU with this fabric cannot compute; None when it can, or will once its partition is active.

    Raises Problem where the mode cannot be read.
    """
    if fabric is None or fabric.is_up():
        return None
    if fabric.is_between_partitions(None if fabric.state == "completed" else read_mode(host)):
        return None
    return f"its NVSwitch fabric is not set up: {fabric.describe()}"
