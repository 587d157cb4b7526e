# SPDX-License-Identifier: Apache-2.0
"""ssh_config's ProxyCommand: a program whose stdin and stdout are the stream to the host."""

import socket
import subprocess
import tempfile

from vgpuctl.errors import HostUnreachable

_SOON_S = 0.3
_END_TIMEOUT_S = 2.0


class ProxyCommand:
    """The running program and our end of its stream.

    The command is the user's own shell line, by ssh_config's definition; it runs as `exec LINE` in /bin/sh.
    """

    def __init__(self, line: str) -> None:
        self._line = line
        # A file, not a pipe: nobody has to read it while the program runs.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close())
        self.stream, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {line}"], stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=self._errors
            )

    def failure(self, name: str, timeout_s: float) -> HostUnreachable:
        """Say how the program failed to give us an SSH server."""
        try:
            status = self._process.wait(timeout=_SOON_S)
            ended = f"ended with exit status {status}"
        except subprocess.TimeoutExpired:
            ended = f"led to no SSH server within {timeout_s:g} s"
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "replace").splitlines()
        return HostUnreachable(
            f"{name}: ProxyCommand `{self._line}` {ended}",
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
        self._errors.close()
