# SPDX-License-Identifier: Apache-2.0
"""One command running on a host over one exec channel: its streams, its end, and why it ended."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Self

from vgpuctl.errors import CommandFailed, CommandTimedOut, HostError, TooMuchOutput
from vgpuctl.hosts import become
from vgpuctl.hosts.bounds import LONGEST_LINE, MOST_OUTPUT, KeptErrors
from vgpuctl.hosts.python_check import is_python, python_failure
from vgpuctl.hosts.time_limit import TimeLimit
from vgpuctl.model.host_target import HostTarget

if TYPE_CHECKING:
    import paramiko


# A file descriptor that is readable while a stream of a channel has something to read, for `poll` and `select`.
class Readiness(threading.Event):
    """The event of a paramiko BufferedPipe, as a pipe that holds one byte while it is set. Thread-safe.

    paramiko's own (Channel.fileno) is closed by one thread while the transport's thread writes to it: the write fails,
    which ends the whole connection, or the byte goes to whatever file has the descriptor by then.
    """

    def __init__(self) -> None:
        super().__init__()
        self._changes = threading.Lock()
        self._read_end, self._write_end = os.pipe()
        self._is_closed = False

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._read_end

    def set(self) -> None:
        """Make the descriptor readable."""
        with self._changes:
            if not self._is_closed and not self.is_set():
                os.write(self._write_end, b"*")
                super().set()

    def clear(self) -> None:
        """Make the descriptor unreadable."""
        with self._changes:
            if not self._is_closed and self.is_set():
                os.read(self._read_end, 1)
                super().clear()

    def close(self) -> None:
        """Close the descriptors; later changes do nothing. Can be called again."""
        with self._changes:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._read_end)
                os.close(self._write_end)


_CHUNK = 256 * 1024
# stdout wakes the reader at once; stderr and a stdin that was blocked are looked at this often.
_SLICE_S = 0.1
# While a line is waited for, mostly an answer of the agent's: each look of each host's thread takes processor time.
_SLICE_OF_LINE_S = 0.5
_SLICE_SENDING_S = 0.01
_CUT_OFF_TRIES = 50
# A process that ended while a child of its own still holds stdout: sshd sends no end of file. Its output has ended
# after this long and so many looks: a machine under load gives the transport's thread no time to pass on what came.
_SILENCE_AFTER_EXIT_S = 1.0
_SILENT_LOOKS = 3


@dataclass(frozen=True)
class CompletedCommand:
    """The result of a command. exit_status: -1 when a signal ended it."""

    exit_status: int
    stdout: bytes
    stderr: bytes


class Ending(StrEnum):
    """Result of ending a command on its host, as the end of a sentence."""

    ENDED = "it was ended on the host"
    GONE = "it does not run on the host any more"
    UNKNOWN = "its channel was closed, but it could not be ended and may still run on the host"


@dataclass(frozen=True)
class ProcessOwner:
    """The parts of a connection that a process needs.

    dropped: builds the error of a lost connection from what was under way. end_groups: ends remote process groups and
    returns the result. release: frees the channel's place.
    """

    target: HostTarget
    dropped: Callable[[str], HostError]
    end_groups: Callable[[Sequence[int]], Ending]
    release: Callable[[], None]


class RemoteProcess:
    """A running command with a stream in each direction. One thread uses it at a time.

    Reading raises the error that explains an end that was not expected: HostUnreachable, BecomeFailed,
    PythonMissing or CommandFailed.
    """

    def __init__(self, channel: "paramiko.Channel", command: become.RemoteCommand, owner: ProcessOwner) -> None:
        self.argv = command.argv
        self._channel = channel
        self._command = command
        self._owner = owner
        self._stdout = bytearray()
        self._stderr = KeptErrors()
        self._has_ended_output = False
        self._has_no_end = False
        self._silent_looks = 0
        self._silent_since = 0.0
        self._readiness: Readiness | None = None
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def stderr(self) -> bytes:
        """The command's stderr so far."""
        self._receive_stderr()
        return self._command.strip_markers(self._stderr.read())

    def answer_sudo(self, limit: TimeLimit) -> None:
        """Wait until sudo has let the command start, and give it the password if it asks.

        Does nothing where no become password is set. Raises BecomeFailed, CommandTimedOut.
        """
        command = self._command
        if command.password is None:
            return
        has_answered = False
        while not command.has_started(said := self._stderr.read()):
            asked = said.count(command.prompt)
            if asked > 1:
                self.close()
                shown = command.strip_markers(self._stderr.read())
                raise become.refused_by_sudo(self._owner.target, command, shown)
            if asked and not has_answered:
                has_answered = True
                self._send(f"{command.password.reveal()}\n".encode(), limit)
            if self._has_ended_output:
                raise self.explain_end()
            self._check(limit)
            self._receive(_SLICE_SENDING_S)

    def write(self, data: bytes, *, timeout_s: float = 60.0) -> None:
        """Write all of `data` to the command's stdin."""
        self._send(data, TimeLimit(timeout_s))

    def close_stdin(self) -> None:
        """Tell the command that no more comes."""
        try:
            self._channel.shutdown_write()
        except (OSError, EOFError):
            return

    def read_line(self, timeout_s: float) -> bytes:
        """Return the next line of stdout without its newline.

        Raises CommandTimedOut when none comes in time (the command is ended), and the explaining error when the
        command ended instead.
        """
        limit = TimeLimit(timeout_s)
        searched = 0
        while (end := self._stdout.find(b"\n", searched)) < 0:
            if self._has_ended_output:
                raise self.explain_end()
            searched = len(self._stdout)
            if searched > LONGEST_LINE:
                raise self._too_much(LONGEST_LINE, "in one line")
            self._check(limit)
            self._receive(limit.left_s(at_most=_SLICE_OF_LINE_S))
        line = bytes(self._stdout[:end])
        del self._stdout[: end + 1]
        return line

    def communicate(self, stdin: bytes, limit: TimeLimit) -> CompletedCommand:
        """Write `stdin`, read both outputs to their end and wait for the exit status."""
        pending = memoryview(stdin)
        has_closed_stdin = False
        while not self._has_ended_output:
            if pending and not self._channel.closed:
                pending = pending[self._send_some(pending) :]
            if not pending and not has_closed_stdin:
                has_closed_stdin = True
                self.close_stdin()
            self._check(limit)
            wait_s = _SLICE_SENDING_S if pending else _SLICE_S
            self._receive(limit.left_s(at_most=wait_s))
            if len(self._stdout) > MOST_OUTPUT:
                raise self._too_much(MOST_OUTPUT, "on stdout")
        return self._finish(limit)

    def take(self) -> bytes | None:
        """Return what stdout has now, without waiting: empty for nothing yet, None after its end."""
        if not self._has_ended_output:
            self._receive(0.0)
        if not self._stdout and self._has_ended_output:
            return None
        data = bytes(self._stdout)
        self._stdout.clear()
        return data

    def fileno(self) -> int:
        """File descriptor that polls readable when `take` has something to give, or the end to tell."""
        if self._readiness is None:
            self._readiness = Readiness()
            self._channel.in_buffer.set_event(self._readiness)
        return self._readiness.fileno()

    def finish(self, timeout_s: float = 5.0) -> CompletedCommand:
        """Wait for the end of a command whose output has ended; stdout is what was not read yet.

        Raises HostUnreachable, BecomeFailed, CommandTimedOut.
        """
        return self._finish(TimeLimit(timeout_s))

    def explain_end(self) -> HostError:
        """Say why the command ended, as the error to raise."""
        try:
            completed = self.finish()
        except HostError as exc:
            return exc
        target = self._owner.target
        if is_python(target, self.argv[0]):
            missing = python_failure(target, self.argv[0], completed.exit_status, completed.stderr)
            if missing is not None:
                return missing
        return CommandFailed(
            f"{target.name}: {self._name()} ended with exit status {completed.exit_status}",
            context=completed.stderr.decode("utf-8", "replace").splitlines()[-20:],
        )

    def _finish(self, limit: TimeLimit) -> CompletedCommand:
        command = self._command
        exit_status = self._wait_for_exit(limit)
        stdout, stderr = bytes(self._stdout), self._stderr.read()
        failure = become.start_failure(self._owner.target, command, exit_status, stdout, stderr)
        if failure is not None:
            raise failure
        return CompletedCommand(exit_status, stdout, command.strip_markers(stderr))

    def close(self) -> None:
        """End the stream; a command that reads its stdin sees its end. Can be called again."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._receive_stderr()
            self._channel.close()
        except (OSError, EOFError):
            pass  # The connection is gone, and the stream with it.
        finally:
            if self._readiness is not None:
                self._readiness.close()
            self._owner.release()

    def _name(self) -> str:
        """The program alone: an argument may be a password of the user's."""
        return f"`{become.shown_program(self.argv)}`"

    def _send(self, data: bytes, limit: TimeLimit) -> None:
        pending = memoryview(data)
        while pending:
            if self._channel.closed or self._has_ended_output:
                raise self.explain_end()
            pending = pending[self._send_some(pending) :]
            if pending:
                self._check(limit)
                self._receive(_SLICE_SENDING_S)

    def _send_some(self, pending: memoryview) -> int:
        """Send what the window takes, without waiting."""
        if not self._channel.send_ready():
            return 0
        try:
            self._channel.settimeout(_SLICE_S)
            return self._channel.send(bytes(pending[:_CHUNK]))
        except TimeoutError:
            return 0
        except (OSError, EOFError):
            # The command closed its stdin or ended; its exit status tells more than a broken pipe.
            return len(pending)

    def _receive(self, wait_s: float) -> None:
        """Take what stdout has, waiting up to `wait_s` for it, and what stderr has."""
        # Asked before the look: what the process wrote before it ended can come between the look and the question.
        has_exited = self._channel.exit_status_ready()
        try:
            self._channel.settimeout(wait_s)
            data = self._channel.recv(_CHUNK)
        except TimeoutError:
            data = None
        if data:
            self._stdout += data
        is_silent = not self._receive_stderr() and not data
        if data == b"" or self._has_fallen_silent(is_silent=has_exited and is_silent):
            self._has_ended_output = True
            self._has_no_end = data == b"" and not self._channel.eof_received

    def _has_fallen_silent(self, *, is_silent: bool) -> bool:
        """Count a look at a process that has exited; True after enough of them without any output."""
        now = time.monotonic()
        if not is_silent:
            self._silent_looks = 0
            return False
        if self._silent_looks == 0:
            self._silent_since = now
        self._silent_looks += 1
        return self._silent_looks >= _SILENT_LOOKS and now - self._silent_since > _SILENCE_AFTER_EXIT_S

    def _receive_stderr(self) -> bool:
        has_received = False
        while self._channel.recv_stderr_ready():
            data = self._channel.recv_stderr(_CHUNK)
            if not data:
                break
            self._stderr.add(data)
            has_received = True
        return has_received

    def _wait_for_exit(self, limit: TimeLimit) -> int:
        while not self._channel.status_event.wait(_SLICE_S):
            self._receive_stderr()
            self._check(limit)
        self._receive_stderr()
        if (self._has_no_end or self._channel.exit_status == -1) and self._is_cut_off():
            raise self._owner.dropped(f"{self._name()} was running; it may have gone on")
        return int(self._channel.exit_status)

    def _is_cut_off(self) -> bool:
        """True if the connection is gone: an exit status can come before the rest of the output, which is then lost."""
        transport = self._channel.get_transport()
        for _ in range(_CUT_OFF_TRIES):
            if not transport.is_active():
                return True
            if not self._has_no_end:
                break
            time.sleep(_SLICE_SENDING_S)  # paramiko ends the channels first, and the transport after them
        return False

    def _too_much(self, most: int, where: str) -> TooMuchOutput:
        consequence = self._end()
        self._stdout.clear()
        return TooMuchOutput(
            f"{self._owner.target.name}: {self._name()} sent more than {most // 2**20} MiB {where}; {consequence}",
            hint="look on the host for what prints so much: a login script, or a program in place of the one meant",
        )

    def _end(self) -> str:
        """Close the channel and end the command on the host. Returns a sentence that says what came of it."""
        self._receive_stderr()
        groups = self._command.process_groups(self._stderr.read())
        self.close()
        return str(self._owner.end_groups(groups) if groups else Ending.UNKNOWN)

    def _check(self, limit: TimeLimit) -> None:
        if not limit.is_over():
            return
        consequence = self._end()
        raise CommandTimedOut(
            f"{self._owner.target.name}: {self._name()} did not answer within {limit.seconds:g} s; {consequence}",
            context=self._command.strip_markers(self._stderr.read()).decode("utf-8", "replace").splitlines()[-20:],
            hint="look on the host for what it waits for: a lock, a driver that hangs (dmesg), or a slow disk;"
            " --command-timeout gives it longer",
        )
