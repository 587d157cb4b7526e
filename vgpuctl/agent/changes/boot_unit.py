# SPDX-License-Identifier: Apache-2.0
"""Ask systemd about the boot unit before it is enabled: a unit in a cycle can lose its job at boot, silently."""

from typing import List, Optional

from vgpuctl.agent.facts import services
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import boot as wire
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode

PROGRAM = "systemd-analyze"
_CANDIDATE = f"/run/vgpuctl/verify/{wire.UNIT_NAME}"
# All that a boot starts; only a transaction with every unit of a cycle shows the cycle.
_TARGET = "multi-user.target"
_TIMEOUT_S = 60.0
# src/core/transaction.c, transaction_verify_order_one (systemd 239 to 257).
_CYCLE_WORDS = ("ordering cycle", "Found dependency on", "cyclic ordering dependency", "Transaction order is cyclic")


def verify(host: Host, unit: str, *, dry_run: bool) -> Optional[str]:
    """Have systemd check the unit within the whole boot. Returns None, or why it was not asked.

    unit: the text; a dry run checks it only where it is installed already.
    Raises Problem `unit-refused` with systemd's words.
    """
    if not services.has_systemd(host):
        return "systemd does not run this host"
    if host.find_program(PROGRAM) is None:
        return f"this host has no {PROGRAM}"
    is_installed = host.digest(wire.UNIT) == wire.sha256(unit.encode())
    if dry_run and not is_installed:
        return "a dry run writes no unit to check"
    path = wire.UNIT if is_installed else _CANDIDATE
    if not is_installed:
        host.put_file(path, unit.encode(), 0o644)
    try:
        done = host.run([PROGRAM, "verify", "--man=no", path, _TARGET], timeout_s=_TIMEOUT_S)
    finally:
        if not is_installed:
            host.remove_file(path)
    complaints = of_our_unit(done.output + done.errors)
    if complaints:
        raise Problem(
            ProblemCode.UNIT_REFUSED,
            f"systemd would not run {wire.UNIT_NAME} at boot as it is: {'; '.join(complaints)}",
            path=wire.UNIT,
            hint="take a service that the cycle names out of stop_services, or correct that service's own ordering",
        )
    return None


def of_our_unit(said: str) -> List[str]:
    """The lines of `systemd-analyze verify` that are about the boot unit; a cycle is told in several lines."""
    found: List[str] = []
    cycle: List[str] = []
    for line in [*(one.strip() for one in said.splitlines()), ""]:
        if any(words in line for words in _CYCLE_WORDS):
            cycle.append(line)
            continue
        if any(wire.UNIT_NAME in one for one in cycle):
            found += cycle
        cycle = []
        if wire.UNIT_NAME in line:
            found.append(line)
    return found
