# SPDX-License-Identifier: Apache-2.0
"""A file descriptor that is readable while a stream of a channel has something to read, for `poll` and `select`."""

import os
import threading


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
