# SPDX-License-Identifier: Apache-2.0
"""libvirt's library on a simulated host, as far as a program needs it that opens a guest's display.

The lab's libvirtd has the test driver, which has no displays. Here a running guest with a VNC display has one that
shows an even grey (RFB 3.8, RFC 6143).
"""

import json
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

WIDTH, HEIGHT = 640, 480
GREY = 0x60
_NAME = b"simulated"
_PIXEL_FORMAT = struct.pack(">BBBBHHHBBB3x", 32, 24, 0, 1, 255, 255, 255, 16, 8, 0)
# Bytes of the messages of a client after their type: pixel format, encodings, update, key, pointer, clipboard.
_SIZES = {0: 19, 2: 3, 3: 9, 4: 7, 5: 5, 6: 7}


class SimulatedLibrary:
    """The answer to `ctypes.CDLL("libvirt.so.0")` on a simulated host. folder: the host's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._error = b""
        self.virConnectOpen = self._function(lambda _uri: 1)
        self.virConnectClose = self._function(lambda _connection: 0)
        self.virDomainFree = self._function(lambda _domain: 0)
        self.virSetErrorFunc = self._function(lambda _data, _handler: None)
        self.virGetLastErrorMessage = self._function(lambda: self._error)
        self.virDomainLookupByUUIDString = self._function(lambda _connection, uuid: self._find(uuid))
        self.virDomainOpenGraphicsFD = self._function(lambda domain, index, _flags: self._open(domain, index))
        self._domains: list[ElementTree.Element] = []

    @staticmethod
    def _function(work: Callable[..., Any]) -> Any:
        """A function that takes the attributes which ctypes' functions have."""
        return work

    def _find(self, uuid: bytes) -> int:
        """The number of a running domain, from 1; 0 for an unknown one."""
        running = json.loads((self._folder / "state.json").read_text()).get("domains", {})
        definition = self._folder / "libvirt" / f"{uuid.decode()}.xml"
        if uuid.decode() not in running or not definition.is_file():
            self._error = b"Domain not found"
            return 0
        self._domains.append(ElementTree.fromstring(definition.read_text()))
        return len(self._domains)

    def _open(self, domain: int, index: int) -> int:
        graphics = self._domains[domain - 1].findall("devices/graphics")
        if index >= len(graphics) or graphics[index].get("type") != "vnc":
            self._error = b"internal error: no graphics backend with index %d" % index
            return -1
        ours, theirs = socket.socketpair()
        threading.Thread(target=serve, args=(ours,), daemon=True).start()
        return theirs.detach()


def serve(client: socket.socket) -> None:
    """Speak to one viewer until it goes."""
    with client:
        try:
            client.sendall(b"RFB 003.008\n")
            _read(client, 12)
            client.sendall(b"\x01\x01")
            _read(client, 1)
            client.sendall(bytes(4))
            _read(client, 1)
            client.sendall(struct.pack(">HH", WIDTH, HEIGHT) + _PIXEL_FORMAT + struct.pack(">I", len(_NAME)) + _NAME)
            while True:
                _answer(client)
        except (ConnectionError, KeyError):
            return


def _answer(client: socket.socket) -> None:
    """Take one message; the whole screen is the answer to a request that is not for changes alone."""
    kind = _read(client, 1)[0]
    body = _read(client, _SIZES[kind])
    if kind == 2:
        _read(client, 4 * struct.unpack(">xH", body)[0])
    elif kind == 6:
        _read(client, struct.unpack(">3xI", body)[0])
    elif kind == 3 and not body[0]:
        head = struct.pack(">BxHHHHHi", 0, 1, 0, 0, WIDTH, HEIGHT, 0)
        client.sendall(head + bytes((GREY, GREY, GREY, 0)) * (WIDTH * HEIGHT))


def _read(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = client.recv(min(size - len(data), 1 << 16))
        if not part:
            raise ConnectionError
        data += part
    return data
