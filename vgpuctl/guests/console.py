# SPDX-License-Identifier: Apache-2.0
"""A guest's serial console as a stream of bytes, and the pump between it and a terminal.

The terminal's mode is the caller's business (cli/console.py puts it into raw mode and back).
"""

import contextlib
import os
import select
import threading
from enum import StrEnum
from typing import Any

from vgpuctl.guests.libvirt_errors import libvirt_module, translate, translated

ESCAPE = b"\x1d"  # Ctrl-], as in telnet and virsh
_CHUNK_BYTES = 4096


class ConsoleEnd(StrEnum):
    """Why an attached console ended."""

    DETACHED = "detached"
    GUEST_CLOSED = "guest-closed"
    INPUT_CLOSED = "input-closed"


class Console:
    """One open console. Reading and writing may happen in two threads."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._closed = threading.Event()

    def read(self, max_bytes: int = _CHUNK_BYTES) -> bytes:
        """Wait for output of the guest; b"" when the guest or `close` ended the console."""
        library = libvirt_module()
        try:
            data = self._stream.recv(max_bytes)
        except library.libvirtError as refused:
            if self._closed.is_set():
                return b""
            raise translate(refused, "read the console") from refused
        return data if isinstance(data, bytes) else b""

    def write(self, data: bytes) -> None:
        """Type into the guest."""
        while data:
            with translated("write to the console"):
                sent = self._stream.send(data)
            data = data[sent:]

    def close(self) -> None:
        """Leave the console; a `read` that waits in another thread ends."""
        if self._closed.is_set():
            return
        self._closed.set()
        library = libvirt_module()
        # The guest, or the connection, may have ended the stream before.
        with contextlib.suppress(library.libvirtError):
            self._stream.abort()

    def attach(self, input_fd: int, output_fd: int) -> ConsoleEnd:
        """Copy both ways until Ctrl-], the end of the input or the end of the guest; then the console is closed."""
        wake_read, wake_write = os.pipe()
        output = threading.Thread(target=self._copy_output, args=(output_fd, wake_write), daemon=True)
        output.start()
        try:
            return self._copy_input(input_fd, wake_read)
        finally:
            self.close()
            output.join(timeout=5)
            os.close(wake_read)

    def _copy_output(self, output_fd: int, wake_fd: int) -> None:
        try:
            while data := self.read():
                while data:
                    data = data[os.write(output_fd, data) :]
        finally:
            os.close(wake_fd)

    def _copy_input(self, input_fd: int, wake_fd: int) -> ConsoleEnd:
        while True:
            readable, _, _ = select.select([input_fd, wake_fd], [], [])
            if wake_fd in readable:
                return ConsoleEnd.GUEST_CLOSED
            data = os.read(input_fd, _CHUNK_BYTES)
            if not data:
                return ConsoleEnd.INPUT_CLOSED
            before, escape, _ = data.partition(ESCAPE)
            if before:
                self.write(before)
            if escape:
                return ConsoleEnd.DETACHED
