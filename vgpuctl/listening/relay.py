# SPDX-License-Identifier: Apache-2.0
"""A front for a server that makes its own connections: it accepts them within bounds and passes the bytes on.

gRPC's server limits calls, but neither its connections nor those of one client. It listens on a unix socket in a
private folder, and this is what others reach.
"""

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vgpuctl.listening.hosts import client_of
from vgpuctl.listening.requests import Refusals

MOST_CONNECTIONS = 64
MOST_OF_CLIENT = 32
_CHUNK = 64 * 1024


class Relay:
    """Copies between each client of a listening socket and a new connection to a unix socket.

    One connection too many is closed: those that are open belong to clients at work.
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
        self._clients: dict[socket.socket, str] = {}

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
            name = client_of(address[0])
            with self._lock:
                numbers = Counter(self._clients.values())
                is_full = len(self._clients) >= self._most or numbers[name] >= self._most_of_client
                if not is_full:
                    self._clients[client] = name
            if is_full:
                self._refusals.add("connections")
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client,), name="relay-client", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            with client, socket.socket(socket.AF_UNIX) as inner:
                inner.connect(str(self._inner))
                back = threading.Thread(target=_copy, args=(inner, client), name="relay-answer", daemon=True)
                back.start()
                _copy(client, inner)
                back.join()
        except OSError:
            pass  # The server has ended.
        finally:
            with self._lock:
                del self._clients[client]


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy until one of both ends; then both end."""
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    _shut(source)
    _shut(target)


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
