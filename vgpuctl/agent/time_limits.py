# SPDX-License-Identifier: Apache-2.0
"""Operations of `Host` with a time limit: a write that may block in the kernel, a program with children.

A write that blocks in the kernel cannot be ended, not even by SIGKILL: it is left to its thread and may finish later.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from typing import Callable, List, Mapping, Sequence, Set, Tuple

# The time a program gets to tidy up after SIGTERM, and the kernel to end it after SIGKILL.
_GRACE_S, _PAUSE_S = 5.0, 0.05
_running: Set[int] = set()
_starting: List[None] = []
"""One for each program that is being started, whose process is not known yet."""
_at_end: List[Callable[[], None]] = []


class StillRunning(Exception):
    """The limit has passed. is_ended: the program and its process group are gone."""

    def __init__(self, *, is_ended: bool) -> None:
        super().__init__()
        self.is_ended = is_ended


def call_within(timeout_s: float, call: Callable[[], None]) -> None:
    """Call in a thread and wait for its end. Raises what it raises, StillRunning when it goes on behind the caller."""
    failures: List[BaseException] = []

    def catch() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
            failures.append(error)

    thread = threading.Thread(target=catch, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        raise StillRunning(is_ended=False)
    if failures:
        raise failures[0]


def run_group(argv: Sequence[str], *, timeout_s: float, environment: Mapping[str, str]) -> Tuple[int, bytes, bytes]:
    """Run a program in a process group of its own and return (exit status, stdout, stderr).

    At the limit the whole group gets SIGTERM, and SIGKILL 5 s later. Raises OSError, StillRunning.
    """
    with _start_group(argv, environment) as process:
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            is_ended = _end_group(process)
            if not is_ended:
                # Popen's own end would wait for it without a limit.
                process.returncode = -signal.SIGKILL
            raise StillRunning(is_ended=is_ended) from None
        except BaseException:
            _end_group(process)
            raise
        finally:
            _running.discard(process.pid)
    return process.returncode, output, errors


def end_programs(then: Callable[[], None]) -> None:
    """Ask the programs that run now to end, then call `then`: for an agent that is being ended itself.

    While a program is being started nobody knows its process yet: it is asked, and `then` called, once it has started.
    """
    _at_end.append(then)
    if not _starting:
        _end_now()


def _end_now() -> None:
    for group in tuple(_running):
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGTERM)
    for then in _at_end:
        then()


def _start_group(argv: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    _starting.append(None)
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
        )
        _running.add(process.pid)
        return process
    finally:
        _starting.pop()
        if _at_end and not _starting:
            _end_now()


def _end_group(process: "subprocess.Popen[bytes]") -> bool:
    """End the process group; False when part of it cannot be ended, as one that sleeps in the kernel."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return True
        if _is_gone_soon(process):
            return True
    return False


def _is_gone_soon(process: "subprocess.Popen[bytes]") -> bool:
    end = time.monotonic() + _GRACE_S
    while time.monotonic() < end:
        process.poll()
        if not _has_members(process.pid):
            return True
        time.sleep(_PAUSE_S)
    return False


def _has_members(group: int) -> bool:
    """Tell whether a process of the group is alive; a zombie that nobody waits for is not. Source: proc(5), stat."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                state, _parent, pgrp = file.read().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(pgrp) == group and state not in "ZX":
            return True
    return False
