# SPDX-License-Identifier: Apache-2.0
"""A VNC client that asks for one picture (RFC 6143)."""

import socket
import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class RfbPicture:
    """rows: of pixels, each (red, green, blue)."""

    name: str
    width: int
    height: int
    rows: tuple[tuple[tuple[int, int, int], ...], ...]


def connect(address: int | str) -> socket.socket:
    """Connect to a port of the loopback, or to a unix socket."""
    if isinstance(address, str):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(20)
        client.connect(address)
        return client
    return socket.create_connection(("127.0.0.1", address), timeout=20)


def greeting(address: int | str) -> bytes:
    """The first bytes that a server says."""
    with connect(address) as client:
        return _read(client, 12)


def read_picture(address: int | str) -> RfbPicture:
    """Log in without authentication and read the whole screen."""
    with connect(address) as client:
        client.sendall(_read(client, 12))
        kinds = _read(client, _read(client, 1)[0])
        assert 1 in kinds, "the server wants a password"
        client.sendall(b"\x01")
        assert _read(client, 4) == bytes(4)
        client.sendall(b"\x01")
        width, height, _format, size = struct.unpack(">HH16sI", _read(client, 24))
        name = _read(client, size).decode()
        # 32 bits a pixel, true colour, little-endian: blue, green, red and a byte that means nothing.
        client.sendall(struct.pack(">B3xBBBBHHHBBB3x", 0, 32, 24, 0, 1, 255, 255, 255, 16, 8, 0))
        client.sendall(struct.pack(">BBHi", 2, 0, 1, 0))
        client.sendall(struct.pack(">BBHHHH", 3, 0, 0, 0, width, height))
        return RfbPicture(name, width, height, _read_update(client, width, height))


def _read_update(client: socket.socket, width: int, height: int) -> tuple[tuple[tuple[int, int, int], ...], ...]:
    rows = [[(0, 0, 0)] * width for _ in range(height)]
    kind, count = struct.unpack(">BxH", _read(client, 4))
    assert kind == 0
    for _ in range(count):
        left, top, wide, high, encoding = struct.unpack(">HHHHi", _read(client, 12))
        assert encoding == 0
        pixels = _read(client, wide * high * 4)
        for y in range(high):
            line = pixels[y * wide * 4 : (y + 1) * wide * 4]
            rows[top + y][left : left + wide] = zip(line[2::4], line[1::4], line[0::4], strict=True)
    return tuple(map(tuple, rows))


def _read(client: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = client.recv(size - len(data))
        assert part, f"the server hung up after {bytes(data)!r}"
        data += part
    return bytes(data)
