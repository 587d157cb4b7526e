# SPDX-License-Identifier: Apache-2.0
"""A port whose connections lead to another port, and later to a third: an address behind which the machine changes."""

import contextlib
import socket
import threading


class TcpLine:
    """Forwards every connection to `target`, a port on loopback, as it is when the connection is made."""

    def __init__(self, target: int) -> None:
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _address = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=_copy, args=(one, other), daemon=True).start()


def _copy(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
