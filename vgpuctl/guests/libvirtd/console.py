# SPDX-License-Identifier: Apache-2.0
"""A guest's serial console as a stream of bytes, and the pump between it and a terminal.

The terminal's mode is the caller's business (cli/display/console.py puts it into raw mode and back).
"""

import contextlib
import os
import queue
import select
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from vgpuctl.errors import GuestError
from vgpuctl.guests.libvirt_errors import libvirt_module, translated

ESCAPE = b"\x1d"  # Ctrl-], as in telnet and virsh
_CHUNK_BYTES = 4096
_WOULD_BLOCK = -2  # what a non-blocking stream's recv and send answer (virStreamRecv in libvirt-stream.c)
_POLL_S = 0.01
_WRITE_LIMIT_S = 30.0


class ConsoleEnd(StrEnum):
    """Why an attached console ended."""

    DETACHED = "detached"
    GUEST_CLOSED = "guest-closed"
    INPUT_CLOSED = "input-closed"


class Console:
    """One open console over a non-blocking stream; libvirt's event loop feeds `read`.

    A blocking stream will not do: one thread that waits in recv and another that aborts wait for each other for ever.
    """

    def __init__(self, stream: Any) -> None:
        library = libvirt_module()
        self._stream = stream
        self._output: queue.Queue[bytes] = queue.Queue()
        self._ended = threading.Event()
        self._is_open = True
        events = library.VIR_STREAM_EVENT_READABLE | library.VIR_STREAM_EVENT_HANGUP | library.VIR_STREAM_EVENT_ERROR
        with translated("watch the console"):
            stream.eventAddCallback(events, self._on_event, None)

    @property
    def has_ended(self) -> bool:
        """True if no more output will come."""
        return self._ended.is_set() and self._output.empty()

    def read(self, timeout_s: float | None = None) -> bytes:
        """Wait for output of the guest; b"" when the guest or `close` ended the console, or the time is over."""
        if self.has_ended:
            return b""
        try:
            return self._output.get(timeout=timeout_s)
        except queue.Empty:
            return b""

    def write(self, data: bytes) -> None:
        """Type into the guest. Raises GuestError when the console has ended or the guest takes nothing for 30 s."""
        deadline = time.monotonic() + _WRITE_LIMIT_S
        while data:
            if self._ended.is_set():
                raise GuestError("cannot write to the console: it has ended")
            with translated("write to the console"):
                sent = self._stream.send(data)
            if sent == _WOULD_BLOCK:
                if time.monotonic() > deadline:
                    raise GuestError(f"cannot write to the console: the guest takes nothing for {_WRITE_LIMIT_S:.0f} s")
                time.sleep(_POLL_S)
                continue
            data = data[sent:]

    def close(self) -> None:
        """Leave the console; a `read` that waits in another thread ends."""
        if not self._is_open:
            return
        self._is_open = False
        library = libvirt_module()
        # The guest, or the connection, may have ended the stream before.
        with contextlib.suppress(library.libvirtError):
            self._stream.eventRemoveCallback()
        with contextlib.suppress(library.libvirtError):
            self._stream.abort()
        self._end()

    def attach(
        self, input_fd: int, output_fd: int, *, show: Callable[[bytes], bytes] = lambda data: data
    ) -> ConsoleEnd:
        """Copy both ways until Ctrl-], the end of the input or the end of the guest; then the console is closed.

        show: turns what the guest printed into what is written.
        """
        wake_read, wake_write = os.pipe()
        output = threading.Thread(target=self._copy_output, args=(output_fd, wake_write, show), daemon=True)
        output.start()
        try:
            return self._copy_input(input_fd, wake_read)
        finally:
            self.close()
            output.join(timeout=5)
            os.close(wake_read)

    def _copy_output(self, output_fd: int, wake_fd: int, show: Callable[[bytes], bytes]) -> None:
        try:
            while data := self.read():
                data = show(data)
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

    def _on_event(self, stream: Any, events: int, _opaque: object) -> None:
        """Take what there is; called by the event loop's thread."""
        library = libvirt_module()
        try:
            if events & library.VIR_STREAM_EVENT_READABLE:
                while isinstance(data := stream.recv(_CHUNK_BYTES), bytes) and data:
                    self._output.put(data)
                if data == b"":
                    self._end()
            if events & (library.VIR_STREAM_EVENT_HANGUP | library.VIR_STREAM_EVENT_ERROR):
                self._end()
        except library.libvirtError:
            # The guest is gone, or close() has come first: both are the end of the output.
            self._end()
        if self._ended.is_set():
            with contextlib.suppress(library.libvirtError):
                stream.eventRemoveCallback()

    def _end(self) -> None:
        if not self._ended.is_set():
            self._ended.set()
            self._output.put(b"")
