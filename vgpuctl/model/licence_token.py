# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's client configuration token: what it says of its licence server.

The token is a JSON Web Token (RFC 7519) that the licence service signs and the guest's driver verifies. Its claims are
read here without the key, so they serve to find mistakes and prove nothing. The content is a secret: no error repeats
any of it.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from vgpuctl.errors import UsageError

MOST_BYTES = 64 * 1024
_MOST_ADDRESSES = 16
_SEGMENT = re.compile(r"[A-Za-z0-9_-]+")
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?|[0-9a-f:]{2,39}")
_HINT = "download the client configuration token of the service instance again, and give that file as it is"


@dataclass(frozen=True)
class TokenClaims:
    """servers: host names or addresses of the licence service, in lower case. expires_at: seconds since the epoch."""

    servers: tuple[str, ...]
    expires_at: float | None = None


def read_token(content: str, *, what: str = "the licence token") -> TokenClaims:
    """Read the claims of a token. Raises UsageError, which never repeats the content, for anything else."""
    text = content.strip()
    if len(text) > MOST_BYTES:
        raise UsageError(f"{what} is larger than {MOST_BYTES // 1024} KiB", hint=_HINT)
    if any(character.isspace() for character in text):
        raise UsageError(f"{what} has more than one word: one file holds one token", hint=_HINT)
    segments = text.split(".")
    if len(segments) != 3 or not all(_SEGMENT.fullmatch(one) for one in segments):
        raise UsageError(
            f"{what} is no client configuration token: it has not the form of a JSON Web Token", hint=_HINT
        )
    _object(segments[0], f"the header of {what}")
    claims = _object(segments[1], f"the content of {what}")
    return TokenClaims(_servers(claims, what), _expiry(claims, what))


def expiry_of(content: str) -> float | None:
    """The end of any JSON Web Token, in seconds since the epoch; None of a token of another form or without an end."""
    segments = content.strip().split(".")
    if len(content) > MOST_BYTES or len(segments) != 3 or not all(_SEGMENT.fullmatch(one) for one in segments):
        return None
    try:
        return _expiry(_object(segments[1], "the token"), "the token")
    except UsageError:
        return None


def server_name(written: str, *, what: str) -> str:
    """A licence server's host name or address without scheme, port and path, in lower case. Raises UsageError."""
    name = written.strip().lower()
    name = name.partition("://")[2] or name
    name = name.partition("/")[0]
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::\d{1,5})?", name)
    if bracketed is not None:
        name = bracketed[1]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    name = name.removesuffix(".")
    if not _HOST.fullmatch(name):
        raise UsageError(f"{what} is no host name or address", hint="write for example dls-1.example.org")
    return name


def _object(segment: str, what: str) -> Mapping[str, object]:
    try:
        decoded = base64.b64decode(segment + "=" * (-len(segment) % 4), altchars=b"-_", validate=True)
        value = json.loads(decoded)
    except (binascii.Error, ValueError, RecursionError):
        # Without its cause, whose text can hold parts of the token.
        raise UsageError(f"{what} cannot be decoded", hint=_HINT) from None
    if not isinstance(value, dict):
        raise UsageError(f"{what} is no JSON object", hint=_HINT)
    return value


def _servers(claims: Mapping[str, object], what: str) -> tuple[str, ...]:
    configuration = claims.get("service_instance_configuration")
    nodes = configuration.get("node_url_list") if isinstance(configuration, dict) else None
    if not isinstance(nodes, list) or not 0 < len(nodes) <= _MOST_ADDRESSES:
        raise UsageError(f"{what} names no licence server: it has no node_url_list", hint=_HINT)
    found = []
    for node in nodes:
        address = node.get("url") if isinstance(node, dict) else None
        if not isinstance(address, str):
            raise UsageError(f"{what} has an address of its licence server that is no text", hint=_HINT)
        found.append(server_name(address, what=f"an address in {what}"))
    return tuple(dict.fromkeys(found))


def _expiry(claims: Mapping[str, object], what: str) -> float | None:
    end = claims.get("exp")
    if end is None:
        return None
    if isinstance(end, bool) or not isinstance(end, int | float) or not 0 < end < 1e12:
        raise UsageError(f"{what} has an end that is no time", hint=_HINT)
    return float(end)
