# SPDX-License-Identifier: Apache-2.0
"""JSON to typed values by msgspec, from several threads at once."""

import threading
from typing import Any

import msgspec

_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}
_LOCK = threading.Lock()


def decode(text: str | bytes, kind: Any) -> Any:
    """Read one JSON value as a Struct, dataclass or generic of them. Raises msgspec.MsgspecError.

    msgspec 0.22 looks at a class when it first decodes it, and a thread that decodes the class meanwhile crashes the
    process (tests/unit/test_typed_json.py). So each kind is looked at under a lock, before anybody decodes it.
    """
    return _decoder(kind).decode(text)


def convert(value: Any, kind: Any) -> Any:
    """Read a value of JSON that was read already, as `decode` does. Raises msgspec.ValidationError."""
    _decoder(kind)
    return msgspec.convert(value, kind)


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    decoder = _DECODERS.get(kind)
    if decoder is None:
        with _LOCK:
            decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    return decoder
