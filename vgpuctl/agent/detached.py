# SPDX-License-Identifier: Apache-2.0
"""Programs that outlive the agent, on hosts without systemd. A process is named by its number and its start."""

import contextlib
import os
import signal
import subprocess
from typing import Mapping, Sequence


def start(argv: Sequence[str], log: str, environment: Mapping[str, str]) -> str:
    """Start a program in a session of its own, its output in a file. Returns `PID START`. Raises OSError."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            env=dict(environment),
            cwd="/",
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    # Nobody waits for it: it is init's child once the agent has ended.
    process.returncode = 0
    return f"{process.pid} {_start_of(process.pid)}"


def is_same(identity: str) -> bool:
    """True if the process is there, and is no other one that has got its number."""
    pid, _, begun = identity.partition(" ")
    return pid.isdigit() and bool(begun) and _start_of(int(pid)) == begun


def send(identity: str, name: str) -> None:
    """Send a signal, by its name, to a process that is there."""
    if is_same(identity):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(identity.partition(" ")[0]), signal.Signals[name])


def _start_of(pid: int) -> str:
    """The start of a process in ticks since the boot (proc(5), field 22), "" for one that is gone or a zombie."""
    with contextlib.suppress(ChildProcessError, OSError):
        os.waitpid(pid, os.WNOHANG)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if words[0] in (b"Z", b"X") else words[19].decode()
