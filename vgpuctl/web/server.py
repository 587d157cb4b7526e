# SPDX-License-Identifier: Apache-2.0
"""The HTTP server under `vgpuctl exporter`, `vgpuctl web` and `vgpuctl serve-extender`."""

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cheroot.makefile import StreamReader, StreamWriter
from cheroot.ssl import Adapter
from cheroot.wsgi import Server

from vgpuctl.errors import UsageError
from vgpuctl.web.connections import ConnectionThreads
from vgpuctl.web.protection import Protection

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

_LOGGER = logging.getLogger("vgpuctl.web")
_MOST_HEADER_BYTES = 64 * 1024
MOST_BODY_BYTES = 64 * 1024
_MOST_WAITING = 128
_STOP_S = 1


@contextmanager
def serving(
    app: "WSGIApplication",
    address: str,
    port: int,
    protection: Protection | None = None,
    threads: ConnectionThreads | None = None,
    *,
    most_body_bytes: int = MOST_BODY_BYTES,
) -> Iterator[int]:
    """Serve an application during the block. Yields the port; port 0 takes a free one.

    Raises UsageError when the address cannot be listened on.
    """
    server = _Server((address, port), app, server_name="vgpuctl")
    server.max_request_header_size = _MOST_HEADER_BYTES
    server.max_request_body_size = most_body_bytes
    server.request_queue_size = _MOST_WAITING
    server.shutdown_timeout = _STOP_S
    server.requests = ConnectionThreads() if threads is None else threads
    if protection is not None and protection.context is not None:
        server.ssl_adapter = _TlsAdapter(protection)
    try:
        server.prepare()
    except OSError as error:
        raise UsageError(
            f"{address} port {port} cannot be listened on: {error}", hint="choose another one with --listen"
        ) from error
    thread = threading.Thread(target=server.serve, name="http", daemon=True)
    thread.start()
    try:
        yield server.bind_addr[1]
    finally:
        server.stop()
        thread.join()


class _Server(Server):
    """cheroot's server, whose messages go into the log. It would write them to stderr, also those that any client can
    cause."""

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
