# SPDX-License-Identifier: Apache-2.0
"""The host's lock for changes: one agent changes a host at a time, and no other local user can keep it from that.

The lock lies in a folder of our own. In /run/lock, which everyone can write to, any user could make the file first:
root may then not open it (fs.protected_regular=2), or waits for whoever locked it.
"""

import errno as errnos
import fcntl
import os
import stat
import time
from contextlib import contextmanager, suppress
from typing import Callable, Iterator

from vgpuctl.agent.file_problems import errno_name, space_hint
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode

FOLDER = "/run/vgpuctl"
LOCK = f"{FOLDER}/lock"
_TRY_S = 0.1


@contextmanager
def hold(folder: str, timeout_s: float, *, wait: Callable[[float], None], is_root: bool) -> Iterator[None]:
    """Hold the lock in `folder`, which is FOLDER of the host. wait: lets time pass between two tries.

    Raises Problem: `host-locked` with the holder's pid, `lock-refused` where the agent may not have it.
    """
    try:
        descriptor = open_in(folder, os.path.basename(LOCK))
    except OSError as error:
        raise _refused(error, is_root=is_root) from error
    try:
        _wait(descriptor, timeout_s, wait)
        # The pid is for those who wait; without space for it they wait for "unknown".
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def open_in(folder: str, name: str) -> int:
    """Open a lock in our folder, both made if missing. Raises OSError: EPERM for a folder or file of another user."""
    try:
        os.makedirs(folder, mode=0o755)
    except FileExistsError:
        # An earlier agent made it. Owner and mode are checked below on the open folder.
        pass
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(place)
        _check_owner(found, folder)
        if stat.S_IMODE(found.st_mode) != 0o755:
            os.fchmod(place, 0o755)
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=place)
        try:
            found = os.fstat(descriptor)
            _check_owner(found, f"{folder}/{name}")
            if stat.S_IMODE(found.st_mode) != 0o600:
                os.fchmod(descriptor, 0o600)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor
    finally:
        os.close(place)


def _check_owner(found: os.stat_result, path: str) -> None:
    if found.st_uid != os.geteuid():
        raise OSError(errnos.EPERM, f"{path} belongs to the user with number {found.st_uid}")


def _refused(error: OSError, *, is_root: bool) -> Problem:
    hint = space_hint(LOCK, error)
    if hint is None:
        hint = f"remove {FOLDER} on the host: it is vgpuctl's own and root makes it again"
        if not is_root:
            hint = "let the agent run as root: ansible_become=true"
    message = f"the lock {LOCK} cannot be opened: {error.strerror}"
    return Problem(ProblemCode.LOCK_REFUSED, message, path=LOCK, errno=errno_name(error), hint=hint)


def _wait(descriptor: int, timeout_s: float, wait: Callable[[float], None]) -> None:
    end = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() >= end:
                holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
                raise Problem(
                    ProblemCode.HOST_LOCKED,
                    f"another agent (pid {holder}) has been changing this host for {timeout_s:g} s",
                    path=LOCK,
                    errno="EAGAIN",
                    hint="wait for it, then run again",
                ) from error
        wait(_TRY_S)
