# SPDX-License-Identifier: Apache-2.0
"""The HTTP servers as readers of what a client sends, in this process: the real parser, front and application.

A case fails on an answer of class 5xx, on one that is no HTTP, and on one that a page of another site would get.
"""

import contextlib
import json
import re
import socket
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tests.proof.fuzz_readers import Reader
from tests.stored_fleet import open_stored
from tests.unit.usecases.kubernetes.gpu_cluster import NOW, GpuCluster
from vgpuctl.model.web_config import WebConfig
from vgpuctl.usecases.kubernetes.serve_extender import Extender
from vgpuctl.usecases.running.history import PastSource
from vgpuctl.usecases.telemetry.serve_exporter import Exporter
from vgpuctl.usecases.telemetry.serve_web import PageSources
from vgpuctl.web.access import PageAccess
from vgpuctl.web.application import PAGES, make_application
from vgpuctl.web.browser_console import BrowserConsole
from vgpuctl.web.exporter_app import EXPORTER, exporter_app
from vgpuctl.web.extender_app import EXTENDER, extender_app
from vgpuctl.web.server import FrontServer, make_server

_ANSWER_S = 20
_ANSWER = re.compile(rb"HTTP/1\.[01] ([0-9]{3}) ")
_TOKEN = b"0123456789abcdef"
_LOOPBACK = re.compile(
    rb"(?i)\r\nhost:[ \t]*(?:127(?:\.[0-9]+){3}|localhost\.?|\[[0:.f17ip-]*\])(?::[0-9]+)?[ \t]*\r\n"
)


@cache
def _folder() -> Path:
    made = tempfile.TemporaryDirectory(prefix="vgpuctl-fuzz-servers-")
    _kept.append(made)
    return Path(made.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []


@cache
def _exporter() -> FrontServer:
    (_folder() / "exporter").mkdir()
    services = open_stored(_folder() / "exporter", ("gpu1",))
    made = Exporter(services, interval_s=15, history=_folder() / "h", store_only=True)
    made.read_once()
    return make_server(exporter_app(made), "127.0.0.1", 0, takes=EXPORTER)


@cache
def _pages() -> FrontServer:
    (_folder() / "pages").mkdir()
    sources = PageSources(open_stored(_folder() / "pages", ("gpu1",)), PastSource(_folder() / "h"))
    access = PageAccess(_TOKEN, has_tls=False, is_loopback=True, clock=lambda: 0.0, config=WebConfig)
    return make_server(make_application(sources, access), "127.0.0.1", 0, takes=PAGES)


@cache
def _extender() -> FrontServer:
    cluster = GpuCluster()
    cluster.add_node("n1", 1)
    cluster.add_pod("p", mem=1000)
    made = Extender(cluster, lambda: NOW, lock_wait_s=0, gang_wait_s=0)
    made.refresh()
    return make_server(extender_app(made, stale_s=1e9), "127.0.0.1", 0, takes=EXTENDER)


@cache
def _console() -> BrowserConsole:
    (_folder() / "vnc.html").write_text("<p>page")
    return BrowserConsole(lambda _client: None, lambda _why: None, novnc=_folder(), timeout_s=60)


def _talk(serve: Callable[[socket.socket], None], content: bytes) -> list[int]:
    """Send all of it over a TCP connection, serve it here, and judge what comes back. Returns the statuses."""
    answers: list[bytes] = []

    def client(address: tuple[str, int]) -> None:
        with contextlib.suppress(OSError), socket.create_connection(address, _ANSWER_S) as one:
            with contextlib.suppress(OSError):
                one.sendall(content)
                one.shutdown(socket.SHUT_WR)
            while data := one.recv(1 << 16):
                answers.append(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=client, args=(listener.getsockname()[:2],), daemon=True)
        thread.start()
        accepted, _address = listener.accept()
    accepted.settimeout(_ANSWER_S)
    with accepted:
        serve(accepted)
    thread.join()
    said = b"".join(answers)
    statuses = [int(one) for one in _ANSWER.findall(said)]
    assert not said or _ANSWER.match(said), f"no HTTP: {said[:80]!a}"
    assert all(status < 500 or status in (501, 503, 505) for status in statuses), f"answers {statuses}"
    if 200 in statuses:
        assert _LOOPBACK.search(content), "a page of another site is answered"
    return statuses


def _request(content: bytes, _where: Path, *, server: Callable[[], FrontServer]) -> Any:
    def serve(accepted: socket.socket) -> None:
        connection: Any = server().ConnectionClass(server(), accepted)
        connection.remote_addr = "127.0.0.1"
        while connection.communicate():
            pass
        connection.close()

    return _talk(serve, content)


def _viewed(content: bytes, _where: Path) -> Any:
    console = _console()

    def serve(accepted: socket.socket) -> None:
        with contextlib.suppress(OSError):
            console._answer(accepted)

    return _talk(serve, content.replace(b"PORT", str(console._listener.port).encode()).replace(b"KEY", _key(console)))


def _key(console: BrowserConsole) -> bytes:
    return console.url.split("/")[3].encode()


def _server(server: Callable[[], FrontServer], *requests: str) -> Reader:
    def read(content: bytes, where: Path) -> Any:
        return _request(content, where, server=server)

    return Reader(read, tuple(one.replace("\n", "\r\n").encode() for one in requests))


def _post(path: str, kind: str, body: str) -> str:
    return f"POST {path} HTTP/1.1\nHost: localhost:1\nContent-Type: {kind}\nContent-Length: {len(body)}\n\n{body}"


_BIND = json.dumps({"PodName": "p", "PodNamespace": "ml", "PodUID": "uid-p", "Node": "n1"})
_GET = "GET {} HTTP/1.1\nHost: 127.0.0.1:9635\nAccept: text/plain\nOrigin: http://127.0.0.1:9635\nCookie: a=b\n\n"
_VIEW = "GET /KEY/{} HTTP/1.1\nHost: 127.0.0.1:PORT\nOrigin: http://127.0.0.1:PORT\n{}\n"
_UPGRADE = "Upgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\n"
SERVER_READERS = {
    "a request to the exporter": _server(
        _exporter,
        _GET.format("/metrics"),
        _GET.format("//[::1]/metrics"),
        _GET.format("/sd/tenants/acme") + _GET.format("/probe?target=gpu1"),
        "GET /metrics/tenants/%61cme HTTP/1.0\nHost: [::1]\nAuthorization: Basic b3BzOnNlY3JldA==\n"
        "Connection: Keep-Alive\n\n",
    ),
    "a request to the pages": _server(
        _pages,
        _GET.format("/vms?tenant=acme&page=2").replace("Cookie: a=b", f"Authorization: Bearer {_TOKEN.decode()}"),
        _post("/login?to=/vms", "application/x-www-form-urlencoded; charset=utf-8", f"token={_TOKEN.decode()}"),
        _GET.format("/").replace("Cookie: a=b", "Cookie: vgpuctl_session=1.ab\nAccept-Encoding: gzip"),
    ),
    "a request to the extender": _server(
        _extender,
        _post("/v1/bind", "application/json", _BIND),
        _post("/v1/filter", "application/json", json.dumps({"Pod": {"metadata": {"name": "p"}}, "NodeNames": ["n1"]})),
        _GET.format("/metrics"),
    ),
    "a request to a display": Reader(
        _viewed,
        tuple(
            one.replace("\n", "\r\n").encode()
            for one in (_VIEW.format("vnc.html", ""), _VIEW.format("%2e%2e/x.html", _UPGRADE))
        ),
    ),
}
