# SPDX-License-Identifier: Apache-2.0
"""Read the pixels of a PNG file as QEMU and our own writer make it: 8 bits a channel, RGB, not interlaced."""

import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Picture:
    """rows: of pixels, each (red, green, blue)."""

    width: int
    height: int
    rows: tuple[tuple[tuple[int, int, int], ...], ...]

    def cell(self, column: int, line: int, width: int = 8, height: int = 16) -> tuple[tuple[bool, ...], ...]:
        """A character cell of a text console: which of its pixels are bright."""
        return tuple(
            tuple(sum(self.rows[y][x]) > 255 for x in range(column * width, (column + 1) * width))
            for y in range(line * height, (line + 1) * height)
        )


def read_png(data: bytes) -> Picture:
    """Decode a whole file; every checksum has to be right."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = [], 8
    while at < len(data):
        size, name = struct.unpack_from(">I4s", data, at)
        content = data[at + 8 : at + 8 + size]
        assert struct.unpack_from(">I", data, at + 8 + size)[0] == zlib.crc32(name + content)
        chunks.append((name, content))
        at += 12 + size
    assert chunks[0][0] == b"IHDR" and chunks[-1][0] == b"IEND"
    width, height, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
    assert rest == [8, 2, 0, 0, 0]
    lines = zlib.decompress(b"".join(content for name, content in chunks if name == b"IDAT"))
    rows, before, size = [], bytes(width * 3), width * 3 + 1
    for start, end in pairwise(range(0, size * (height + 1), size)):
        before = _unfiltered(lines[start], lines[start + 1 : end], before)
        rows.append(tuple(zip(before[::3], before[1::3], before[2::3], strict=True)))
    return Picture(width, height, tuple(rows))


def _unfiltered(kind: int, line: bytes, above: bytes) -> bytes:
    """Undo the filter of a line (PNG, third edition, section 9)."""
    made = bytearray()
    for at, byte in enumerate(line):
        left = made[at - 3] if at >= 3 else 0
        corner = above[at - 3] if at >= 3 else 0
        up = above[at]
        made.append((byte + (0, left, up, (left + up) // 2, _paeth(left, up, corner))[kind]) & 0xFF)
    return bytes(made)


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    return min((left, up, corner), key=lambda one: abs(guess - one))
