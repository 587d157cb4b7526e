# SPDX-License-Identifier: Apache-2.0
"""State of the process behind an operation: found by machine, pid and the process's start."""

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class ProcessIdentity:
    """One process, for good: pids are used again, pids with their start and boot are not."""

    pid: int
    hostname: str
    machine: str
    start: str


def this_process() -> ProcessIdentity:
    """The process that calls."""
    pid = os.getpid()
    return ProcessIdentity(pid, os.uname().nodename, _machine(), _process_start(pid))


GONE = "gone"
"""The start of a process of which somebody else said that it has ended: no process has this one."""


class Process(Protocol):
    """The columns of a row that name a process."""

    @property
    def pid(self) -> int: ...
    @property
    def hostname(self) -> str: ...
    @property
    def machine(self) -> str: ...
    @property
    def process_start(self) -> str: ...


def is_running(operation: Process) -> bool | None:
    """True if the process behind a row still runs; None when it runs on another machine.

    A process whose start is not known counts as running while its pid exists.
    """
    here = this_process()
    if operation.hostname != here.hostname or operation.machine != here.machine:
        return None
    if operation.process_start == GONE:
        return False
    try:
        os.kill(operation.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # It exists, as another user's.
    start = _process_start(operation.pid)
    return not operation.process_start or not start or start == operation.process_start


def _process_start(pid: int) -> str:
    """Boot id and start in clock ticks since boot: field 22 of /proc/PID/stat, proc(5). Empty without /proc.

    A zombie has done its work: its start reads as `ended`.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "ended" if fields[0] in ("Z", "X") else f"{boot}:{fields[19]}"


@functools.cache
def _machine() -> str:
    """machine-id(5), empty where the system has none."""
    try:
        return Path("/etc/machine-id").read_text().strip()
    except OSError:
        return ""
