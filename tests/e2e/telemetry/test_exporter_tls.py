# SPDX-License-Identifier: Apache-2.0
"""serve exporter: TLS, client certificates, users, and a certificate that is renewed while it runs."""

import base64
import contextlib
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.operator import Operator
from tests.e2e.telemetry.running_exporter import RunningExporter, parse, running_exporter, values
from tests.prometheus_fixture import running_prometheus, wait_for
from tests.self_signed import make_certificate

# A hash of "secret".
HASH = "$2b$04$kdCCcBiydOFkcNjAN5hoZOM/KK2IC6lPYiu3bnIdgI9hmpoRA5MhO"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server's and a client's certificate, and a web-config file that names them."""
    folder = tmp_path_factory.mktemp("tls")
    for name in ("server", "client", "stranger"):
        make_certificate(folder, name, name)
    (folder / "web.yml").write_text(
        "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"
        "  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: client.pem\n"
        f"basic_auth_users:\n  prometheus: {HASH}\n  acme: {HASH}\nuser_tenants: {{acme: [acme]}}\n"
    )
    return folder


@pytest.fixture(scope="module")
def exporter(fleet_operator: Operator, files: Path) -> Iterator[RunningExporter]:
    """An exporter with TLS and one user."""
    with running_exporter(fleet_operator, "--web-config", str(files / "web.yml")) as running:
        yield running


def get(
    exporter: RunningExporter, trusted: Path, *, password: str | None = "secret", client: Path | None = None
) -> tuple[int, str]:
    """Return status and text of /metrics/store."""
    context = ssl.create_default_context(cafile=str(trusted))
    if client is not None:
        context.load_cert_chain(client, client.with_suffix(".key"))
    request = urllib.request.Request(f"{exporter.url}/metrics/store")
    if password is not None:
        coded = base64.b64encode(f"prometheus:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {coded}")
    try:
        with urllib.request.urlopen(request, context=context, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_only_a_user_gets_metrics(exporter: RunningExporter, files: Path) -> None:
    assert exporter.url.startswith("https://")
    status, text = get(exporter, files / "server.pem")
    assert status == 200
    assert values(parse(text), "vgpuctl_store_up") == [1]
    assert get(exporter, files / "server.pem", password="wrong") == (401, "unauthorized\n")
    assert get(exporter, files / "server.pem", password=None) == (401, "unauthorized\n")


def test_the_ends_of_its_certificates_are_metrics(exporter: RunningExporter, files: Path) -> None:
    ends = values(parse(get(exporter, files / "server.pem")[1]), "vgpuctl_certificate_expiry_timestamp_seconds")
    assert len(ends) == 2
    assert all(8 * 86_400 < end - time.time() < 10 * 86_400 for end in ends)


@pytest.mark.long(
    "tests/e2e/telemetry/test_exporter_tls.py::test_only_a_user_gets_metrics",
    "tests/e2e/telemetry/test_exporter.py::test_prometheus_discovers_hosts_as_the_page_says",
)
def test_prometheus_of_a_tenant_scrapes_it_as_the_page_says(exporter: RunningExporter, files: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text(encoding="utf-8")
    [text] = re.findall(r"```yaml\n(scrape_configs:\n  - job_name: vgpuctl-acme\n.*?)```", page, re.DOTALL)
    (files / "password").write_text("secret")
    for written, ours in (
        ("gpus.example:9635", exporter.url.removeprefix("https://")),
        ("vgpuctl-ca.pem", str(files / "server.pem")),
        ("vgpuctl-password", str(files / "password")),
    ):
        text = text.replace(written, ours)
    config = {"global": {"scrape_interval": "1s"}, **yaml.safe_load(text)}
    with running_prometheus(config) as prometheus:
        wait_for(lambda: prometheus.query('up{job="vgpuctl-acme"} == 1'), "scrape of the tenant's page")
        tenants = prometheus.query('count by (tenant) ({job="vgpuctl-acme", __name__=~"vgpuctl_.+"})')
        assert [one["metric"] for one in tenants] in ([], [{"tenant": "acme"}])


def test_a_client_certificate_is_checked(exporter: RunningExporter, files: Path) -> None:
    assert get(exporter, files / "server.pem", client=files / "client.pem")[0] == 200
    with pytest.raises((ssl.SSLError, urllib.error.URLError, ConnectionError)):
        get(exporter, files / "server.pem", client=files / "stranger.pem")


def test_clients_that_say_nothing_or_speak_plain_http_keep_nobody_waiting(
    exporter: RunningExporter, files: Path
) -> None:
    host, _, port = exporter.url.removeprefix("https://").partition(":")
    with contextlib.ExitStack() as opened:
        for _number in range(5):
            opened.enter_context(socket.create_connection((host, int(port))))
        plain = opened.enter_context(socket.create_connection((host, int(port))))
        plain.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert get(exporter, files / "server.pem")[0] == 200


def test_a_renewed_certificate_and_a_changed_user_count_without_a_restart(
    exporter: RunningExporter, files: Path
) -> None:
    make_certificate(files, "new", "server")
    (files / "new.key").replace(files / "server.key")
    (files / "new.pem").replace(files / "server.pem")
    assert get(exporter, files / "server.pem")[0] == 200
    config = (files / "web.yml").read_text()
    (files / "web.yml").write_text(config.replace("prometheus:", "somebody:"))
    assert get(exporter, files / "server.pem")[0] == 401
    (files / "web.yml").write_text("tls_server_config: [")
    assert get(exporter, files / "server.pem")[0] == 401, "a file that cannot be read leaves the old state"
    (files / "web.yml").write_text(config)
    assert get(exporter, files / "server.pem")[0] == 200


def test_an_open_address_is_refused(fleet_operator: Operator) -> None:
    done = fleet_operator.run("serve", "exporter", "--listen", ":0")
    assert done.code == 2
    assert "0.0.0.0 can be reached by others" in done.err
    assert "--insecure-listen" in done.err
