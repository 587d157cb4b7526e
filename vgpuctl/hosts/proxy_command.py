# SPDX-License-Identifier: Apache-2.0
"""ssh_config's ProxyCommand: a program whose stdin and stdout are the stream to the host."""

import os
import socket
import subprocess
import threading
from collections.abc import Collection

from vgpuctl.errors import HostUnreachable
from vgpuctl.hosts.bounds import KeptErrors
from vgpuctl.model.secret import ProgramLine
from vgpuctl.trusted_programs import judge_shell_line

_SOON_S = 0.3
_CHUNK = 64 * 1024
_END_TIMEOUT_S = 2.0


class ProxyCommand:
    """The running program and our end of its stream.

    The command is the user's own shell line, by ssh_config's definition; it runs as `exec LINE` in /bin/sh. It may hold
    a password, and the program may repeat it: neither is shown. known: words that may be shown, as the host's name.
    """

    def __init__(self, line: ProgramLine, *, known: Collection[str] = ()) -> None:
        judge_shell_line(line.reveal())
        self._line = line
        self._known = known
        self._errors = KeptErrors()
        self.stream, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                # Ctrl-C at a terminal, and its end, reach every process of its group; a rollback needs this one.
                ["/bin/sh", "-c", f"trap '' INT HUP; exec {line.reveal()}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
            )
        self._reader = threading.Thread(target=self._read_errors, name="proxy-errors", daemon=True)
        self._reader.start()

    def _read_errors(self) -> None:
        """Read what the program complains of while it runs; a pipe that is full would stop it."""
        assert self._process.stderr is not None
        with self._process.stderr as pipe:
            while data := os.read(pipe.fileno(), _CHUNK):
                self._errors.add(data)

    def failure(self, name: str, timeout_s: float) -> HostUnreachable:
        """Say how the program failed to give us an SSH server: it may fail itself, or the host behind it."""
        try:
            status = self._process.wait(timeout=_SOON_S)
            ended = f"ended with exit status {status}"
        except subprocess.TimeoutExpired:
            ended = f"led to no SSH server within {timeout_s:g} s"
        self._reader.join(_SOON_S)
        said = self._line.clean(self._errors.read().decode("utf-8", "replace"), known=self._known).splitlines()
        return HostUnreachable(
            f"{name}: ProxyCommand {self._line.shown} {ended}",
            context=said[-10:],
            hint="try it by hand: an SSH server's first line, SSH-2.0-..., must come out",
        )

    def close(self) -> None:
        """End the program and close the stream."""
        self.stream.close()
        try:
            self._process.wait(timeout=_SOON_S)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            try:
                self._process.wait(timeout=_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        # A child of the program may keep the pipe open; the thread ends with it, or with us.
        self._reader.join(_SOON_S)
