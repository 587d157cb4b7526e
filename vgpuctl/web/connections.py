# SPDX-License-Identifier: Apache-2.0
"""The threads of the HTTP server: one for each connection that has something to say, with bounds.

cheroot's own pool has ten threads, and a client that sends nothing, or a byte now and then, keeps one of them. Ten such
clients would stop the server for everybody, before any login. Here a client can only take the place of its own
connections, and every request has a time by which it is answered.
"""

import contextlib
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from vgpuctl.listening.hosts import client_of
from vgpuctl.listening.requests import Refusals

_LOGGER = logging.getLogger("vgpuctl.web")
MOST_CONNECTIONS = 64
REQUEST_S = 30.0
_LOOK_S = 1.0


class ConnectionThreads:
    """A replacement of cheroot's thread pool. A connection is here from its first byte until its request is answered.

    most: connections at the same time; one more ends the oldest one of the client that has most of them.
    most_of_client: those of one client (`hosts.client_of`), half of all if None; one more ends its oldest one.
    refusals: counts the connections that are ended for their number or their time.
    request_s: time of a request, from the connection or the request before it until its answer was taken.
    """

    def __init__(
        self,
        *,
        most: int = MOST_CONNECTIONS,
        most_of_client: int | None = None,
        request_s: float = REQUEST_S,
        clock: Callable[[], float] = time.monotonic,
        refusals: Refusals | None = None,
    ) -> None:
        self._most = most
        self._most_of_client = max(1, most // 2) if most_of_client is None else most_of_client
        self._refusals = Refusals() if refusals is None else refusals
        self._request_s = request_s
        self._clock = clock
        self._lock = threading.Lock()
        self._active: dict[threading.Thread, tuple[float, Any]] = {}
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._end_late_ones, name="http-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch the times."""
        self._watch.start()

    def put(self, conn: Any) -> None:
        """Serve the next request of a connection in a thread of its own."""
        thread = threading.Thread(target=self._serve, args=(conn,), name="http-request", daemon=True)
        with self._lock:
            if self._ended.is_set():
                conn.close()
                return
            self._make_room(client_of(conn.remote_addr or ""))
            self._active[thread] = (self._clock(), conn)
        thread.start()

    def stop(self, timeout: float | None = 5) -> None:
        """Read no more requests, and end every connection; answers may take this time until they were sent."""
        self._ended.set()
        limit = time.monotonic() + (timeout or 0.0)
        for how, until in ((socket.SHUT_RD, limit), (socket.SHUT_RDWR, limit + _LOOK_S)):
            with self._lock:
                active = dict(self._active)
            for _began, conn in active.values():
                _shut(conn, how)
            for thread in active:
                thread.join(max(0.0, until - time.monotonic()))
        self._watch.join()

    def end_late(self) -> None:
        """End connections whose request has taken too long."""
        with self._lock:
            late = [conn for began, conn in self._active.values() if self._clock() - began > self._request_s]
        for conn in late:
            self._refusals.add("time")
            _shut(conn)

    def _end_late_ones(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self.end_late()

    def _make_room(self, client: str) -> None:
        numbers = Counter(client_of(conn.remote_addr or "") for _began, conn in self._active.values())
        if numbers[client] >= self._most_of_client:
            ended = client
        elif len(self._active) >= self._most:
            ended = numbers.most_common(1)[0][0]
        else:
            return
        oldest = next(
            thread for thread, (_, conn) in self._active.items() if client_of(conn.remote_addr or "") == ended
        )
        self._refusals.add("connections")
        _shut(self._active.pop(oldest)[1])

    def _serve(self, conn: Any) -> None:
        is_kept = False
        try:
            is_kept = conn.communicate()
        except OSError:
            # The client went, or speaks no TLS.
            conn.server.error_log("a client was lost", traceback=True)
        except Exception:
            _LOGGER.error("unexpected error", exc_info=True)
        finally:
            with self._lock:
                is_kept = self._active.pop(threading.current_thread(), None) is not None and is_kept
            if is_kept and not self._ended.is_set():
                conn.server.put_conn(conn)
            else:
                with contextlib.suppress(OSError):
                    conn.close()


def _shut(conn: Any, how: int = socket.SHUT_RDWR) -> None:
    """Wake the thread that waits for a client, which then closes the connection itself."""
    # SSLSocket.shutdown would take the TLS state from under that thread.
    with contextlib.suppress(OSError, ValueError):
        socket.socket.shutdown(conn.socket, how)
