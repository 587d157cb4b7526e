# SPDX-License-Identifier: Apache-2.0
"""Who may read the pages: a token, its login page and cookie, and the checks of every request and answer."""

import gzip
import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from flask import Flask, Response, abort, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from vgpuctl.errors import UsageError
from vgpuctl.listening.requests import Refusals
from vgpuctl.model.web_config import WebConfig
from vgpuctl.specs.bounded_reader import Malformed, read_bounded
from vgpuctl.trusted_files import NAMED_SECRET
from vgpuctl.web.basic_auth import REALM, TENANTS, Logins, TooManyLogins, read_authorization
from vgpuctl.web.exporter_app import keep_to_tenants
from vgpuctl.web.protection import Protection

SESSION_S = 12 * 3600
"""How long a login lasts."""
_LARGE = 16 * 1024
_COOKIE = "vgpuctl_session"
_SHORTEST_TOKEN, _LONGEST_TOKEN = 16, 1024
_OPEN_ENDPOINTS = {"login", "static"}
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


@dataclass(frozen=True)
class PageAccess:
    """Rules for reading the pages.

    token: None where none is asked for. has_tls: the port speaks TLS. is_loopback: only this machine reaches the port.
    clock: seconds since the epoch. config: its users are let in too. Without token and users everybody is who reaches
    the port. logins: the attempts, also those with a token.
    """

    token: bytes | None = field(repr=False)
    has_tls: bool
    is_loopback: bool
    clock: Callable[[], float]
    config: Callable[[], WebConfig] = WebConfig
    logins: Logins = field(default_factory=lambda: Logins(Refusals()))


def read_token(path: Path) -> bytes:
    """Read the token of a file, without white space around it.

    Raises FileNotTrusted, and UsageError for a file that cannot be read and for a token that is too short.
    """
    try:
        token = read_bounded(path, NAMED_SECRET).strip()
    except Malformed as error:
        raise UsageError(f"the token file {path} cannot be read: {error}") from error
    if not _SHORTEST_TOKEN <= len(token) <= _LONGEST_TOKEN or not token.isascii() or b"\n" in token:
        raise UsageError(
            f"the token file {path} has no usable token ({len(token)} bytes)",
            hint=f"write one line of {_SHORTEST_TOKEN} to {_LONGEST_TOKEN} characters: openssl rand -hex 32",
        )
    return token


def require_safe(access: PageAccess, protection: Protection, listen: str) -> None:
    """Refuse to serve other machines without TLS and a login. listen: the address as given. Raises UsageError."""
    has_login = access.token is not None or protection.config.is_protected
    if access.is_loopback or (access.has_tls and has_login):
        return
    port = listen.rpartition(":")[2]
    missing = [what for what, has in (("TLS", access.has_tls), ("login", has_login)) if not has]
    raise UsageError(
        f"--listen {listen} is open to other machines, and the pages have no {' and no '.join(missing)}",
        hint="give --web-config FILE with tls_server_config, and --token-file FILE; or listen on 127.0.0.1 and reach it"
        f" by `ssh -L {port}:127.0.0.1:{port}`",
    )


def guard(app: Flask, access: PageAccess) -> None:
    """Check every request of an application before its view, and set the headers of every answer."""
    app.config["MAX_CONTENT_LENGTH"] = 4096
    app.add_url_rule("/login", "login", lambda: _login(access), methods=["GET", "POST"])
    app.add_url_rule("/logout", "logout", _logout, methods=["POST"])

    @app.before_request
    def check() -> AnyResponse | None:
        if request.method not in ("GET", "HEAD") and request.endpoint not in ("login", "logout"):
            abort(405)
        if request.endpoint in _OPEN_ENDPOINTS:
            return None
        if _is_allowed(access):
            return keep_to_tenants()
        if access.token is not None and "text/html" in request.headers.get("Accept", ""):
            return redirect(url_for("login", to=request.full_path.rstrip("?")), 303)
        scheme = "Bearer" if access.token is not None else REALM
        return Response("a login is needed\n", 401, {"WWW-Authenticate": scheme}, mimetype="text/plain")

    @app.errorhandler(TooManyLogins)
    def slow_down(error: TooManyLogins) -> Response:
        return Response("too many wrong logins\n", 429, error.headers, mimetype="text/plain")

    @app.after_request
    def protect(response: AnyResponse) -> AnyResponse:
        response.headers.update(_HEADERS)
        if request.endpoint != "static":
            response.headers["Cache-Control"] = "no-store"
        return _compressed(response)

    @app.context_processor
    def login_state() -> dict[str, object]:
        return {"has_login": access.token is not None}


def _compressed(response: AnyResponse) -> AnyResponse:
    """A large page in gzip for who takes it: a map of hundreds of GPUs gets to a twentieth."""
    response.vary.update(("Accept", "Accept-Encoding"))
    is_wanted = request.accept_encodings["gzip"] > 0 and response.mimetype in ("text/html", "application/json")
    if is_wanted and not response.is_streamed and (response.calculate_content_length() or 0) > _LARGE:
        response.set_data(gzip.compress(response.get_data(), compresslevel=1))
        response.headers["Content-Encoding"] = "gzip"
    return response


def _is_allowed(access: PageAccess) -> bool:
    """True if the request comes with what lets its sender in. Raises TooManyLogins."""
    config = access.config()
    if access.token is None and not config.users:
        return True
    given, client = read_authorization(request.headers.get("Authorization", "")), request.remote_addr or ""
    if given is not None and given.type == "basic":
        name = given.username or ""
        if not access.logins.is_user(config.users, name, given.password or "", client):
            return False
        request.environ[TENANTS] = config.tenants.get(name)
        return True
    if access.token is None:
        return False
    if given is not None and given.type == "bearer":
        return _is_token(access, given.token or "")
    return _is_session(request.cookies.get(_COOKIE, ""), access.token, access.clock())


def _is_token(access: PageAccess, given: str) -> bool:
    """True for the token. Raises TooManyLogins."""
    token = access.token or secrets.token_bytes(_SHORTEST_TOKEN)
    # Nobody guesses so many characters, and their check costs nothing: a right token waits for no turn.
    is_right = hmac.compare_digest(given.encode("utf-8", "replace"), token)
    return is_right or access.logins.attempt(request.remote_addr or "", "", lambda: False)


def _session(token: bytes, now: float) -> str:
    """A cookie that proves the token until its end, and from which nobody learns the token."""
    end = str(int(now + SESSION_S))
    return f"{end}.{_sign(token, end)}"


def _is_session(cookie: str, token: bytes, now: float) -> bool:
    end, _, signature = cookie.partition(".")
    if not hmac.compare_digest(signature.encode("utf-8", "replace"), _sign(token, end).encode()):
        return False
    return end.isascii() and end.isdigit() and now < int(end)


def _sign(token: bytes, end: str) -> str:
    return hmac.new(token, f"vgpuctl pages until {end}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _login(access: PageAccess) -> AnyResponse:
    target = _local(request.args.get("to", ""))
    if access.token is None or (request.method == "GET" and _is_allowed(access)):
        return redirect(target, 303)
    if request.method == "GET":
        return Response(render_template("login.html", is_wrong=False))
    if not _is_token(access, request.form.get("token", "").strip()):
        return Response(render_template("login.html", is_wrong=True), 403)
    response = redirect(target, 303)
    response.set_cookie(
        _COOKIE,
        _session(access.token, access.clock()),
        max_age=SESSION_S,
        secure=access.has_tls,
        httponly=True,
        samesite="Strict",
    )
    return response


def _logout() -> AnyResponse:
    response = redirect(url_for("login"), 303)
    response.delete_cookie(_COOKIE, httponly=True, samesite="Strict")
    return response


def _local(target: str) -> str:
    """A path of these pages; anything else is the first page."""
    parts = urlsplit(target.replace("\\", "/"))
    is_path = target.startswith("/") and not target.startswith("//") and not parts.scheme and not parts.netloc
    return target if is_path and "\\" not in target and target.isprintable() else "/"
