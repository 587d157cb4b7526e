# SPDX-License-Identifier: Apache-2.0
"""The server's side of one WebSocket that carries bytes (RFC 6455), for a VNC client in a browser."""

import base64
import hashlib
import socket
import struct
from enum import IntEnum

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CHUNK = 64 * 1024
MOST_PAYLOAD = 16 * 2**20
"""A paste into the guest's clipboard is one message; noVNC sends nothing larger."""


class Opcode(IntEnum):
    """The kinds of frames, RFC 6455, section 5.2."""

    CONTINUATION = 0x0
    TEXT = 0x1
    BINARY = 0x2
    CLOSE = 0x8
    PING = 0x9
    PONG = 0xA


class WebSocketBroken(OSError):
    """The client broke the protocol."""


def accept_key(key: str) -> str:
    """The answer to a client's Sec-WebSocket-Key, RFC 6455, section 4.2.2."""
    return base64.b64encode(hashlib.sha1(key.encode() + _MAGIC, usedforsecurity=False).digest()).decode()


def is_key(text: str) -> bool:
    """True for 16 bytes in base64, as a client has to send."""
    try:
        return len(base64.b64decode(text, validate=True)) == 16
    except ValueError:
        return False


def encode_frame(opcode: Opcode, payload: bytes) -> bytes:
    """One whole frame of the server, which masks nothing."""
    first, size = 0x80 | opcode, len(payload)
    if size < 126:
        return struct.pack(">BB", first, size) + payload
    if size < 1 << 16:
        return struct.pack(">BBH", first, 126, size) + payload
    return struct.pack(">BBQ", first, 127, size) + payload


class WebSocketClient:
    """A viewer in a browser, after the handshake. begun: bytes that came after the request."""

    def __init__(self, client: socket.socket, begun: bytes = b"") -> None:
        self._client = client
        self._held = bytearray(begun)

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._client.fileno()

    def receive(self) -> bytes | None:
        """The payloads that came, as one stream. Raises WebSocketBroken."""
        try:
            data = self._client.recv(_CHUNK)
        except ConnectionError:
            return None
        if not data:
            return None
        self._held += data
        return self._take_frames()

    def send(self, data: bytes) -> None:
        """Send bytes as one message."""
        self._client.sendall(encode_frame(Opcode.BINARY, data))

    def close(self) -> None:
        """Say goodbye: a normal end."""
        self._client.sendall(encode_frame(Opcode.CLOSE, struct.pack(">H", 1000)))

    def _take_frames(self) -> bytes | None:
        payloads = bytearray()
        while (frame := self._next_frame()) is not None:
            opcode, payload = frame
            if opcode is Opcode.CLOSE:
                return bytes(payloads) or None
            if opcode is Opcode.PING:
                self._client.sendall(encode_frame(Opcode.PONG, payload))
            elif opcode is not Opcode.PONG:
                payloads += payload
        return bytes(payloads)

    def _next_frame(self) -> tuple[Opcode, bytes] | None:
        """Take the first frame out of what is held; None until all of it is there."""
        held = self._held
        if len(held) < 2:
            return None
        opcode, is_masked, size = held[0] & 0x0F, held[1] & 0x80, held[1] & 0x7F
        if opcode not in tuple(Opcode) or held[0] & 0x70 or not is_masked:
            raise WebSocketBroken("the browser broke the WebSocket protocol")
        start = {126: 4, 127: 10}.get(size, 2)
        if len(held) < start + 4:
            return None
        if size >= 126:
            (size,) = struct.unpack_from(">H" if size == 126 else ">Q", held, 2)
        if size > MOST_PAYLOAD or (opcode >= Opcode.CLOSE and size > 125):
            raise WebSocketBroken(f"the browser sent a frame of {size} bytes")
        if len(held) < start + 4 + size:
            return None
        payload = _unmasked(held[start + 4 : start + 4 + size], bytes(held[start : start + 4]))
        del held[: start + 4 + size]
        return Opcode(opcode), payload


def _unmasked(payload: bytearray, mask: bytes) -> bytes:
    size = len(payload)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")
