# SPDX-License-Identifier: Apache-2.0
"""Failed reads and writes of the machine's files as Problems."""

import errno as errnos
import os
from typing import Optional

from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode


def read_problem(path: str, error: OSError) -> Problem:
    """Translate a failed read: could not be read is never the same as empty."""
    name = errno_name(error)
    return Problem(ProblemCode.UNREADABLE, f"{path} cannot be read: {name} ({error.strerror})", path=path, errno=name)


def put_problem(path: str, error: OSError) -> Problem:
    """Translate a failed write of a file."""
    name = errno_name(error)
    message = f"{path} cannot be written: {name} ({error.strerror})"
    return Problem(ProblemCode.WRITE_REFUSED, message, path=path, errno=name, hint=space_hint(path, error))


def space_hint(path: str, error: OSError) -> Optional[str]:
    """Say what helps against a full or read-only file system, None for another error."""
    if error.errno not in (errnos.ENOSPC, errnos.EDQUOT, errnos.EROFS):
        return None
    return f"free some space there, or make the file system writable: `df -h {os.path.dirname(path)}` on the host"


def errno_name(error: OSError) -> str:
    """Return the kernel's symbol of an error, such as `EBUSY`."""
    return errnos.errorcode.get(error.errno or 0, str(error.errno))


def write_blocked(path: str, text: str, timeout_s: float) -> Problem:
    """Say that a write has not come back from the kernel, where nothing can end it."""
    return Problem(
        ProblemCode.WRITE_BLOCKED,
        f"writing {text!r} to {path} has not ended within {timeout_s:g} s: the kernel still works on it, "
        "and it may take effect later",
        path=path,
        hint="see `dmesg` on the host for what the driver waits for; once it is done, run `vgpuctl repair`, "
        "and reboot the host if it never is",
    )
