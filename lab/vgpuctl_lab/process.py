# SPDX-License-Identifier: Apache-2.0
"""Programs of the lab: short ones with their output, and long ones known by pid and start time.

A pid alone may belong to somebody else after a crash; together with its start time it cannot.
"""

import os
import select
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vgpuctl.errors import LabError

_FIELD_STATE = 0
_FIELD_START_TIME = 19


@dataclass(frozen=True)
class RecordedProcess:
    """A process that the lab started. start_time: clock ticks since the boot `boot_id`, from /proc/PID/stat."""

    pid: int
    start_time: int
    boot_id: str

    def is_running(self) -> bool:
        """True if exactly this process still runs."""
        return _identity(self.pid) == self

    def end(self, *, grace_s: float) -> None:
        """End it: SIGTERM, then SIGKILL after `grace_s`. Raises LabError when it is still there afterwards."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            # The pidfd holds the process; checked after opening, it cannot be somebody else's.
            if not self.is_running():
                return
            for number, limit_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, number)
                if select.select([descriptor], [], [], limit_s)[0]:
                    with suppress(ChildProcessError):
                        os.waitpid(self.pid, os.WNOHANG)
                    return
        except PermissionError as error:
            raise LabError(
                f"process {self.pid} of the lab belongs to another user",
                hint="run the command as the one who started it",
            ) from error
        finally:
            os.close(descriptor)
        raise LabError(f"process {self.pid} of the lab does not end")


def record(pid: int) -> RecordedProcess:
    """Name a process that was just started. Raises LabError when it has ended already."""
    identity = _identity(pid)
    if identity is None:
        raise LabError(f"process {pid} ended as soon as it was started")
    return identity


def _identity(pid: int) -> RecordedProcess | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    if fields[_FIELD_STATE] in ("Z", "X"):
        return None
    return RecordedProcess(pid, int(fields[_FIELD_START_TIME]), boot_id())


def boot_id() -> str:
    """The id of this machine's boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def needed_program(name: str, *, package: str) -> str:
    """The path of a program, also where only root's PATH looks. Raises LabError that names the Debian package."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if path is None:
        raise LabError(
            f"{name} is missing on this machine", hint=f"run `make setup`, or install it: apt-get install {package}"
        )
    return path


def checked(
    arguments: Sequence[str],
    *,
    what: str,
    timeout_s: float,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a short program and return its stdout. Raises LabError with the last lines it wrote."""
    try:
        ended = subprocess.run(
            list(arguments),
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{what}: {arguments[0]} did not end within {timeout_s:.0f} s") from error
    except OSError as error:
        raise LabError(f"{what}: {arguments[0]} cannot be run: {error.strerror}") from error
    if ended.returncode != 0:
        last = (ended.stderr.strip() or ended.stdout.strip()).splitlines()[-15:]
        raise LabError(f"{what}: {arguments[0]} ended with {ended.returncode}", context=last)
    return ended.stdout
