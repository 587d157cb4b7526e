# SPDX-License-Identifier: Apache-2.0
"""Every server of the package, started on the loopback, under one table of attacks.

tests/unit/test_library_gates.py tells when a server is missing here. The sockets of `view --path` and of libvirt's
tunnel are private files that speak no HTTP; the port of `view` without `--browser` serves its own user alone
(tests/unit/hosts/test_loopback_peer.py).
"""

import contextlib
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.certificates import make_authority
from tests.integration.web.attacks import BODIES, HEADS, SERVED
from tests.stored_fleet import fill, open_stored
from tests.unit.usecases.kubernetes.gpu_cluster import NOW, GpuCluster
from vgpuctl.listening.wrong_logins import FREE, FREE_OF_CLIENT, WrongLogins
from vgpuctl.usecases.kubernetes.serve_extender import Extender
from vgpuctl.usecases.running.history import PastSource
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.telemetry.serve_exporter import Exporter
from vgpuctl.usecases.telemetry.serve_web import PageSources
from vgpuctl.web.access import PageAccess
from vgpuctl.web.application import PAGES, make_application
from vgpuctl.web.basic_auth import Logins
from vgpuctl.web.browser_console import BrowserConsole
from vgpuctl.web.connections import MOST_CONNECTIONS, ConnectionThreads
from vgpuctl.web.exporter_app import EXPORTER, exporter_app
from vgpuctl.web.extender_app import EXTENDER, extender_app
from vgpuctl.web.protection import Protection
from vgpuctl.web.server import serving

# A hash of "secret".
HASH = "$2b$04$kdCCcBiydOFkcNjAN5hoZOM/KK2IC6lPYiu3bnIdgI9hmpoRA5MhO"
USERS = f"basic_auth_users: {{ops: {HASH}, tenant: {HASH}}}\nuser_tenants: {{tenant: [acme]}}\n"
SECRET_OPS, WRONG_OPS = "b3BzOnNlY3JldA==", "b3BzOndyb25n"
SECRET_TENANT = "dGVuYW50OnNlY3JldA=="
HTTP_SERVERS = ("exporter", "pages", "extender", "console")
WITH_USERS = ("exporter", "pages", "extender")


@dataclass(frozen=True)
class Server:
    """One server. path: of a page that it serves. post: path, content type and body of what it takes, or none.

    seen: what reached the cluster behind it.
    """

    port: int
    path: str
    post: tuple[str, str, bytes] | None = None
    protection: Protection | None = None
    seen: Callable[[], object] = field(default=lambda: None)

    def send(self, raw: bytes, *, wait_s: float = 30) -> tuple[int, str]:
        """Status and text of the first answer to raw bytes; 0 if there is none."""
        with socket.create_connection(("127.0.0.1", self.port), wait_s) as client:
            with contextlib.suppress(ConnectionError):
                client.sendall(raw)
            held = b""
            with contextlib.suppress(ConnectionError):
                while data := client.recv(65536):
                    held += data
                    head, end, body = held.partition(b"\r\n\r\n")
                    length = re.search(rb"(?i)content-length: (\d+)", head)
                    if end and length is not None and len(body) >= int(length[1]):
                        break
        return (int(held.split(b" ")[1]) if held.startswith(b"HTTP/1") else 0), held.decode("utf-8", "replace")

    def ask(self, *lines: str, method: str = "GET", path: str | None = None, body: bytes = b"") -> tuple[int, str]:
        """Send a request with these header lines; Host is ours unless one is given or `None:`."""
        given = [one for one in lines if one != "None:"]
        if not any(one.lower().startswith("host") for one in lines) and "None:" not in lines:
            given.insert(0, f"Host: 127.0.0.1:{self.port}")
        head = "\r\n".join([f"{method} {self.path if path is None else path} HTTP/1.1", *given, "", ""])
        return self.send(head.encode("latin-1") + body)


@contextlib.contextmanager
def exporter(services: Services, folder: Path, protection: Protection | None) -> Iterator[Server]:
    front = Protection(None) if protection is None else protection
    made = Exporter(services, interval_s=15, history=folder / "h", store_only=True, refusals=front.refusals.counts)
    made.read_once()
    with serving(exporter_app(made), "127.0.0.1", 0, front, takes=EXPORTER) as port:
        yield Server(port, "/metrics", None, front)


@contextlib.contextmanager
def pages(services: Services, folder: Path, protection: Protection | None) -> Iterator[Server]:
    front = Protection(None) if protection is None else protection
    access = PageAccess(
        None,
        has_tls=False,
        is_loopback=True,
        clock=lambda: 0.0,
        config=lambda: front.config,
        logins=front.logins,
    )
    app = make_application(PageSources(services, PastSource(folder / "h")), access)
    with serving(app, "127.0.0.1", 0, front, takes=PAGES) as port:
        yield Server(port, "/vms", ("/login", "application/x-www-form-urlencoded", b"token=x"), front)


@contextlib.contextmanager
def extender(_services: Services, _folder: Path, protection: Protection | None) -> Iterator[Server]:
    front = Protection(None) if protection is None else protection
    cluster = GpuCluster()
    cluster.add_node("n1", 1)
    cluster.add_pod("p", mem=1000)
    made = Extender(cluster, lambda: NOW, lock_wait_s=0, gang_wait_s=0)
    made.refresh()
    body = json.dumps({"PodName": "p", "PodNamespace": "ml", "PodUID": "uid-p", "Node": "n1"}).encode()
    app = extender_app(made, stale_s=1e9, refusals=front.refusals)
    with serving(app, "127.0.0.1", 0, front, ConnectionThreads(refusals=front.refusals), EXTENDER) as port:
        yield Server(port, "/healthz", ("/v1/bind", "application/json", body), front, lambda: made.counts()["bind"])


@contextlib.contextmanager
def console(_services: Services, folder: Path, _protection: Protection | None) -> Iterator[Server]:
    (folder / "vnc.html").write_text("<p>page")
    with BrowserConsole(lambda _client: None, lambda _why: None, novnc=folder, timeout_s=600) as made:
        url = urlsplit(made.url)
        yield Server(url.port or 0, url.path)


STARTED = {"exporter": exporter, "pages": pages, "extender": extender, "console": console}


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with open_stored(tmp_path_factory.mktemp("store"), ("gpu1",)) as opened:
        fill(opened, ("gpu1",), cards=2, shares=8)
        yield opened


@pytest.fixture(scope="module", params=HTTP_SERVERS)
def server(
    request: pytest.FixtureRequest, services: Services, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Each HTTP server as its command starts it without a web-config file."""
    with STARTED[request.param](services, tmp_path_factory.mktemp(request.param), None) as started:
        yield started


@pytest.mark.parametrize("attack", HEADS)
def test_a_head_that_no_client_of_ours_sends_is_refused(server: Server, attack: str) -> None:
    lines, expected = HEADS[attack]
    status, text = server.ask(*(line.replace("{port}", str(server.port)) for line in lines))
    assert status in (expected if isinstance(expected, tuple) else (expected,)), text[:300]
    assert "evil" not in text.partition("\r\n\r\n")[0], "nothing of it is in the headers of the answer"
    if expected == 421:
        assert "--allow-host" in text


@pytest.mark.parametrize("request_line", [
    "GET http://evil.example/ HTTP/1.1", "GET http://127.0.0.1/ HTTP/1.1", "GET //evil.example/%2e HTTP/1.1",
    "CONNECT evil.example:443 HTTP/1.1", "TRACE {path} HTTP/1.1", "OPTIONS * HTTP/1.1", "OPTIONS {path} HTTP/1.1",
    "get {path} HTTP/1.1", "PUT {path} HTTP/1.1", "GET {path}", "GET {path} HTTP/2.0", "GET {path} HTTP/1.1 x",
    "GET //[ HTTP/1.1", "GET //[::1] HTTP/1.1", "GET {path}\t HTTP/1.1", "GET /\t{path} HTTP/1.1",
    "GET {path} HTTP/+1.1", "GET {path} HTTP/1.01", "GET {path}\xe9 HTTP/1.1", "GET {path}\0 HTTP/1.1",
    "GET\t{path}\tHTTP/1.1", "PRI * HTTP/2.0", "", "\x16\x03\x01\x00", "GET {path}#x HTTP/1.1",
])  # fmt: skip
def test_a_request_line_that_no_client_of_ours_sends_is_refused(server: Server, request_line: str) -> None:
    first = request_line.replace("{path}", server.path)
    status, text = server.send(f"{first}\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode("latin-1"))
    assert status == 0 or status >= 400, text[:300]


@pytest.mark.parametrize("what", SERVED)
def test_clients_of_ours_are_served(server: Server, what: str) -> None:
    status, text = server.ask(*(line.replace("{port}", str(server.port)) for line in SERVED[what]))
    assert status == 200, text[:300]


@pytest.mark.parametrize("attack", BODIES)
def test_a_body_that_no_client_of_ours_sends_is_refused(server: Server, attack: str) -> None:
    path, kind, body = server.post or (server.path, "application/json", b"{}")
    lines, expected = BODIES[attack]
    given = [f"Content-Length: {len(body)}", *(line.replace("{kind}", kind) for line in lines)]
    status, text = server.ask(*given, method="POST", path=path, body=body)
    assert status == expected, text[:300]
    assert server.seen() in (None, 0), "nothing reached what is behind it"


def test_what_is_left_of_a_refused_body_is_no_request(server: Server) -> None:
    inner = f"GET {server.path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()
    for lines in (
        [f"Content-Length: {len(inner)}"],
        ["Transfer-Encoding: chunked"],
        ["Content-Length: 0", "Host: evil"],
    ):
        head = ["Content-Type: text/plain", *lines]
        if "Host: evil" not in lines:
            head.append(f"Host: 127.0.0.1:{server.port}")
        raw = "\r\n".join([f"POST {server.path} HTTP/1.1", *head, "", ""]).encode() + inner
        with socket.create_connection(("127.0.0.1", server.port), 30) as client:
            client.sendall(raw)
            held = b""
            with contextlib.suppress(ConnectionError):
                while data := client.recv(65536):
                    held += data
        assert held.count(b"HTTP/1.1 ") == 1, held[:500]


def test_each_request_of_a_connection_is_judged(server: Server) -> None:
    good = f"GET {server.path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()
    evil = f"GET {server.path} HTTP/1.1\r\nHost: evil.example\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.port), 30) as client:
        client.sendall(good + evil + good)
        held = b""
        with contextlib.suppress(ConnectionError):
            while data := client.recv(65536):
                held += data
    assert held.count(b"HTTP/1.1 200") == 1 and held.count(b"HTTP/1.1 ") <= 2


def test_a_body_that_ends_early_reaches_nothing(server: Server) -> None:
    path, kind, body = server.post or (server.path, "application/json", b"{}")
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: {kind}\r\n"
    with socket.create_connection(("127.0.0.1", server.port), 30) as client:
        client.sendall(f"{head}Content-Length: {len(body) + 5}\r\n\r\n".encode() + body)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while data := client.recv(65536):
                answer += data
    assert answer == b"" or int(answer.split(b" ")[1]) >= 400 or b"303 SEE OTHER" in answer, answer[:300]
    assert server.seen() in (None, 0)


def test_a_slow_body_ends_with_its_time() -> None:
    now = [0.0]
    protection = Protection(None)
    threads = ConnectionThreads(clock=lambda: now[0], refusals=protection.refusals)
    cluster = GpuCluster()
    made = Extender(cluster, lambda: NOW, lock_wait_s=0, gang_wait_s=0)
    app = extender_app(made, refusals=protection.refusals)
    with (
        serving(app, "127.0.0.1", 0, protection, threads, EXTENDER) as port,
        socket.create_connection(("127.0.0.1", port), 30) as client,
    ):
        head = f"POST /v1/bind HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        client.sendall(f"{head}Content-Length: 1000\r\n\r\n{{".encode())
        while not protection.refusals.counts():  # until the server has begun with it
            now[0] += 31
            threads.end_late()
            threading.Event().wait(0.01)
        client.settimeout(30)
        while client.recv(1000):
            pass
    assert protection.refusals.counts().keys() == {"time"}


_SAME_THREADS = pytest.mark.long(
    "tests/integration/web/test_all_servers.py::test_silent_slow_and_many_clients_keep_nobody_waiting",
    "tests/unit/web/test_connections.py::test_slow_clients_keep_nobody_waiting",
)


@pytest.mark.parametrize(
    "name", [pytest.param("exporter", marks=_SAME_THREADS), pytest.param("pages", marks=_SAME_THREADS), "extender"]
)
def test_silent_slow_and_many_clients_keep_nobody_waiting(name: str, services: Services, tmp_path: Path) -> None:
    with STARTED[name](services, tmp_path, None) as server, contextlib.ExitStack() as opened:
        begun = (b"", b"G", f"POST {server.path} HTTP/1.1\r\n".encode(), b"\r\n", b"GET / HTTP/1.1\r\nX: ")
        for number in range(MOST_CONNECTIONS):  # twice as many as one client may have
            one = opened.enter_context(socket.create_connection(("127.0.0.1", server.port), 10))
            with contextlib.suppress(ConnectionError):
                one.sendall(begun[number % len(begun)])
        assert server.ask()[0] == 200
        assert server.protection is not None and server.protection.refusals.counts()["connections"] > 0


def _with_still_clock(file: Path) -> Protection:
    """Protection by a file, for whose waits no time passes."""
    protection = Protection(file)
    protection.logins = Logins(protection.refusals, WrongLogins(lambda: 0.0))
    return protection


@pytest.mark.parametrize("name", WITH_USERS)
def test_wrong_logins_are_slowed_down_and_counted(name: str, services: Services, tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text(USERS)
    protection = _with_still_clock(tmp_path / "web.yml")
    with STARTED[name](services, tmp_path, protection) as server:
        assert server.ask()[0] == 401, "every server asks for the login that its web-config has"
        assert server.ask(f"Authorization: Basic {SECRET_OPS}")[0] == 200
        for _ in range(FREE):
            assert server.ask(f"Authorization: Basic {WRONG_OPS}")[0] == 401
        status, text = server.ask(f"Authorization: Basic {WRONG_OPS}")
        assert status == 429 and int(text.lower().partition("retry-after: ")[2].split()[0]) >= 1
        assert server.ask(f"Authorization: Basic {SECRET_OPS}")[0] == 200, "what is right gets in at its turn"
        status, text = server.ask(f"Authorization: Basic {SECRET_TENANT}")
        assert status == (200 if name == "exporter" else 403), "other users of the same address do not wait"
        counts = protection.refusals.counts()
        assert (counts["wrong-login"], counts["login-wait"]) == (FREE, 1)


@pytest.mark.parametrize("name", WITH_USERS)
def test_wrong_logins_of_others_at_an_address_keep_nobody_out(name: str, services: Services, tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text(USERS)
    protection = _with_still_clock(tmp_path / "web.yml")
    for number in range(FREE_OF_CLIENT):
        protection.logins.attempt("127.0.0.1", f"user{number}", lambda: False)
    with STARTED[name](services, tmp_path, protection) as server:
        assert server.ask(f"Authorization: Basic {SECRET_OPS}")[0] == 200
        assert server.ask(f"Authorization: Basic {WRONG_OPS}")[0] == 429


@pytest.mark.parametrize("given", [
    "Basic", "Basic ", "Basic !!!!", "Basic b3Bz", "Basic /w==", "Basic é", "Bearer é", "Bearer secret", "Digest x",
    'Digest username="ops", password="secret"', "Digest é=", "basic\t" + SECRET_OPS,
    "Basic " + SECRET_OPS + ",Basic " + SECRET_OPS, "Basic " + SECRET_OPS + "\r\nAuthorization: Basic x",
])  # fmt: skip
@pytest.mark.parametrize("name", WITH_USERS)
def test_what_is_no_login_lets_nobody_in(name: str, given: str, services: Services, tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text(USERS)
    with STARTED[name](services, tmp_path, Protection(tmp_path / "web.yml")) as server:
        assert server.ask(f"Authorization: {given}")[0] in (400, 401)


def test_a_user_of_a_tenant_sees_it_alone(services: Services, tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text(USERS)
    with exporter(services, tmp_path, Protection(tmp_path / "web.yml")) as server:
        login = f"Authorization: Basic {SECRET_TENANT}"
        status, text = server.ask(login)
        assert status == 200 and 'tenant="acme"' in text
        assert set(re.findall(r'tenant="(\w*)"', text)) == {"acme"} and "vgpuctl_exporter_info" not in text
        assert (
            server.ask(login, path="/metrics/tenants/acme")[1].partition("\r\n\r\n")[2] == text.partition("\r\n\r\n")[2]
        )
        assert server.ask(login, path="/sd/tenants/acme")[0] == 200
        refused = (
            "/", "/metrics/store", "/metrics/", "/metrics/tenants/globex", "/metrics/tenants/ACME",
            "/metrics/tenants/acme%2f..%2fglobex", "/metrics/tenants/nobody", "/sd/hosts", "/sd/tenants/globex",
            "/probe?target=gpu1", "/probe", "/healthz", "//metrics/store", "/metrics/../metrics/store",
            "/metrics;/store", "/sd/tenants/acme/", "/none",
        )  # fmt: skip
        for path in refused:
            status, text = server.ask(login, path=path)
            assert status in (400, 403), (path, text[:200])
            assert "globex" not in text.replace(path, "")
        everything = server.ask(f"Authorization: Basic {SECRET_OPS}")[1]
        assert {"acme", "globex"} <= set(re.findall(r'tenant="(\w*)"', everything))
        assert "vgpuctl_refused_requests_total{reason=" not in text


def test_names_come_from_the_certificate_and_from_the_option(services: Services, tmp_path: Path) -> None:
    make_authority(tmp_path).issue("server", "ignored.example", "DNS:gpus.example")
    (tmp_path / "web.yml").write_text("tls_server_config: {cert_file: server.pem, key_file: server.key}")
    certified = Protection(tmp_path / "web.yml", allowed_hosts=("vgpuctl.monitoring.svc",))
    assert certified.names() == ("vgpuctl.monitoring.svc", "gpus.example")
    with exporter(services, tmp_path, Protection(None, allowed_hosts=("metrics.example", "*.svc"))) as server:
        for host, status in (
            ("metrics.example", 200), ("METRICS.example.:1", 200), ("a.svc", 200), ("a.b.svc", 421), ("svc", 421),
            ("x.metrics.example", 421), ("localhost", 200), ("localhost.", 200), ("[::1]", 200), ("127.9.9.9", 200),
        ):  # fmt: skip
            assert (host, server.ask(f"Host: {host}")[0]) == (host, status)
        assert server.ask("Host: evil.example")[0] == 421
        assert 'vgpuctl_refused_requests_total{reason="host"} 4' in server.ask()[1]
