# SPDX-License-Identifier: Apache-2.0
"""Fabric Manager's mode, and whether a GPU behind NVSwitch can compute (fabric reference)."""

from typing import Dict, Optional, Tuple

from vgpuctl.agent.fabric_manager import CONFIG, FabricManager, address_of, read_settings
from vgpuctl.agent.facts import fabric_notes, services
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.fabric import UNIT, FabricManagerFacts, FailedDevice
from vgpuctl.agent.wire.facts import FabricFacts
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.values import replace

_MOST_DIGITS = 18
# When the unit was last begun, before its program read anything: microseconds of CLOCK_MONOTONIC, 0 for never.
_BEGUN = "InactiveExitTimestampMonotonic"
_CLOCK_PAIRS = 3

_PENDING = "it was started before its configuration was written, so that its FABRIC_MODE may be another"
_RESTART = "`vgpuctl apply-hosts --disrupt` restarts it where its mode is declared, with no VM on its GPUs"
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
    is_active, needs_restart = read_run(host)
    found = FabricManagerFacts(
        read_mode(host),
        address_of(settings),
        keeps_partitions=keeps_partitions(settings),
        is_active=is_active,
        needs_restart=needs_restart,
    )
    if found.mode not in _WITH_PARTITIONS and not found.needs_restart:
        return found
    try:
        with FabricManager(host) as manager:
            partitions, failed = manager.partitions(), _read_failed(manager)
        noted = {one.number: one for one in fabric_notes.noted_partitions(host)}
        partitions = tuple(
            replace(one, vm=noted[one.number].used.vm, activated_at=noted[one.number].since)
            if one.is_active and one.number in noted
            else one
            for one in partitions
        )
        return replace(found, partitions=partitions, failed=failed)
    except Problem as problem:
        if found.needs_restart:
            return replace(found, problem=f"{_PENDING}; {_RESTART}")
        is_starting = problem.code == ProblemCode.FABRIC_STARTING
        return replace(found, problem=f"{problem.message}; {problem.hint}", is_starting=is_starting)


def keeps_partitions(settings: Dict[str, str]) -> bool:
    """Tell whether a restarted Fabric Manager waits to be told its active partitions instead of ending them."""
    return settings.get("FABRIC_MODE_RESTART") == "1"


def read_run(host: Host) -> Tuple[Optional[bool], Optional[bool]]:
    """Tell whether systemd runs Fabric Manager, and whether its configuration was written after its start.

    None, None where systemd does not run the host or has no such service. The second is None for a service that never
    ran in this boot. A file that was put in place with an older time of change counts as written then. Raises Problem.
    """
    if not services.has_systemd(host):
        return None, None
    states = services.read_states(host, UNIT, _BEGUN)
    if states["LoadState"] == "not-found":
        return None, None
    is_active, begun_us, written = states["ActiveState"] == "active", states.get(_BEGUN, ""), host.stamp(CONFIG)
    if not begun_us.isdecimal() or len(begun_us) > _MOST_DIGITS or not int(begun_us) or written is None:
        return is_active, None
    return is_active, written[1] / 1e9 > _booted_at(host) + int(begun_us) / 1e6


def _booted_at(host: Host) -> float:
    """Return when the host booted by the clock of its files, never too early.

    Between two clocks a busy host may do something else for a while: the pair with the shortest while counts.
    """
    pairs = []
    for _ in range(_CLOCK_PAIRS):
        uptime = host.uptime()
        pairs.append(host.now() - uptime)
    return min(pairs)


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
