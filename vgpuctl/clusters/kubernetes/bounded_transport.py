# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 to an API server that may be hostile: each exchange has one time limit and one limit of bytes.

An exchange is name resolution, connection, TLS, request and answer. The client library under lightkube limits each read
alone, so a server that sends a byte a second would never reach a limit of it. Name resolution has the resolver's limit.
"""

import importlib
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

from lightkube.config import client_adapter

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

HTTPX: Any = vars(client_adapter)["httpx"]
"""The client library under lightkube: httpx, and httpx2 in newer releases of lightkube."""

_HTTPCORE: Any = importlib.import_module(HTTPX.__name__.replace("httpx", "httpcore"))


class AnswerRefused(Exception):
    """An answer, or an address, that is not accepted. The text completes `the API server …`."""


class NoAnswer(Exception):
    """No whole answer came. The text says why."""


class _Exchange(threading.local):
    """The exchange that this thread is in."""

    timeout_s = 0.0
    most_bytes = 0
    ends_at = 0.0
    bytes_left = 0

    def begin(self, timeout_s: float, most_bytes: int) -> None:
        self.timeout_s, self.most_bytes = timeout_s, most_bytes
        self.ends_at, self.bytes_left = time.monotonic() + timeout_s, most_bytes

    def time_left(self) -> float:
        """Seconds. Raises NoAnswer when there are none."""
        left = self.ends_at - time.monotonic()
        if left <= 0:
            raise NoAnswer(f"it had not answered in full after {self.timeout_s:g} s")
        return left

    def count(self, size: int) -> None:
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise AnswerRefused(f"sent more than {self.most_bytes} bytes")


class _Stream:
    """A connection whose reads and writes end with the exchange. Has the methods of httpcore's NetworkStream."""

    def __init__(self, inner: Any, exchange: _Exchange) -> None:
        self._inner = inner
        self._exchange = exchange

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read what there is."""
        data: bytes = self._inner.read(max_bytes, self._exchange.time_left())
        self._exchange.count(len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all of it."""
        self._inner.write(buffer, self._exchange.time_left())

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> "_Stream":
        """Go on with TLS."""
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, self._exchange.time_left()), self._exchange)

    def get_extra_info(self, info: str) -> Any:
        """A property of the connection, by httpcore's name for it."""
        return self._inner.get_extra_info(info)

    def close(self) -> None:
        """Close it."""
        self._inner.close()


class _Network:
    """Opens connections. Has the methods of httpcore's NetworkBackend.

    check: raises AnswerRefused for an address that must not be reached; the address that was checked is the one used.
    """

    def __init__(self, exchange: _Exchange, check: Callable[[IpAddress], None] | None) -> None:
        self._inner = _HTTPCORE.SyncBackend()
        self._exchange = exchange
        self._check = check

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> _Stream:
        """Connect to the first address of the host that answers."""
        try:
            found = [one[4][0] for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        except (OSError, UnicodeError) as error:
            raise NoAnswer(f"{host} has no address: {error}") from error
        addresses = list(dict.fromkeys(str(one) for one in found))
        if self._check is not None:
            for address in addresses:
                self._check(ipaddress.ip_address(address))
        failure: Exception = NoAnswer(f"{host} has no address")
        for address in addresses:
            try:
                inner = self._inner.connect_tcp(address, port, self._exchange.time_left(), **options)
            except (_HTTPCORE.ConnectError, _HTTPCORE.ConnectTimeout) as error:
                failure = error
            else:
                return _Stream(inner, self._exchange)
        raise failure

    def connect_unix_socket(self, path: str, *_more: Any, **_options: Any) -> _Stream:
        """Refuse: an API server has an address."""
        raise AnswerRefused(f"has no address but the socket {path}")


class BoundedTransport:
    """A transport for the client library under lightkube, for many threads.

    Returns an answer only when it is whole. Raises NoAnswer and AnswerRefused. A compressed answer is refused, since it
    was not asked for and would have two sizes.
    """

    def __init__(
        self,
        ssl_context: ssl.SSLContext,
        *,
        timeout_s: float,
        most_bytes: int,
        check: Callable[[IpAddress], None] | None = None,
    ) -> None:
        self._exchange = _Exchange()
        self._timeout_s = timeout_s
        self._most_bytes = most_bytes
        self._pool = _HTTPCORE.ConnectionPool(
            ssl_context=ssl_context,
            max_connections=100,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
            network_backend=_Network(self._exchange, check),
        )

    def handle_request(self, request: Any) -> Any:
        """Send one request and read its answer."""
        self._exchange.begin(self._timeout_s, self._most_bytes)
        request.headers["Accept-Encoding"] = "identity"  # in place of the library's own `gzip, deflate`
        url = request.url
        address = _HTTPCORE.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        limits = dict.fromkeys(("pool", "connect", "read", "write"), self._timeout_s)
        try:
            with self._pool.stream(
                request.method,
                address,
                headers=request.headers.raw,
                content=request.content,
                extensions={"timeout": limits},
            ) as answer:
                for name, value in answer.headers:
                    if name.lower() == b"content-encoding" and value.strip().lower() != b"identity":
                        raise AnswerRefused(f"answered in the coding {value[:40]!r}, which was not asked for")
                body = b"".join(answer.iter_stream())
        except _HTTPCORE.TimeoutException as error:
            raise NoAnswer(f"it had not answered in full after {self._timeout_s:g} s") from error
        except (_HTTPCORE.NetworkError, _HTTPCORE.ProtocolError, OSError) as error:
            raise NoAnswer(str(error) or type(error).__name__) from error
        return HTTPX.Response(answer.status, content=body)  # no headers: no cookie is kept, no redirect followed

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()
