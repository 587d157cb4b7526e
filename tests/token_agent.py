# SPDX-License-Identifier: Apache-2.0
"""An SSH agent for tests, with the real protocol: its key signs late, refuses, or is a software token's FIDO key."""

import hashlib
import socketserver
import struct
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

_APPLICATION = b"ssh:"
_USER_PRESENT = 1
_KEY, _TOKEN_KEY = b"ssh-ed25519", b"sk-ssh-ed25519@openssh.com"


class TokenAgent:
    """One Ed25519 key behind a socket. Use it as a context.

    is_token: the key is a FIDO key. delay_s: how long a signature takes. refuses: it never signs. signed: how many
    signatures it gave.
    """

    def __init__(self, path: Path, *, is_token: bool = False, delay_s: float = 0.0, refuses: bool = False) -> None:
        self.path = path
        self.signed = 0
        self.is_token = is_token
        self._delay_s = delay_s
        self._refuses = refuses
        self._key = Ed25519PrivateKey.generate()
        agent = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while header := self.rfile.read(4):
                    answer = agent.answer(self.rfile.read(*struct.unpack(">I", header)))
                    self.wfile.write(_string(answer))

        self._server = socketserver.ThreadingUnixStreamServer(str(path), Handler)
        self._server.daemon_threads = True

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def blob(self) -> bytes:
        """The public key in SSH's wire format."""
        point = _string(self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))
        if self.is_token:
            return _string(_TOKEN_KEY) + point + _string(_APPLICATION)
        return _string(_KEY) + point

    def answer(self, message: bytes) -> bytes:
        """Answer a request for the keys or for a signature; SSH_AGENT_FAILURE to everything else."""
        if message[0] == 11:
            return b"\x0c" + struct.pack(">I", 1) + _string(self.blob) + _string(b"the token")
        if message[0] != 13 or self._refuses:
            return b"\x05"
        (size,) = struct.unpack_from(">I", message, 1)
        (length,) = struct.unpack_from(">I", message, 5 + size)
        data = message[9 + size : 9 + size + length]
        time.sleep(self._delay_s)
        self.signed += 1
        return b"\x0e" + _string(self._sign(data))

    def _sign(self, data: bytes) -> bytes:
        if not self.is_token:
            return _string(_KEY) + _string(self._key.sign(data))
        # PROTOCOL.u2f: the token signs the application's hash, its flags and counter, and the message's hash.
        state = struct.pack(">BI", _USER_PRESENT, self.signed)
        message = hashlib.sha256(_APPLICATION).digest() + state + hashlib.sha256(data).digest()
        return _string(_TOKEN_KEY) + _string(self._key.sign(message)) + state


def _string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data
