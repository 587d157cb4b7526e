# SPDX-License-Identifier: Apache-2.0
"""How much a host may send: a line, an output, its errors, an SSH packet, and everything before it has logged us in."""

import errno
import os

from vgpuctl.hosts.statistics import SocketLike

LONGEST_LINE = 32 * 2**20
"""Facts of 16 GPUs with every VF, vGPU type and MIG profile have under 2 MiB."""
MOST_OUTPUT = 32 * 2**20
KEPT_ERRORS = 64 * 1024
"""Of stderr, at its beginning and at its end."""
# OpenSSH's PACKET_MAX_SIZE is 256 KiB (packet.h); paramiko takes what the other side announces, up to 4 GiB.
LARGEST_PACKET = 2**20
# A banner, the key exchange and the login with its own banner; OpenSSH needs some 10 KiB.
MOST_BEFORE_LOGIN = 4 * 2**20


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


class BoundedStream:
    """The stream under one SSH transport; a host that sends too much gets its connection closed."""

    def __init__(self, stream: SocketLike) -> None:
        self._stream = stream
        self._before_login = 0
        self._has_logged_in = False
        # paramiko's Transport.stop_thread reads this attribute of its socket.
        self._closed = False

    def log_in_done(self) -> None:
        """From here on only single packets are bounded; what a command sends is counted by its reader."""
        self._has_logged_in = True

    def send(self, data: bytes) -> int:
        """Send as `socket.send`."""
        return self._stream.send(data)

    def recv(self, size: int) -> bytes:
        """Receive as `socket.recv`. Raises OSError(EMSGSIZE) for more than a host may send."""
        if size > LARGEST_PACKET:
            raise OSError(errno.EMSGSIZE, f"{os.strerror(errno.EMSGSIZE)}: the host announces a packet of {size} bytes")
        data = self._stream.recv(size)
        if not self._has_logged_in:
            self._before_login += len(data)
            if self._before_login > MOST_BEFORE_LOGIN:
                raise OSError(errno.EMSGSIZE, f"the host sent more than {MOST_BEFORE_LOGIN} bytes before the login")
        return data

    def settimeout(self, value: float | None) -> None:
        """Set the time-out as `socket.settimeout`."""
        self._stream.settimeout(value)

    def shutdown(self, how: int) -> None:
        """Shut down as `socket.shutdown`."""
        self._stream.shutdown(how)

    def close(self) -> None:
        """Close the stream."""
        self._closed = True
        self._stream.close()
