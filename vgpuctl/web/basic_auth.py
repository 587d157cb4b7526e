# SPDX-License-Identifier: Apache-2.0
"""HTTP basic authentication against bcrypt hashes, slower and slower for a client whose passwords are wrong."""

import hashlib
import hmac
import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import bcrypt
from werkzeug.datastructures import Authorization

from vgpuctl.listening.hosts import client_of
from vgpuctl.listening.requests import Refusals
from vgpuctl.listening.wrong_logins import WrongLogins
from vgpuctl.model.web_config import WebConfig

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_LOGGER = logging.getLogger("vgpuctl.web")
TENANTS = "vgpuctl.tenants"
"""The key of a request's environment with the tenants that its user is bound to; None for a user who sees all."""
REALM = 'Basic realm="vgpuctl", charset="UTF-8"'
_MOST_KNOWN = 200
_MOST_PASSWORD_BYTES = 72
"""bcrypt looks at no more; a longer password is refused rather than cut."""


class TooManyLogins(Exception):
    """The login is wrong after several wrong ones, or its turn is too far away."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer 429."""
        return {"Retry-After": str(math.ceil(self.wait_s))}


class Logins:
    """All attempts of one server to log in. A right password is remembered: bcrypt is slow on purpose, and scrapes are
    frequent. An unknown user takes as long as a wrong password.
    """

    def __init__(
        self, refusals: Refusals, wrong: WrongLogins | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._refusals, self._sleep = refusals, sleep
        self._wrong = WrongLogins() if wrong is None else wrong
        # One check at a time: guesses may not take every processor, nor be many before the first of them counts.
        self._checking = threading.Lock()
        self._salt = secrets.token_bytes(16)
        self._known: dict[bytes, None] = {}

    def is_user(self, users: Mapping[str, str], name: str, password: str, address: str) -> bool:
        """True if this is the password of a user. address: of the client. Raises TooManyLogins."""
        return self.attempt(address, name, lambda: self._is_password(users, name, password.encode()))

    def attempt(self, address: str, name: str, is_right: Callable[[], bool]) -> bool:
        """Try a login, after wrong ones at its turn. address: of the client.

        Raises TooManyLogins for a wrong login after several, and when too many wait for their turns.
        """
        client = client_of(address)
        with self._checking:
            wait_s = self._wrong.wait_s(client, name)
            if wait_s == 0 and self._check(client, name, is_right):
                return True
            turn_s = self._wrong.turn_s(client, name) if wait_s > 0 else None
        if turn_s is not None:
            self._sleep(turn_s)
            with self._checking:
                if self._check(client, name, is_right):
                    return True
        self._refusals.add("login-wait" if wait_s > 0 else "wrong-login")
        _LOGGER.info("wrong login", extra={"fields": {"client": client, "wait_s": wait_s}})
        if wait_s > 0:
            raise TooManyLogins(wait_s)
        return False

    def _check(self, client: str, name: str, is_right: Callable[[], bool]) -> bool:
        if is_right():
            return True
        self._wrong.add(client, name)
        return False

    def _is_password(self, users: Mapping[str, str], name: str, given: bytes) -> bool:
        if not users or len(given) > _MOST_PASSWORD_BYTES or b"\0" in given:
            return False
        expected = users.get(name, next(iter(users.values()))).encode()
        key = hmac.digest(self._salt, b"\0".join((expected, given)), hashlib.sha256)
        if name in users and key in self._known:
            return True
        if not bcrypt.checkpw(given, expected) or name not in users:
            return False
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[key] = None
        return True


def with_users(
    app: "WSGIApplication", config: Callable[[], WebConfig], logins: Logins, *, knows_tenants: bool
) -> "WSGIApplication":
    """Let users alone pass to an application; everybody where there are none.

    knows_tenants: the application keeps users who are bound to tenants to these; any other one is not for them.
    """

    def front(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        present = config()
        if not present.users:
            return app(environ, start_response)
        given = read_authorization(environ.get("HTTP_AUTHORIZATION", ""))
        name = password = ""
        if given is not None and given.type == "basic":
            name, password = given.username or "", given.password or ""
        try:
            is_user = name != "" and logins.is_user(present.users, name, password, environ.get("REMOTE_ADDR", ""))
        except TooManyLogins as error:
            return _answer(start_response, "429 Too Many Requests", "too many wrong logins\n", error.headers)
        if not is_user:
            return _answer(start_response, "401 Unauthorized", "unauthorized\n", {"WWW-Authenticate": REALM})
        tenants = present.tenants.get(name)
        if tenants is not None and not knows_tenants:
            return _answer(start_response, "403 Forbidden", "this server is not for users of tenants\n", {})
        return app({**environ, TENANTS: tenants}, start_response)

    return front


def read_authorization(header: str) -> Authorization | None:
    """An Authorization header, of type "basic" with username and password (RFC 7617); None if it cannot be read."""
    try:
        return Authorization.from_header(header)
    except ValueError:  # werkzeug 3.1 leaves it to its caller for letters outside ASCII
        return None


def _answer(start_response: "StartResponse", status: str, text: str, headers: Mapping[str, str]) -> list[bytes]:
    body = text.encode()
    plain = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body)), "Cache-Control": "no-store"}
    start_response(status, [*plain.items(), *headers.items()])
    return [body]
