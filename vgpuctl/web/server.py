# SPDX-License-Identifier: Apache-2.0
"""The HTTP server under `vgpuctl serve exporter`, `vgpuctl serve web` and `vgpuctl serve extender`."""

import logging
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cheroot.makefile import StreamReader, StreamWriter
from cheroot.server import HTTPConnection, HTTPRequest
from cheroot.ssl import Adapter
from cheroot.wsgi import Server

from vgpuctl.listening.requests import (
    MOST_BODY_BYTES,
    Refusals,
    RequestHead,
    RequestRefusal,
    Rules,
    read_fields,
    refuse,
)
from vgpuctl.listening.sockets import listen_on
from vgpuctl.web.basic_auth import with_users
from vgpuctl.web.connections import ConnectionThreads
from vgpuctl.web.protection import Protection

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

_LOGGER = logging.getLogger("vgpuctl.web")
_MOST_HEADER_BYTES = 64 * 1024
_SMALL_LENGTH = re.compile(r"[0-9]{1,6}")
_STOP_S = 1


@dataclass(frozen=True)
class ApplicationRules:
    """Requests that an application accepts. By default it accepts only requests without a body.

    content_types: of bodies. has_own_login: it asks the users of the web-config for their passwords itself.
    knows_tenants: it keeps users who are bound to tenants to these (`basic_auth.TENANTS`).
    """

    content_types: frozenset[str] = frozenset()
    most_body_bytes: int = MOST_BODY_BYTES
    has_own_login: bool = False
    knows_tenants: bool = False


@contextmanager
def serving(
    app: "WSGIApplication",
    address: str,
    port: int,
    protection: Protection | None = None,
    threads: ConnectionThreads | None = None,
    takes: ApplicationRules = ApplicationRules(),
) -> Iterator[int]:
    """Serve an application during the block. Yields the port; port 0 takes a free one.

    Raises UsageError when the address cannot be listened on.
    """
    server = make_server(app, address, port, protection, threads, takes)
    server.prepare()
    thread = threading.Thread(target=server.serve, name="http", daemon=True)
    thread.start()
    try:
        yield server.bind_addr[1]
    finally:
        server.stop()
        thread.join()


def make_server(
    app: "WSGIApplication",
    address: str,
    port: int,
    protection: Protection | None = None,
    threads: ConnectionThreads | None = None,
    takes: ApplicationRules = ApplicationRules(),
) -> "FrontServer":
    """A server that does not listen yet. Nothing reaches the application that the front has not let pass."""
    front = Protection(None) if protection is None else protection
    if not takes.has_own_login:
        app = with_users(app, lambda: front.config, front.logins, knows_tenants=takes.knows_tenants)
    server = FrontServer((address, port), app, server_name="vgpuctl")
    server.rules, server.refusals = Rules(front.names, takes.content_types, takes.most_body_bytes), front.refusals
    server.max_request_header_size = _MOST_HEADER_BYTES
    server.max_request_body_size = takes.most_body_bytes
    server.shutdown_timeout = _STOP_S
    server.requests = ConnectionThreads(refusals=front.refusals) if threads is None else threads
    if front.context is not None:
        server.ssl_adapter = _TlsAdapter(front)
    return server


class _JudgedRequest(HTTPRequest):
    """A request whose head the front has read and judged before cheroot goes on. cheroot joins headers of one name or
    takes the last of them, so it would be too late afterwards."""

    def __init__(self, server: Any, conn: Any, *more: Any, **named: Any) -> None:
        super().__init__(server, conn, *more, **named)
        self.header_reader = lambda _stream, headers: headers

    def read_request_line(self) -> bool:
        try:
            return bool(super().read_request_line())  # type: ignore[no-untyped-call]  # of cheroot
        except ValueError:  # urllib's, for brackets
            self._end(RequestRefusal(HTTPStatus.BAD_REQUEST, "malformed", "the address is malformed"), {})
            return False

    def read_request_headers(self) -> bool:
        lines = []
        while (line := self.rfile.readline()) != b"\r\n":
            if not line:
                return False  # The client went.
            lines.append(line)
        fields, refusal = read_fields(lines)
        if refusal is None:
            arrived_at = self.conn.socket.getsockname()[0]
            head = RequestHead(
                self.method.decode("latin-1"),
                self.uri.decode("latin-1"),
                self.request_protocol.decode("latin-1"),
                fields,
                arrived_at,
                has_tls=self.scheme == b"https",
            )
            refusal = refuse(head, self.server.rules)
        if refusal is not None:
            self._end(refusal, dict(fields))
            return False
        for name, value in fields:
            key, given = name.title().encode("latin-1"), value.encode("latin-1")
            before = self.inheaders.get(key)
            joint = b"; " if name == "cookie" else b", "
            self.inheaders[key] = given if before is None else joint.join((before, given))
        return bool(super().read_request_headers())  # type: ignore[no-untyped-call]  # of cheroot

    def _end(self, refusal: RequestRefusal, fields: Mapping[str, str]) -> None:
        self.server.count(refusal)
        self.conn.wfile.write(refusal.answer())
        # A connection that is closed with bytes unread is reset, and the client may lose the answer.
        length = fields.get("content-length", "")
        if _SMALL_LENGTH.fullmatch(length) and "expect" not in fields:
            self.conn.rfile.read(int(length))


class _Connection(HTTPConnection):
    RequestHandlerClass = _JudgedRequest


class FrontServer(Server):
    """cheroot's server behind our front. Its messages go into the log: it would write them to stderr, also those that
    any client can cause."""

    ConnectionClass = _Connection
    rules: Rules
    refusals: Refusals

    def count(self, refusal: RequestRefusal) -> None:
        """Count a request that was refused."""
        self.refusals.add(refusal.reason)
        _LOGGER.debug("refused", extra={"fields": {"reason": refusal.reason, "message": refusal.message}})

    def bind(self, family: Any, type: Any, proto: Any = 0) -> Any:  # noqa: A002 - cheroot's name
        self.socket = listen_on(*self.bind_addr[:2])
        self.bind_addr = self.socket.getsockname()[:2]
        return self.socket

    def error_log(self, msg: str = "", level: int = logging.INFO, traceback: bool = False) -> None:
        is_clients = not traceback or isinstance(sys.exc_info()[1], OSError)
        fields = {"fields": {"error": msg}}
        _LOGGER.log(logging.DEBUG if is_clients else level, "http", extra=fields, exc_info=traceback)


class _TlsAdapter(Adapter):
    """TLS whose context is asked for with each connection. The handshake is made by the thread that reads the request:
    a client that says nothing keeps no other one waiting."""

    def __init__(self, protection: Protection) -> None:
        self._protection = protection

    def bind(self, sock: Any) -> Any:
        return sock

    def wrap(self, sock: Any) -> tuple[Any, dict[str, str]]:
        context = self._protection.context
        assert context is not None
        return context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False), self.get_environ()

    def get_environ(self) -> dict[str, str]:
        return {"wsgi.url_scheme": "https", "HTTPS": "on"}

    def makefile(self, sock: Any, mode: str = "r", bufsize: int = -1) -> Any:
        return StreamReader(sock, mode, bufsize) if "r" in mode else StreamWriter(sock, mode, bufsize)
