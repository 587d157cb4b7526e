# SPDX-License-Identifier: Apache-2.0
"""Who may read the pages: tokens, logins, names of the server, methods, headers."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from werkzeug.test import TestResponse

from tests.stored_fleet import open_stored
from vgpuctl.errors import FileNotTrusted, UsageError
from vgpuctl.listening.wrong_logins import FREE
from vgpuctl.model.web_config import WebConfig
from vgpuctl.usecases.running.history import PastSource
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.telemetry.serve_web import PageSources
from vgpuctl.web.access import SESSION_S, PageAccess, read_token, require_safe
from vgpuctl.web.application import make_application
from vgpuctl.web.protection import Protection

TOKEN = b"0123456789abcdef0123456789abcdef"
# A hash of "secret".
HASH = "$2b$04$kdCCcBiydOFkcNjAN5hoZOM/KK2IC6lPYiu3bnIdgI9hmpoRA5MhO"
HTML = {"Accept": "text/html"}


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """An inventory of one host that nobody has read."""
    with open_stored(tmp_path_factory.mktemp("store"), ("gpu1",)) as services:
        yield services


class Browser:
    """Requests to an application with these rules."""

    def __init__(
        self,
        services: Services,
        *,
        token: bytes | None = None,
        has_tls: bool = False,
        is_loopback: bool = True,
        clock: Clock | None = None,
        users: Mapping[str, str] | None = None,
        tenants: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        access = PageAccess(
            token,
            has_tls=has_tls,
            is_loopback=is_loopback,
            clock=clock or Clock(),
            config=lambda: WebConfig(None, users or {}, tenants or {}),
        )
        app = make_application(PageSources(services, PastSource(Path("/nowhere/history"))), access)
        self._client = app.test_client()
        self._url = "https://localhost" if has_tls else "http://localhost"

    def ask(self, path: str, method: str = "GET", **more: object) -> TestResponse:
        """The answer to one request; redirects are not followed."""
        given: dict[str, object] = {"base_url": self._url, **more}
        return self._client.open(path, method=method, **given)  # type: ignore[arg-type]  # werkzeug's own keywords

    def log_in(self, token: bytes = TOKEN, path: str = "/login") -> TestResponse:
        """Send the login form."""
        return self.ask(path, "POST", data={"token": token.decode()})


PATHS = ("/", "/hosts/gpu1", "/vms", "/tenants", "/queue", "/capacity", "/events", "/states", "/search", "/nothing")


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_no_page_is_served(stored: Services, path: str) -> None:
    browser = Browser(stored, token=TOKEN)
    answer = browser.ask(path)
    assert answer.status_code == 401 and answer.headers["WWW-Authenticate"] == "Bearer"
    assert answer.text == "a login is needed\n"
    answer = browser.ask(path, headers=HTML)
    assert answer.status_code == 303 and answer.location.startswith("/login?to=")


@pytest.mark.parametrize("given", ["Bearer wrong", "Bearer", "Basic " + TOKEN.decode(), "Bearer \udcff", "Bearer é"])
def test_another_token_is_refused(stored: Services, given: str) -> None:
    answer = Browser(stored, token=TOKEN).ask(
        "/", headers={"Authorization": given.encode("utf-8", "replace").decode("latin-1")}
    )
    assert answer.status_code == 401


def test_the_token_as_bearer_reads_pages(stored: Services) -> None:
    answer = Browser(stored, token=TOKEN).ask("/", headers={"Authorization": f"Bearer {TOKEN.decode()}"})
    assert answer.status_code == 200 and "gpu1" in answer.text


def test_a_login_lasts_until_its_end_and_no_longer(stored: Services) -> None:
    clock = Clock()
    browser = Browser(stored, token=TOKEN, has_tls=True, clock=clock)
    answer = browser.log_in(path="/login?to=/queue")
    assert (answer.status_code, answer.location) == (303, "/queue")
    cookie = answer.headers["Set-Cookie"]
    for rule in ("HttpOnly", "SameSite=Strict", "Secure", f"Max-Age={SESSION_S}", "Path=/"):
        assert rule in cookie
    assert TOKEN.decode() not in cookie
    assert browser.ask("/").status_code == 200
    clock.now += SESSION_S - 1
    assert browser.ask("/").status_code == 200
    clock.now += 2
    assert browser.ask("/").status_code == 401


def test_logging_out_ends_the_login(stored: Services) -> None:
    browser = Browser(stored, token=TOKEN)
    assert browser.log_in().status_code == 303
    assert browser.ask("/").status_code == 200
    assert browser.ask("/logout", "POST").location == "/login"
    assert browser.ask("/").status_code == 401


def test_a_wrong_login_is_told_so_and_gets_no_cookie(stored: Services) -> None:
    answer = Browser(stored, token=TOKEN).log_in(b"0123456789abcdef")
    assert answer.status_code == 403 and "not the token" in answer.text and "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("end", ["2000000000", "99999999999", "x", "", "²"])
def test_a_cookie_that_nobody_signed_is_refused(stored: Services, end: str) -> None:
    browser = Browser(stored, token=TOKEN)
    for signature in ("", "0" * 64, "é"):
        cookie = f"vgpuctl_session={end}.{signature}".encode().decode("latin-1")
        assert browser.ask("/", headers={"Cookie": cookie}).status_code == 401


@pytest.mark.parametrize(
    "target", ["//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:alert(1)", "", "/\n/x"]
)
def test_a_login_leads_to_pages_of_this_server_only(stored: Services, target: str) -> None:
    browser = Browser(stored, token=TOKEN)
    answer = browser.ask("/login", "POST", data={"token": TOKEN.decode()}, query_string={"to": target})
    assert answer.location == "/"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_pages_can_only_be_read(stored: Services, method: str) -> None:
    browser = Browser(stored)
    for path in PATHS:
        assert browser.ask(path, method).status_code == 405
    assert browser.ask("/", "HEAD").status_code == 200


@pytest.mark.parametrize("path", [*PATHS, "/login", "/static/pages.css", "/static/refresh.js"])
def test_every_answer_has_the_headers_that_protect_it(stored: Services, path: str) -> None:
    headers = Browser(stored, token=TOKEN).ask(path, headers={"Authorization": f"Bearer {TOKEN.decode()}"}).headers
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert all(one in ("'none'", "'self'") for one in policy.values())
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert path.startswith("/static/") or headers["Cache-Control"] == "no-store"


_PLAIN = ""
_USERS = f"basic_auth_users:\n  ada: {HASH}\n"


@pytest.mark.parametrize(
    ("is_loopback", "has_tls", "token", "config", "missing"),
    [
        (True, False, None, _PLAIN, None),
        (False, True, TOKEN, _PLAIN, None),
        (False, False, TOKEN, _PLAIN, "no TLS"),
        (False, False, None, _USERS, "no TLS"),
        (False, True, None, _PLAIN, "no login"),
        (False, False, None, _PLAIN, "no TLS and no login"),
    ],
)
def test_other_machines_are_served_with_tls_and_a_login_only(
    is_loopback: bool, has_tls: bool, token: bytes | None, config: str, missing: str | None, tmp_path: Path
) -> None:
    (tmp_path / "web.yml").write_text(config)
    access = PageAccess(token, has_tls=has_tls, is_loopback=is_loopback, clock=Clock())
    protection = Protection(tmp_path / "web.yml")
    if missing is None:
        require_safe(access, protection, "0.0.0.0:18081")
        return
    with pytest.raises(UsageError) as refused:
        require_safe(access, protection, "0.0.0.0:18081")
    assert missing in refused.value.message and "`ssh -L 18081:127.0.0.1:18081`" in (refused.value.hint or "")


@pytest.mark.parametrize("token", [None, TOKEN])
def test_users_of_the_web_config_read_pages_with_their_password(stored: Services, token: bytes | None) -> None:
    browser = Browser(stored, token=token, users={"ada": HASH})
    assert browser.ask("/", auth=("ada", "secret")).status_code == 200
    for auth in (("ada", "wrong"), ("eve", "secret"), ("", "")):
        assert browser.ask("/", auth=auth).status_code == 401
    refused = browser.ask("/")
    assert refused.status_code == 401
    assert refused.headers["WWW-Authenticate"].startswith("Basic" if token is None else "Bearer")


def test_a_token_file_has_one_long_line_and_is_not_open(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(TOKEN + b"\n")
    file.chmod(0o640)
    assert read_token(file) == TOKEN
    file.chmod(0o644)
    with pytest.raises(FileNotTrusted, match="may be read by every user"):
        read_token(file)
    file.chmod(0o600)
    for content in (b"", b"short", b"0" * 2000, b"0123456789abcdef\n0123456789abcdef", "ä".encode() * 20):
        file.write_bytes(content)
        with pytest.raises(UsageError, match="no usable token"):
            read_token(file)
    with pytest.raises(UsageError, match="cannot be read"):
        read_token(tmp_path / "none")


def test_the_token_is_not_in_what_is_printed_of_the_rules() -> None:
    assert TOKEN.decode() not in repr(PageAccess(TOKEN, has_tls=True, is_loopback=True, clock=Clock()))


def test_a_request_larger_than_a_login_is_refused(stored: Services) -> None:
    assert Browser(stored, token=TOKEN).log_in(b"x" * 10_000).status_code == 413


def test_guesses_of_the_token_are_slowed_down_wherever_they_are_sent(stored: Services) -> None:
    browser = Browser(stored, token=TOKEN)
    ways: tuple[Callable[[], TestResponse], ...] = (
        lambda: browser.log_in(b"wrong"),
        lambda: browser.ask("/", headers={"Authorization": "Bearer wrong"}),
    )
    for number in range(FREE):
        assert ways[number % 2]().status_code in (401, 403)
    for way in ways:
        answer = way()
        assert answer.status_code == 429 and int(answer.headers["Retry-After"]) >= 1
    assert browser.ask("/", headers={"Authorization": f"Bearer {TOKEN.decode()}"}).status_code == 200
    assert browser.log_in(TOKEN).status_code == 303


def test_a_user_of_tenants_reads_no_page(stored: Services) -> None:
    browser = Browser(stored, users={"ada": HASH}, tenants={"ada": frozenset({"acme"})})
    for path in PATHS:
        answer = browser.ask(path, auth=("ada", "secret"))
        assert answer.status_code == 403 and "only pages of these tenants are for this user: acme" in answer.text
