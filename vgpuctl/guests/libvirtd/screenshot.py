# SPDX-License-Identifier: Apache-2.0
"""A picture of a guest's screen, as PNG: libvirt sends PNG from QEMU 7.1 on, and PPM before.

The host is not trusted: size and time are bounded, and a picture that is not what it says is refused.
"""

import contextlib
import re
import struct
import time
import zlib
from dataclasses import dataclass
from typing import Any

from vgpuctl.errors import GuestError
from vgpuctl.guests.libvirt_errors import libvirt_module, translated

MOST_BYTES = 128 * 2**20
"""A screen of 7680x4320 has 100 MB as PPM."""
LARGEST_SIDE = 16384
TIMEOUT_S = 60.0

_CHUNK_BYTES = 256 * 1024
_POLL_S = 0.01
_WOULD_BLOCK = -2  # virStreamRecv of a non-blocking stream, libvirt-stream.c
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_HEADER = struct.Struct(">I4sIIBBBBB")
_PPM_HEADER = re.compile(rb"P6\s+(?:#[^\n]*\n\s*)*([0-9]{1,5})\s+([0-9]{1,5})\s+255\s")


@dataclass(frozen=True)
class Screenshot:
    """A picture. png: the whole file."""

    png: bytes
    width: int
    height: int


def receive_screenshot(connection: Any, domain: Any, screen: int, *, where: str, timeout_s: float = TIMEOUT_S) -> bytes:
    """Have libvirt take a picture and read it to its end. Raises GuestError."""
    library = libvirt_module()
    deadline = time.monotonic() + timeout_s
    with translated(f"take a picture of {where}"):
        stream = connection.newStream(library.VIR_STREAM_NONBLOCK)
        try:
            domain.screenshot(stream, screen, 0)
            picture = _read(stream, deadline, where)
            stream.finish()
        except BaseException:
            with contextlib.suppress(library.libvirtError):
                stream.abort()
            raise
    return picture


def _read(stream: Any, deadline: float, where: str) -> bytes:
    picture = bytearray()
    while True:
        data = stream.recv(_CHUNK_BYTES)
        if data == b"":
            return bytes(picture)
        if data == _WOULD_BLOCK:
            if time.monotonic() > deadline:
                raise GuestError(f"the picture of {where} did not come in time; {len(picture)} bytes of it did")
            time.sleep(_POLL_S)
            continue
        picture += data
        if len(picture) > MOST_BYTES:
            raise GuestError(f"the picture of {where} has more than {MOST_BYTES // 2**20} MiB")


def as_screenshot(picture: bytes, *, where: str) -> Screenshot:
    """Read a PNG or PPM file. Raises GuestError for anything else, and for one whose size cannot be."""
    if picture.startswith(_PNG) and len(picture) >= len(_PNG) + _PNG_HEADER.size:
        length, name, width, height, *_rest = _PNG_HEADER.unpack_from(picture, len(_PNG))
        if (length, name) == (13, b"IHDR") and _is_size(width, height):
            return Screenshot(picture, width, height)
    match = _PPM_HEADER.match(picture)
    if match is not None:
        width, height = int(match[1]), int(match[2])
        pixels = memoryview(picture)[match.end() :]
        if _is_size(width, height) and len(pixels) == width * height * 3:
            return Screenshot(_png_of(pixels, width, height), width, height)
    raise GuestError(f"the picture of {where} is neither PNG nor PPM: it begins with {picture[:16]!a}")


def _is_size(width: int, height: int) -> bool:
    return 0 < width <= LARGEST_SIDE and 0 < height <= LARGEST_SIDE


def _png_of(pixels: memoryview, width: int, height: int) -> bytes:
    """Pack 24-bit pixels (PNG, third edition, section 11): each line begins with the number of its filter."""
    row = width * 3
    lines = b"".join(b"\0" + bytes(pixels[start : start + row]) for start in range(0, row * height, row))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return _PNG + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(lines, 6)) + _chunk(b"IEND", b"")


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
