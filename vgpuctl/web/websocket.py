# SPDX-License-Identifier: Apache-2.0
"""The server's side of one WebSocket that carries bytes, by wsproto, for a VNC client in a browser."""

import base64
import socket

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Message, Ping
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, generate_accept_token

_CHUNK = 64 * 1024


class WebSocketBroken(OSError):
    """The client broke the protocol, or has ended it."""


def accept_key(key: str) -> str:
    """The answer to a client's Sec-WebSocket-Key, RFC 6455, section 4.2.2."""
    return generate_accept_token(key.encode()).decode()


def is_key(text: str) -> bool:
    """True for 16 bytes in base64, as a client has to send."""
    try:
        return len(base64.b64decode(text, validate=True)) == 16
    except ValueError:
        return False


class WebSocketClient:
    """A viewer in a browser, after the handshake. begun: bytes that came after the request."""

    def __init__(self, client: socket.socket, begun: bytes = b"") -> None:
        self._client = client
        self._connection = Connection(ConnectionType.SERVER, trailing_data=begun)

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._client.fileno()

    def receive(self) -> bytes | None:
        """The payloads that came, as one stream. A frame is passed on in parts. Raises WebSocketBroken."""
        try:
            data = self._client.recv(_CHUNK)
        except ConnectionError:
            return None
        if not data or self._connection.state is not ConnectionState.OPEN:
            return None
        self._connection.receive_data(data)
        return self._take_frames()

    def send(self, data: bytes) -> None:
        """Send bytes as one message. Raises WebSocketBroken after the client's goodbye."""
        self._say(BytesMessage(data))

    def close(self) -> None:
        """Say goodbye: a normal end."""
        self._say(CloseConnection(CloseReason.NORMAL_CLOSURE))

    def _take_frames(self) -> bytes | None:
        payloads = bytearray()
        for event in self._connection.events():
            if isinstance(event, CloseConnection):
                if self._connection.state is ConnectionState.OPEN:  # no frame of the client said it
                    raise WebSocketBroken(f"the browser broke the WebSocket protocol: {event.reason}")
                return bytes(payloads) or None
            if isinstance(event, Ping):
                self._say(event.response())
            elif isinstance(event, Message):
                payloads += event.data.encode() if isinstance(event.data, str) else event.data
        return bytes(payloads)

    def _say(self, event: Event) -> None:
        try:
            frame = self._connection.send(event)
        except LocalProtocolError as exc:
            raise WebSocketBroken(f"nothing more can be sent to the browser: {exc}") from exc
        self._client.sendall(frame)
