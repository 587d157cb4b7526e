# SPDX-License-Identifier: Apache-2.0
"""Who is at the other end of a loopback connection: never another user, also when that end is closed already."""

import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vgpuctl.hosts.graphics_tunnel import GraphicsListener, is_own_peer
from vgpuctl.listening.sockets import LOOPBACK

_NOBODY = 65534
_FIN_WAIT2, _TIME_WAIT = "05", "06"


def _leave(client: socket.socket) -> None:
    client.close()


def _reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def _as_nobody(port: int, end: Callable[[socket.socket], None]) -> None:
    """Connect as another user, send, and end the connection before it is accepted."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.setgroups([])
            os.setuid(_NOBODY)
            client = socket.socket()
            client.connect((LOOPBACK, port))
            client.send(b"RFB 003.008\n\x01\x01")
            end(client)
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _ended(port: int) -> bool:
    """True when the other end is a row without a user in the table of connections."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return any(row[2].endswith(f":{port:04X}") and row[3] in (_FIN_WAIT2, _TIME_WAIT) and row[7] == "0" for row in rows)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server((LOOPBACK, 0)) as made:
        yield made


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_what_another_user_sent_and_left_behind_is_not_of_root(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    _as_nobody(port, _leave)
    until = time.monotonic() + 10
    while not _ended(port) and time.monotonic() < until:
        time.sleep(0.01)
    assert _ended(port)
    client, _ = listener.accept()
    with client:
        assert client.recv(4, socket.MSG_PEEK) == b"RFB "
        assert not is_own_peer(client)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_connection_that_was_reset_before_it_is_accepted_is_refused(listener: socket.socket) -> None:
    _as_nobody(listener.getsockname()[1], _reset)
    client, _ = listener.accept()
    with client:
        assert not is_own_peer(client)


def test_a_reset_connection_ends_no_listener() -> None:
    refused = list[str]()

    def serve(client: socket.socket) -> None:
        client.sendall(b"hello")

    with GraphicsListener(serve, refused.append) as made:
        for _ in range(20):
            client = socket.socket()
            client.connect((LOOPBACK, made.port))
            _reset(client)
        with socket.create_connection((LOOPBACK, made.port), 10) as viewer:
            assert viewer.recv(5) == b"hello"
