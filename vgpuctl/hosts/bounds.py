# SPDX-License-Identifier: Apache-2.0
"""How much a host may send: a line, an output, its errors, an SSH packet, before the login, and in a session."""

import contextlib
import errno
import os
import socket
import struct
from typing import Protocol

from vgpuctl.byte_budget import ByteBudget
from vgpuctl.hosts.statistics import ConnectionStatistics

LONGEST_LINE = 32 * 2**20
"""Facts of 16 GPUs with every VF, vGPU type and MIG profile have under 2 MiB."""
MOST_OUTPUT = 32 * 2**20
KEPT_ERRORS = 64 * 1024
"""Of stderr, at its beginning and at its end."""
# OpenSSH's PACKET_MAX_SIZE is 256 KiB (packet.h); paramiko takes what the other side announces, up to 4 GiB.
LARGEST_PACKET = 2**20
_KEPT_GREETING = 256
# A banner, the key exchange and the login with its own banner; OpenSSH needs some 10 KiB.
MOST_BEFORE_LOGIN = 4 * 2**20
# Of one host in one command, over all its connections: 250 readings of the largest host, or a console that prints.
MOST_IN_SESSION = 512 * 2**20
LASTING_PER_SECOND = 2**20
"""What it may send on top for as long as the command lasts: a controller runs for months."""
# A desktop of 3840x2160 that is redrawn by VNC without compression has 32 MiB.
MOST_PICTURES = 2**30
PICTURES_PER_SECOND = 64 * 2**20


class KeptErrors:
    """The stderr of a command, of which the beginning and the end are kept."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def add(self, data: bytes) -> None:
        """Append what came."""
        room = KEPT_ERRORS - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        surplus = len(self._tail) - KEPT_ERRORS
        if surplus > 0:
            self._left_out += surplus
            del self._tail[:surplus]

    def read(self) -> bytes:
        """Return what was kept, with a line in the middle that says how much was not."""
        if not self._left_out:
            return bytes(self._head + self._tail)
        return b"%s\n[vgpuctl: %d bytes left out]\n%s" % (self._head, self._left_out, self._tail)


class SocketLike(Protocol):
    """The methods that paramiko calls on the stream under a transport: a socket, or a channel through a jump host."""

    def send(self, data: bytes, /) -> int: ...
    def recv(self, size: int, /) -> bytes: ...
    def close(self) -> None: ...
    def shutdown(self, how: int, /) -> None: ...
    def settimeout(self, value: float | None, /) -> None: ...


class WatchedStream:
    """The stream under one SSH transport: bounded and, for the target's own, counted.

    A host that sends too much gets its connection closed.
    """

    def __init__(self, stream: SocketLike, budget: ByteBudget, statistics: ConnectionStatistics | None = None) -> None:
        self._stream = stream
        self._budget = budget
        self._statistics = statistics
        self._before_login: ByteBudget | None = ByteBudget("the host", MOST_BEFORE_LOGIN)
        self.greeting = b""
        """The first bytes received: a server that refuses the start sends its reason before its version."""
        self.has_ended = False
        # paramiko's Transport.stop_thread reads this attribute of its socket.
        self._closed = False

    def log_in_done(self) -> None:
        """From here on single packets and the whole session are bounded."""
        self._before_login = None

    def send(self, data: bytes) -> int:
        """Send as `socket.send`."""
        size = self._stream.send(data)
        if self._statistics is not None:
            self._statistics.count_sent(size)
        return size

    def recv(self, size: int) -> bytes:
        """Receive as `socket.recv`. Raises OSError(EMSGSIZE) for more than a host may send."""
        if size > LARGEST_PACKET:
            raise OSError(errno.EMSGSIZE, f"{os.strerror(errno.EMSGSIZE)}: the host announces a packet of {size} bytes")
        try:
            data = self._stream.recv(size)
        except ConnectionError:
            self.has_ended = True
            raise
        self.has_ended = not data
        if len(self.greeting) < _KEPT_GREETING:
            self.greeting += data[:_KEPT_GREETING]
        if self._statistics is not None:
            self._statistics.count_received(len(data))
        if self._before_login is not None:
            self._before_login.take(len(data))
        self._budget.take(len(data))
        return data

    def settimeout(self, value: float | None) -> None:
        """Set the time-out as `socket.settimeout`."""
        self._stream.settimeout(value)

    def shutdown(self, how: int) -> None:
        """Shut down as `socket.shutdown`."""
        self._stream.shutdown(how)

    def give_up(self) -> None:
        """Have `close` reset the connection: a host that floods would be waited for a minute by the kernel."""
        with contextlib.suppress(OSError):  # paramiko's thread has closed it
            if isinstance(self._stream, socket.socket):
                self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def close(self) -> None:
        """Close the stream."""
        self._closed = True
        self._stream.close()
