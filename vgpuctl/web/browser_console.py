# SPDX-License-Identifier: Apache-2.0
"""A guest's display in a browser of this machine: the files of noVNC, and a WebSocket to the guest's VNC server.

It serves this machine's loopback. Every path begins with a token that one browser session uses up; the Host header
must be ours, against DNS rebinding, and a WebSocket's Origin too, against pages of others.
"""

import base64
import hashlib
import hmac
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlencode, urlsplit

from vgpuctl.errors import FileNotTrusted, UsageError
from vgpuctl.hosts.graphics_tunnel import Client, GraphicsListener
from vgpuctl.listening.requests import RequestHead, RequestRefusal, Rules, read_fields, refuse
from vgpuctl.listening.sockets import LOOPBACK
from vgpuctl.trusted_files import NAMED, judge, opened
from vgpuctl.web.websocket import WebSocketClient, accept_key, is_key

NOVNC_FOLDER = Path("/usr/share/novnc")
_PAGE = "vnc.html"
_SOCKET = "websockify"
_MOST_CONNECTIONS = 32
_MOST_HEAD = 16 * 1024
_MOST_FILE = 8 * 2**20
_REQUEST_TIMEOUT_S = 10.0
_INLINE_SCRIPT = re.compile(rb"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL)
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff": "font/woff",
    ".ttf": "font/ttf",
    ".mp3": "audio/mpeg",
    ".oga": "audio/ogg",
}


@dataclass(frozen=True)
class _HttpRequest:
    """The head of a request. path: without the query. rest: what came after it."""

    head: RequestHead
    path: str
    headers: Mapping[str, str]
    rest: bytes


class _Refused(Exception):
    """The answer to a request that is not served."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.answer = RequestRefusal(status, "display", status.phrase).answer()


class BrowserConsole:
    """The server, as a context manager. serve: copies between a viewer and the guest. failed: told of what went wrong.

    The browser has timeout_s to open the WebSocket. `ended` is set when it did not, and when its session is over.
    """

    def __init__(
        self, serve: Callable[[Client], None], failed: Callable[[str], None], *, novnc: Path, timeout_s: float
    ) -> None:
        self._serve_viewer = serve
        self._failed = failed
        self._folder = require_novnc(novnc)
        self._timeout_s = timeout_s
        self._token = secrets.token_urlsafe(24)
        self._is_used = False
        self._lock = threading.Lock()
        self._listener = GraphicsListener(self._answer, failed, most=_MOST_CONNECTIONS)
        self._timer = threading.Timer(timeout_s, self._expire)
        self._timer.daemon = True
        self.ended = threading.Event()

    @property
    def url(self) -> str:
        """The page to open, with the token. noVNC 1.6 adds the path to the page's own, unless it is told a host."""
        address = {"host": LOOPBACK, "port": self._listener.port, "path": f"{self._token}/{_SOCKET}"}
        query = urlencode({**address, "autoconnect": "true", "resize": "scale"})
        return f"{self._origin}/{self._token}/{_PAGE}?{query}"

    @property
    def _origin(self) -> str:
        return f"http://{LOOPBACK}:{self._listener.port}"

    def __enter__(self) -> Self:
        self._listener.__enter__()
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._listener.__exit__(kind, exc, trace)

    def _expire(self) -> None:
        with self._lock:
            if self._is_used:
                return
            self._is_used = True
        self._failed(f"no browser opened the page within {self._timeout_s:g} s; its address is void now")
        self.ended.set()

    def _answer(self, client: socket.socket) -> None:
        try:
            request = _read_request(client)
            refusal = refuse(request.head, Rules())
            if refusal is not None:
                client.sendall(refusal.answer())
                return
            inner = self._inner_path(request)
            if inner == _SOCKET:
                self._open_socket(client, request)
                return
            client.sendall(self._file(inner))
        except _Refused as refused:
            client.sendall(refused.answer)

    def _inner_path(self, request: _HttpRequest) -> str:
        """The path below the token. Raises _Refused."""
        if request.headers.get("host") != self._origin.removeprefix("http://"):
            raise _Refused(HTTPStatus.MISDIRECTED_REQUEST)
        if request.head.method != "GET":
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED)
        token, _, inner = request.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            raise _Refused(HTTPStatus.NOT_FOUND)
        return inner

    def _file(self, inner: str) -> bytes:
        name = unquote(inner)
        if "\0" in name:
            raise _Refused(HTTPStatus.BAD_REQUEST)
        try:
            path = (self._folder / name).resolve()
            kind = _TYPES.get(path.suffix)
            if kind is None or not path.is_relative_to(self._folder) or not path.is_file():
                raise _Refused(HTTPStatus.NOT_FOUND)
            with opened(path, NAMED) as file:
                content = file.read(_MOST_FILE + 1)
        except (OSError, FileNotTrusted) as error:  # a name that is too long, or a file that this user may not read
            raise _Refused(HTTPStatus.NOT_FOUND) from error
        if len(content) > _MOST_FILE:
            raise _Refused(HTTPStatus.NOT_FOUND)
        sources = f"default-src 'self'; script-src 'self'{_inline_scripts(content)}"
        sources += f"; connect-src 'self' ws://{self._origin.removeprefix('http://')}"
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Content-Security-Policy": f"{sources}; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
            "frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        return _head(HTTPStatus.OK, headers) + content

    def _open_socket(self, client: socket.socket, request: _HttpRequest) -> None:
        """Answer the handshake and serve the viewer. The token is used up, whatever comes of it."""
        headers = request.headers
        key = headers.get("sec-websocket-key", "")
        if headers.get("origin") != self._origin:
            raise _Refused(HTTPStatus.FORBIDDEN)
        is_upgrade = headers.get("upgrade", "").lower() == "websocket" and headers.get("sec-websocket-version") == "13"
        if not is_upgrade or not is_key(key):
            raise _Refused(HTTPStatus.BAD_REQUEST)
        with self._lock:
            if self._is_used:
                raise _Refused(HTTPStatus.GONE)
            self._is_used = True
        self._timer.cancel()
        answer = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": accept_key(key)}
        if "binary" in [one.strip() for one in headers.get("sec-websocket-protocol", "").split(",")]:
            answer["Sec-WebSocket-Protocol"] = "binary"
        client.sendall(_head(HTTPStatus.SWITCHING_PROTOCOLS, answer))
        client.settimeout(None)
        viewer = WebSocketClient(client, request.rest)
        try:
            self._serve_viewer(viewer)
            viewer.close()
        finally:
            self.ended.set()


def _inline_scripts(page: bytes) -> str:
    """The sources of the scripts that stand in the page itself, as in noVNC 1.6, for a Content-Security-Policy."""
    digests = (hashlib.sha256(script).digest() for script in _INLINE_SCRIPT.findall(page))
    return "".join(f" 'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def _read_request(client: socket.socket) -> _HttpRequest:
    """Read the head of a request, of a bounded size. Raises _Refused, and OSError when it does not come in time."""
    held, until = b"", time.monotonic() + _REQUEST_TIMEOUT_S
    while b"\r\n\r\n" not in held:
        # Of all of it: a byte now and then keeps no place.
        client.settimeout(max(0.001, until - time.monotonic()))
        if len(held) > _MOST_HEAD:
            raise _Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        data = client.recv(_MOST_HEAD)
        if not data:
            raise _Refused(HTTPStatus.BAD_REQUEST)
        held += data
    head, _, rest = held.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    words = first.decode("latin-1").split(" ")
    fields, malformed = read_fields(lines)
    headers = dict(fields)
    if len(words) != 3 or malformed is not None or len(headers) < len(fields):
        raise _Refused(HTTPStatus.BAD_REQUEST)
    try:
        path = urlsplit(words[1]).path
    except ValueError as error:
        raise _Refused(HTTPStatus.BAD_REQUEST) from error
    return _HttpRequest(RequestHead(words[0], words[1], words[2], fields, LOOPBACK), path, headers, rest)


def _head(status: HTTPStatus, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {status.phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    if status is not HTTPStatus.SWITCHING_PROTOCOLS:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode()


def require_novnc(folder: Path) -> Path:
    """The folder of noVNC's files. Raises UsageError when it has no page."""
    if not (folder / _PAGE).is_file():
        raise UsageError(
            f"noVNC is not installed: {folder} has no {_PAGE}",
            hint="install it (Debian and Ubuntu: apt-get install novnc), or name its folder with --novnc",
        )
    judge(folder / _PAGE, NAMED)
    return folder.resolve()
