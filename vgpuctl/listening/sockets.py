# SPDX-License-Identifier: Apache-2.0
"""The only place that makes listening sockets."""

import os
import socket
from pathlib import Path

from vgpuctl.errors import UsageError

LOOPBACK = "127.0.0.1"
_MOST_WAITING = 128


def listen_on(address: str, port: int, *, backlog: int = _MOST_WAITING) -> socket.socket:
    """Listen on an address; port 0 takes a free one, `::` takes IPv4 too. Raises UsageError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    is_dual = address == "::" and socket.has_dualstack_ipv6()
    try:
        listener = socket.create_server((address, port), family=family, backlog=backlog, dualstack_ipv6=is_dual)
    except OSError as error:
        raise UsageError(
            # Python adds to the words of the system what it tried.
            f"{address} port {port} cannot be listened on: {(error.strerror or str(error)).partition(' (while ')[0]}",
            hint="choose another one with --listen",
        ) from error
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what is accepted inherits it
    return listener


def listen_at(path: Path, *, backlog: int = 16) -> socket.socket:
    """Listen on a unix socket that only this user may connect to, from its first moment on. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # bind() gives the file the socket's own mode (net/unix/af_unix.c). A umask would count for other threads too.
        os.fchmod(listener.fileno(), 0o600)
        listener.bind(str(path))
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener
