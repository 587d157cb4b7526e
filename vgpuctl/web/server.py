# SPDX-License-Identifier: Apache-2.0
"""The HTTP server under both `vgpuctl exporter` and `vgpuctl web`."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cheroot.wsgi import Server
from flask import Flask


@contextmanager
def serving(app: Flask, address: str, port: int) -> Iterator[int]:
    """Serve an application during the block. Yields the port; port 0 takes a free one."""
    server = Server((address, port), app)
    server.prepare()
    thread = threading.Thread(target=server.serve, name="http", daemon=True)
    thread.start()
    try:
        yield server.bind_addr[1]
    finally:
        server.stop()
        thread.join()
