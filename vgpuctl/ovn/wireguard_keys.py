# SPDX-License-Identifier: Apache-2.0
"""Keys of WireGuard: Curve25519 (RFC 7748), each 32 bytes in base64 as wg(8) writes them."""

import base64
from dataclasses import dataclass, field


@dataclass(frozen=True)
class KeyPair:
    """The two keys of one side of a tunnel."""

    public: str
    private: str = field(repr=False)


def new_keys() -> KeyPair:
    """Make the keys of one side."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    key = X25519PrivateKey.generate()
    return KeyPair(_text(key.public_key().public_bytes_raw()), _text(key.private_bytes_raw()))


def is_pair(private: str, public: str) -> bool:
    """True if a public key is that of a private one; False also for what is no key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    try:
        key = X25519PrivateKey.from_private_bytes(base64.b64decode(private, validate=True))
    except ValueError:  # binascii.Error is one
        return False
    return _text(key.public_key().public_bytes_raw()) == public


def _text(key: bytes) -> str:
    return base64.b64encode(key).decode()
