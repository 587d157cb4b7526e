# SPDX-License-Identifier: Apache-2.0
"""Clients that are slow, silent or many, against the server of the exporter and the pages."""

import contextlib
import socket
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask

from tests.self_signed import make_certificate
from vgpuctl.web.connections import REQUEST_S, ConnectionThreads
from vgpuctl.web.protection import Protection
from vgpuctl.web.server import serving

LARGE = b"x" * (8 << 20)


def _app() -> Flask:
    app = Flask(__name__, static_folder=None)
    app.add_url_rule("/", view_func=lambda: "here", endpoint="here")
    app.add_url_rule("/large", view_func=lambda: LARGE, endpoint="large")
    return app


MOST = 8
"""Connections at the same time. With 64, as test_all_servers.py has them of every server, each case takes 10 s."""


@pytest.fixture
def port() -> Iterator[int]:
    with serving(_app(), "127.0.0.1", 0, threads=ConnectionThreads(most=MOST)) as taken:
        yield taken


@contextlib.contextmanager
def clients(port: int, number: int, sends: bytes) -> Iterator[list[socket.socket]]:
    """Clients that send something and then neither send nor read."""
    with contextlib.ExitStack() as opened:
        sockets = []
        for _ in range(number):
            one = opened.enter_context(socket.socket())
            one.settimeout(60)  # for a busy machine
            # A small buffer, so that an answer is soon more than what the kernel keeps.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect(("127.0.0.1", port))
            one.sendall(sends)
            sockets.append(one)
        yield sockets


def _answer(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
        return bytes(answer.read())


@pytest.mark.parametrize(
    "sends",
    [b"", b"G", b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"],
    ids=["silent", "first byte", "headers without end", "does not read"],
)
def test_slow_clients_keep_nobody_waiting(port: int, sends: bytes) -> None:
    with clients(port, MOST + 6, sends):
        assert _answer(port) == b"here"


def test_a_request_that_takes_too_long_is_ended() -> None:
    now = [0.0]
    threads = ConnectionThreads(clock=lambda: now[0])
    with serving(_app(), "127.0.0.1", 0, threads=threads) as port, clients(port, 1, b"GET / HT") as [slow]:
        assert _answer(port) == b"here"
        threads.end_late()
        slow.sendall(b"TP/1.1\r\n")
        now[0] = REQUEST_S + 1
        threads.end_late()
        assert slow.recv(100) == b""


def test_the_end_of_the_server_ends_its_threads() -> None:
    with contextlib.ExitStack() as opened:
        with serving(_app(), "127.0.0.1", 0, threads=ConnectionThreads()) as port:
            opened.enter_context(clients(port, 3, b"GET / HT"))
            assert _answer(port) == b"here"
        assert not [one.name for one in threading.enumerate() if one.name.startswith("http")]


def test_clients_without_tls_are_not_told_on_stderr_and_keep_nobody_waiting(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make_certificate(tmp_path, "server", "server")
    config = tmp_path / "web.yml"
    config.write_text("tls_server_config: {cert_file: server.pem, key_file: server.key}")
    with serving(_app(), "127.0.0.1", 0, Protection(config)) as port:
        for sends in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"a" * 5000, b"\x00" * 10, b""):
            with clients(port, 2, sends) as sockets:
                for one in sockets if sends else ():
                    with contextlib.suppress(ConnectionError):
                        while one.recv(4096):
                            pass
        trusted = ssl.create_default_context(cafile=str(tmp_path / "server.pem"))
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/", timeout=30, context=trusted) as answer:
            assert answer.read() == b"here"
    assert capfd.readouterr().err == ""
