# SPDX-License-Identifier: Apache-2.0
"""HTTP basic authentication against bcrypt hashes."""

import hashlib
import hmac
import secrets
import threading
from collections.abc import Mapping

import bcrypt
from flask import Flask, Response, request

from vgpuctl.web.answers import as_text
from vgpuctl.web.protection import Protection

_MOST_KNOWN = 200
_MOST_PASSWORD_BYTES = 72
"""bcrypt looks at no more; a longer password is refused rather than cut."""


def require_users(app: Flask, protection: Protection) -> None:
    """Let every request of an application answer 401 unless it comes from a user; all pass where there are none."""
    checks = PasswordChecks()

    @app.before_request
    def check() -> Response | None:
        users = protection.config.users
        given = request.authorization
        if not users:
            return None
        if (
            given is not None
            and given.type == "basic"
            and checks.is_right(users, given.username or "", given.password or "")
        ):
            return None
        refusal = as_text("unauthorized\n", 401)
        refusal.headers["WWW-Authenticate"] = 'Basic realm="vgpuctl", charset="UTF-8"'
        return refusal


class PasswordChecks:
    """Checks of passwords. A right one is remembered: bcrypt is slow on purpose, and scrapes are frequent.

    An unknown user takes as long as a wrong password.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._salt = secrets.token_bytes(16)
        self._known: dict[bytes, None] = {}
        self._nobody = bcrypt.hashpw(secrets.token_hex(16).encode(), bcrypt.gensalt(10))

    def is_right(self, users: Mapping[str, str], name: str, password: str) -> bool:
        """True if this is the password of a user."""
        given = password.encode()
        expected = users.get(name, "").encode() or self._nobody
        if len(given) > _MOST_PASSWORD_BYTES or b"\0" in given:
            given = b""
        key = hmac.digest(self._salt, b"\0".join((expected, given)), hashlib.sha256)
        with self._lock:
            if key in self._known:
                return name in users
        if not bcrypt.checkpw(given, expected) or name not in users:
            return False
        with self._lock:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = None
        return True
