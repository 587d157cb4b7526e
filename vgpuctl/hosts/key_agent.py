# SPDX-License-Identifier: Apache-2.0
"""An SSH agent: the keys that it holds, and signatures by them (draft-ietf-sshm-ssh-agent).

Signing may take long: a FIDO token waits for a touch, a smart card for its PIN, an agent for its owner's consent.
"""

import logging
import socket
import struct
import threading

from vgpuctl.hosts.public_keys import PublicKey, read_strings

_LOGGER = logging.getLogger("vgpuctl.hosts")
_CONNECT_TIMEOUT_S = 5.0
SIGN_TIMEOUT_S = 60.0
_SILENT_S = 3.0
_LARGEST_MESSAGE = 256 * 1024
_MOST_KEYS = 256
_REQUEST_IDENTITIES, _IDENTITIES_ANSWER, _SIGN_REQUEST, _SIGN_RESPONSE = 11, 12, 13, 14
_FLAGS = {"rsa-sha2-256": 2, "rsa-sha2-512": 4}


class AgentFailure(Exception):
    """The agent does not answer, or not as an agent does."""


class KeyAgent:
    """A connected agent. One thread uses it at a time."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(_CONNECT_TIMEOUT_S)
            self._socket.connect(path)
        except OSError as exc:
            self._socket.close()
            raise AgentFailure(exc.strerror or str(exc)) from exc

    def close(self) -> None:
        """End the connection. Can be called again."""
        self._socket.close()

    def keys(self) -> list["AgentKey"]:
        """List the keys. Raises AgentFailure."""
        kind, body = self._ask(bytes([_REQUEST_IDENTITIES]), _CONNECT_TIMEOUT_S)
        try:
            (count,) = struct.unpack_from(">I", body)
            if kind != _IDENTITIES_ANSWER or count > _MOST_KEYS:
                raise AgentFailure("it does not list its keys")
            fields, _ = read_strings(body[4:], 2 * count)
            keys = []
            for blob, comment in zip(fields[::2], fields[1::2], strict=True):
                public = PublicKey.of_blob(blob)
                keys.append(AgentKey(self, public, public.plain, comment.decode("utf-8", "replace")))
            return keys
        except (struct.error, ValueError) as exc:
            raise AgentFailure(f"its list of keys cannot be read: {exc}") from exc

    def sign(self, blob: bytes, data: bytes, flags: int) -> bytes:
        """Return a signature over `data`. Raises AgentFailure; after a time-out the agent cannot be used again."""
        message = bytes([_SIGN_REQUEST]) + _string(blob) + _string(data) + struct.pack(">I", flags)
        kind, body = self._ask(message, SIGN_TIMEOUT_S)
        if kind != _SIGN_RESPONSE:
            raise AgentFailure("it refused to sign")
        try:
            (signature,), _ = read_strings(body, 1)
        except ValueError as exc:
            raise AgentFailure(f"its signature cannot be read: {exc}") from exc
        return signature

    def _ask(self, message: bytes, timeout_s: float) -> tuple[int, bytes]:
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(_string(message))
            (size,) = struct.unpack(">I", self._read(4))
            if not 1 <= size <= _LARGEST_MESSAGE:
                raise AgentFailure(f"it announces an answer of {size} bytes")
            answer = self._read(size)
        except TimeoutError as exc:
            self.close()  # the answer may still come, and would be taken for the next one
            raise AgentFailure(f"no answer within {timeout_s:g} s") from exc
        except OSError as exc:
            raise AgentFailure(exc.strerror or str(exc)) from exc
        return answer[0], answer[1:]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise AgentFailure("it closed the connection")
            data += chunk
        return data


class AgentKey:
    """A key of an agent as paramiko's Transport.auth_publickey takes it.

    public: as the agent has it, which can be a certificate. plain: the key itself. public_blob: the certificate to
    log in with instead, in paramiko's form.
    failure: why the last signature failed; the server then gets an empty one and refuses it, and the login goes on
    with the next key.
    """

    def __init__(self, agent: KeyAgent, public: PublicKey, plain: PublicKey, comment: str) -> None:
        self.public = public
        self.plain = plain
        self.comment = comment
        self.public_blob: object | None = None
        self.failure: str | None = None
        self._agent = agent

    @property
    def fingerprint(self) -> str:
        """As `ssh-add -l` prints it."""
        return self.plain.fingerprint

    def get_name(self) -> str:
        """Return the key's type."""
        return self.public.kind

    def asbytes(self) -> bytes:
        """Return the key as the agent names it."""
        return self.public.blob

    def sign_ssh_data(self, data: bytes, algorithm: str | None = None) -> bytes:
        """Sign. A warning tells the user when it takes long."""
        self.failure = None
        patience = threading.Timer(_SILENT_S, _LOGGER.warning, [_WAITING, self.comment or self.fingerprint])
        patience.daemon = True
        patience.start()
        try:
            flags = next((flag for name, flag in _FLAGS.items() if (algorithm or "").startswith(name)), 0)
            return self._agent.sign(self.public.blob, data, flags)
        except AgentFailure as exc:
            self.failure = str(exc)
            return b""
        finally:
            patience.cancel()


_WAITING = "the SSH agent has not signed yet with key %s: touch the token, type its PIN or confirm"


def _string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data
