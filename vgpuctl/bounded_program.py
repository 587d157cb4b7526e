# SPDX-License-Identifier: Apache-2.0
"""Run a program of this machine to its end, with limits of time and of the size of what it prints."""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_CHUNK = 65_536


class ProgramTooLate(Exception):
    """The program had not ended when its time was over."""


class ProgramTooLong(Exception):
    """The program printed more than the limit."""


@dataclass(frozen=True)
class Ended:
    """How a program ended: exit status, output and complaints."""

    status: int
    output: str
    complaint: str


def run_bounded(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    longest_s: float,
    most_bytes: int,
    folder: str = "/",
    given: bytes = b"",
) -> Ended:
    """Run a program in a session of its own; all of the session is killed when a limit is passed.

    given: its standard input, at most 64 KiB. Raises OSError for a program that cannot be started, FileNotTrusted,
    ProgramTooLate and ProgramTooLong.
    """
    from vgpuctl.trusted_programs import judge_program  # here: an inventory without ansible needs none of it

    judge_program(argv[0])
    give_up = time.monotonic() + longest_s
    process = subprocess.Popen(
        argv,
        env=dict(environment),
        cwd=folder,
        stdin=subprocess.PIPE if given else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    read = {process.stdout: bytearray(), process.stderr: bytearray()}
    with process, selectors.DefaultSelector() as selector:
        try:
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(given)  # a pipe holds 64 KiB, so this does not wait for the program
                    process.stdin.close()
            for stream in read:
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                for key, _events in selector.select(max(0.0, give_up - time.monotonic())):
                    stream = process.stdout if key.fileobj is process.stdout else process.stderr
                    piece = os.read(stream.fileno(), _CHUNK)
                    read[stream] += piece
                    if not piece:
                        selector.unregister(stream)
                if sum(map(len, read.values())) > most_bytes:
                    raise ProgramTooLong(f"more than {most_bytes} bytes")
                if time.monotonic() > give_up:
                    raise ProgramTooLate(f"longer than {longest_s:g} s")
            status = process.wait(max(0.0, give_up - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise ProgramTooLate(f"longer than {longest_s:g} s") from error
        finally:
            if process.returncode is None:
                _kill_session(process.pid)
    output, complaint = (read[stream].decode(errors="replace") for stream in (process.stdout, process.stderr))
    return Ended(status, output, complaint)


def _kill_session(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
