# SPDX-License-Identifier: Apache-2.0
"""Commands on a terminal of their own."""

import contextlib
import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.operator import Operator


@dataclass
class Terminal:
    """A command on a terminal of its own."""

    process: "subprocess.Popen[bytes]"
    master: int
    seen: bytes = field(default=b"")

    def wait_for(self, *words: str) -> bytes:
        """Read until every word was shown since the last call; what was shown."""
        end, start = time.monotonic() + 60, len(self.seen)
        while not all(word.encode() in self.seen[start:] for word in words):
            assert time.monotonic() < end, self.seen[-3000:]
            self.read()
        return self.seen[start:]

    def read(self) -> None:
        ready, _, _ = select.select([self.master], [], [], 0.2)
        if ready:
            with contextlib.suppress(OSError):
                self.seen += os.read(self.master, 65536)

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def ends_with(self, code: int) -> None:
        """Wait for the end."""
        end = time.monotonic() + 60
        while self.process.poll() is None:
            assert time.monotonic() < end
            self.read()
        self.read()
        assert self.process.returncode == code, self.seen[-2000:]


@contextlib.contextmanager
def on_terminal(operator: Operator, *arguments: str, **variables: str) -> Iterator[Terminal]:
    """Start a command on a terminal of 80 columns. variables: of its environment; an empty one is left out."""
    master, slave = pty.openpty()
    environment: dict[str, Any] = {**operator.environment, "TERM": "xterm", "COLUMNS": "80", "LINES": "24", **variables}
    process = subprocess.Popen(
        [*operator.command, *arguments],
        env={key: value for key, value in environment.items() if value},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)
