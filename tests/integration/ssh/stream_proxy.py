# SPDX-License-Identifier: Apache-2.0
"""Copies stdin and stdout to and from HOST PORT, as the program of a ProxyCommand does."""

import os
import socket
import sys
import threading


def main() -> None:
    """Take a host and a port as arguments; end with the server's side."""
    server = socket.create_connection((sys.argv[1], int(sys.argv[2])))

    def send() -> None:
        while data := os.read(0, 65536):
            server.sendall(data)

    threading.Thread(target=send, daemon=True).start()
    while data := server.recv(65536):
        os.write(1, data)


if __name__ == "__main__":
    main()
