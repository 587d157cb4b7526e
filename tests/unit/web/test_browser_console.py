# SPDX-License-Identifier: Apache-2.0
"""The server of a display in a browser, as a hostile client meets it."""

import base64
import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from vgpuctl.web.browser_console import BrowserConsole

_SHAKE = (
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
    + "A" * 22
    + "==\r\n"
)


@pytest.fixture
def console(tmp_path: Path) -> Iterator[BrowserConsole]:
    (tmp_path / "novnc").mkdir()
    (tmp_path / "novnc" / "vnc.html").write_text("<p>page")
    (tmp_path / "secret.html").write_text("secret")
    (tmp_path / "novnc" / "link.html").symlink_to(tmp_path / "secret.html")
    failures = list[str]()
    with BrowserConsole(lambda _client: None, failures.append, novnc=tmp_path / "novnc", timeout_s=60) as made:
        yield made
    assert failures == []


def _status(console: BrowserConsole, first: str, headers: str = "") -> int:
    address = urlsplit(console.url)
    with socket.create_connection((str(address.hostname), address.port or 0), 10) as client:
        host = "" if "Host:" in headers else f"Host: {address.netloc}\r\n"
        client.sendall(f"{first} HTTP/1.1\r\n{host}{headers}\r\n".encode("latin-1"))
        return int(client.recv(4096).split(b" ")[1])


def test_scripts_that_stand_in_its_page_are_run_and_no_others(tmp_path: Path) -> None:
    """noVNC 1.6 begins in one."""
    (tmp_path / "vnc.html").write_text('<script type="module" src="app/ui.js"></script><script>UI.start()</script>')
    with (
        BrowserConsole(lambda _client: None, lambda _why: None, novnc=tmp_path, timeout_s=60) as console,
        urlopen(console.url, timeout=10) as answer,
    ):
        policy = answer.headers["Content-Security-Policy"]
    digest = base64.b64encode(hashlib.sha256(b"UI.start()").digest()).decode()
    assert f"; script-src 'self' 'sha256-{digest}';" in policy


def test_only_its_own_page_of_its_own_name_is_served(console: BrowserConsole) -> None:
    address = urlsplit(console.url)
    folder = address.path.rpartition("/")[0]
    for first, headers, status in (
        (f"GET {address.path}", "", 200),
        (f"GET {address.path}", "Host: evil.example\r\n", 421),
        (f"GET {address.path}", f"Host: localhost:{address.port}\r\n", 421),
        (f"POST {address.path}", "", 405),
        ("GET //[", "", 400),
        ("GET /vnc.html", "", 404),
        (f"GET {folder}/..%2fsecret.html", "", 404),
        (f"GET {folder}/../secret.html", "", 404),
        (f"GET {folder}/link.html", "", 404),
        (f"GET {folder}/%00.html", "", 400),
        (f"GET {folder}/{'a' * 300}.html", "", 404),
        (f"GET {address.path}", "X: 1\r\nX: 2\r\n", 400),
        (f"GET {folder}/websockify", _SHAKE, 403),
        (f"GET {folder}/websockify", _SHAKE + "Origin: http://evil.example\r\n", 403),
        (f"GET {folder}/websockify", f"Origin: http://{address.netloc}\r\n", 400),
        (f"GET {folder}/websockify", _SHAKE + f"Origin: http://{address.netloc}\r\n", 101),
        (f"GET {folder}/websockify", _SHAKE + f"Origin: http://{address.netloc}\r\n", 410),
    ):
        assert (first[:40], _status(console, first, headers)) == (first[:40], status)
