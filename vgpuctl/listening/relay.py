# SPDX-License-Identifier: Apache-2.0
"""A front for a server that makes its own connections: it accepts them within bounds and passes the bytes on.

gRPC's server limits calls, but neither its connections nor those of one client. It listens on a unix socket in a
private folder, and this is what others reach.
"""

import contextlib
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vgpuctl.listening.hosts import client_of
from vgpuctl.listening.requests import Refusals

_LOGGER = logging.getLogger("vgpuctl.listening")
MOST_CONNECTIONS = 64
MOST_OF_CLIENT = 32
_CHUNK = 64 * 1024


class Relay:
    """Copies between each client of a listening socket and a new connection to a unix socket.

    One connection too many ends the one that was quiet longest: of the client itself if it has as many as one may
    have, else of the clients that have most.
    """

    def __init__(
        self,
        listener: socket.socket,
        inner: Path,
        refusals: Refusals,
        *,
        most: int = MOST_CONNECTIONS,
        most_of_client: int = MOST_OF_CLIENT,
    ) -> None:
        self._listener, self._inner, self._refusals = listener, inner, refusals
        self._most, self._most_of_client = most, most_of_client
        self._lock = threading.Lock()
        self._clients: dict[socket.socket, _Client] = {}

    @contextmanager
    def running(self) -> Iterator[int]:
        """Accept during the block. Yields the port."""
        thread = threading.Thread(target=self._accept, name="relay", daemon=True)
        thread.start()
        try:
            yield int(self._listener.getsockname()[1])
        finally:
            _shut(self._listener)  # wakes accept()
            self._listener.close()
            thread.join()
            with self._lock:
                for client in self._clients:
                    _shut(client)

    def _accept(self) -> None:
        while True:
            try:
                client, address = self._listener.accept()
            except OSError:
                return
            known = _Client(client_of(address[0]), time.monotonic())
            with self._lock:
                self._make_room(known.name)
                self._clients[client] = known
            threading.Thread(target=self._serve, args=(client, known), name="relay-client", daemon=True).start()

    def _make_room(self, name: str) -> None:
        numbers = Counter(one.name for one in self._clients.values())
        if numbers[name] >= self._most_of_client:
            among = {name}
        elif len(self._clients) >= self._most:
            among = {one for one, number in numbers.items() if number == max(numbers.values())}
        else:
            return
        quiet = [(one.heard_at, client) for client, one in self._clients.items() if one.name in among]
        ended = min(quiet, key=lambda one: one[0])[1]
        self._refusals.add("connections")
        _LOGGER.info("connection ended", extra={"fields": {"client": self._clients[ended].name, **self._counts()}})
        del self._clients[ended]
        _shut(ended)

    def _counts(self) -> dict[str, object]:
        return {"connections": len(self._clients), "refused": dict(self._refusals.counts())}

    def _serve(self, client: socket.socket, known: "_Client") -> None:
        try:
            with client, socket.socket(socket.AF_UNIX) as inner:
                inner.connect(str(self._inner))
                back = threading.Thread(target=_copy, args=(inner, client, known), name="relay-answer", daemon=True)
                back.start()
                _copy(client, inner, known)
                back.join()
        except OSError:
            pass  # The server has ended.
        finally:
            with self._lock:
                self._clients.pop(client, None)


@dataclass
class _Client:
    """Who has a connection (`hosts.client_of`), and when bytes went over it last. Seconds, monotonic."""

    name: str
    heard_at: float


def _copy(source: socket.socket, target: socket.socket, known: _Client) -> None:
    """Copy until one of both ends; then both end."""
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            known.heard_at = time.monotonic()
            target.sendall(data)
    _shut(source)
    _shut(target)


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
