# SPDX-License-Identifier: Apache-2.0
"""Fabric Manager's mode, and whether a GPU behind NVSwitch can compute (fabric reference)."""

from typing import Optional, Tuple

from vgpuctl.agent.fabric_manager import FabricManager, address_of, read_settings
from vgpuctl.agent.facts import fabric_notes
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.fabric import FabricManagerFacts, FailedDevice
from vgpuctl.agent.wire.facts import FabricFacts
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.values import replace

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
            partitions, failed = manager.partitions(), _read_failed(manager)
        noted = {one.number: one.used.vm for one in fabric_notes.read(host).partitions}
        partitions = tuple(replace(one, vm=noted.get(one.number)) if one.is_active else one for one in partitions)
        return FabricManagerFacts(mode, address, partitions, failed)
    except Problem as problem:
        return FabricManagerFacts(mode, address, problem=f"{problem.message}; {problem.hint}")


def _read_failed(manager: FabricManager) -> Optional[Tuple[FailedDevice, ...]]:
    """Return the failed devices, None where it cannot tell: one that was restarted looked at no link."""
    try:
        return manager.failed_devices()
    except Problem as problem:
        if problem.code != ProblemCode.FABRIC_NOT_SUPPORTED:
            raise
        return None


def find_problem(host: Host, fabric: Optional[FabricFacts]) -> Optional[str]:
    """Say why a GPU with this fabric cannot compute; None when it can, or will once its partition is active.

    Raises Problem where the mode cannot be read.
    """
    if fabric is None or fabric.is_up():
        return None
    if fabric.is_between_partitions(None if fabric.state == "completed" else read_mode(host)):
        return None
    return f"its NVSwitch fabric is not set up: {fabric.describe()}"
