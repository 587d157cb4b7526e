# SPDX-License-Identifier: Apache-2.0
"""Public keys and OpenSSH's user certificates (PROTOCOL.certkeys): their files, and the key of a certificate."""

import base64
import binascii
import hashlib
import struct
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from vgpuctl.trusted_files import NAMED, opened

_CERTIFICATE = "-cert-v01@openssh.com"
# How many fields of a certificate, after the nonce, are the public key's own.
_KEY_FIELDS = {
    "ssh-rsa": 2,
    "ssh-ed25519": 1,
    "ecdsa-sha2-nistp256": 2,
    "ecdsa-sha2-nistp384": 2,
    "ecdsa-sha2-nistp521": 2,
    "sk-ssh-ed25519@openssh.com": 2,
    "sk-ecdsa-sha2-nistp256@openssh.com": 3,
}
_MOST_BYTES = 64 * 1024
_FOR_EVER = 2**64 - 1
_SHOWN_PRINCIPALS = 5


@dataclass(frozen=True)
class PublicKey:
    """A public key, or a certificate, in SSH's wire format. kind: `ssh-ed25519`, `ssh-rsa-cert-v01@openssh.com`, ..."""

    kind: str
    blob: bytes

    @classmethod
    def of_blob(cls, blob: bytes) -> "PublicKey":
        """Read the kind from the key itself. Raises ValueError."""
        (kind,), _ = read_strings(blob, 1)
        return cls(kind.decode("ascii"), blob)

    @classmethod
    def of_file(cls, path: Path) -> "PublicKey":
        """Read a `.pub` file: kind, base64, comment. Raises OSError, ValueError, FileNotTrusted."""
        with opened(path, NAMED) as file:
            words = file.read(_MOST_BYTES).split(None, 2)
        if len(words) < 2:
            raise ValueError("not a public key")
        try:
            key = cls.of_blob(base64.b64decode(words[1], validate=True))
        except binascii.Error as exc:
            raise ValueError(f"not a public key: {exc}") from exc
        if key.kind.encode() != words[0]:
            raise ValueError(f"it calls itself {words[0][:40]!a} and holds a key of type {key.kind}")
        return key

    @property
    def is_certificate(self) -> bool:
        """True for a certificate."""
        return self.kind.endswith(_CERTIFICATE)

    @property
    def needs_token(self) -> bool:
        """True for a FIDO key: a token signs."""
        return self.kind.startswith("sk-")

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` prints it: `SHA256:...`."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")

    @property
    def plain(self) -> "PublicKey":
        """The key that a certificate is about; a key, or a certificate of a kind not known here, itself.

        Raises ValueError for one that is cut off.
        """
        if not self.is_certificate or _plain_kind(self.kind) not in _KEY_FIELDS:
            return self
        kind, key, _ = self._parts()
        return PublicKey(kind, b"".join(struct.pack(">I", len(one)) + one for one in (kind.encode(), *key)))

    def about(self) -> str:
        """Say whom a certificate is for and until when. Raises ValueError."""
        _, _, rest = self._parts()
        serial, kind = struct.unpack_from(">QI", rest)
        (key_id, names), rest = read_strings(rest[12:], 2)
        after, before = struct.unpack_from(">QQ", rest)
        users = []
        while names:
            (user,), names = read_strings(names, 1)
            users.append(user.decode("utf-8", "replace"))
        listed = ", ".join(users[:_SHOWN_PRINCIPALS]) + (", …" if len(users) > _SHOWN_PRINCIPALS else "")
        said = [f"certificate {key_id.decode('utf-8', 'replace')!a} serial {serial}", f"for {listed or 'every user'}"]
        if kind != 1:
            said.append("of a host, not of a user")
        if after:
            said.append(f"valid from {_time(after)}")
        if before != _FOR_EVER:
            said.append(f"valid until {_time(before)}")
        return ", ".join(said)

    def _parts(self) -> tuple[str, list[bytes], bytes]:
        """Return the plain kind, the plain key's fields and what follows them."""
        kind = _plain_kind(self.kind)
        if kind not in _KEY_FIELDS:
            raise ValueError(f"a certificate of type {self.kind} is not known")
        fields, rest = read_strings(self.blob, 2 + _KEY_FIELDS[kind])
        return kind, fields[2:], rest


def read_strings(data: bytes, count: int) -> tuple[list[bytes], bytes]:
    """Take `count` strings of SSH's wire format; return them and the rest. Raises ValueError."""
    found = []
    for _ in range(count):
        if len(data) < 4:
            raise ValueError("it is cut off")
        (size,) = struct.unpack_from(">I", data)
        if len(data) < 4 + size:
            raise ValueError("it is cut off")
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    return found, data


def _plain_kind(kind: str) -> str:
    plain = kind.removesuffix(_CERTIFICATE)
    return f"{plain}@openssh.com" if plain.startswith("sk-") else plain


def _time(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s after 1970"
