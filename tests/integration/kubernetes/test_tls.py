# SPDX-License-Identifier: Apache-2.0
"""TLS with an API server: the tenant's authority alone is trusted, and the handshake has the limit of the exchange."""

import base64
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.certificates import Authority, make_authority
from tests.kubernetes_api import TOKEN
from vgpuctl.clusters.kubernetes.kubeconfig import read_kubeconfig
from vgpuctl.clusters.kubernetes.link import KubernetesLink
from vgpuctl.clusters.kubernetes.server_address import parse_cluster_networks
from vgpuctl.errors import ClusterUnreachable
from vgpuctl.model.secret_text import SecretText

LOOPBACK = parse_cluster_networks(["127.0.0.0/8"])


class _Handler(BaseHTTPRequestHandler):
    """Counts connections by the client's port, and answers with no nodes."""

    protocol_version = "HTTP/1.1"
    ports: set[int]

    def do_GET(self) -> None:
        """Answer a list."""
        assert self.headers["Authorization"] == f"Bearer {TOKEN}"
        assert self.headers.get_all("Accept-Encoding") == ["identity"]
        type(self).ports.add(self.client_address[1])
        body = b'{"items": []}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def _served(authority: Authority) -> Iterator[tuple[int, set[int]]]:
    """Serve over TLS. Yields the port, and the ports of the clients that were answered."""
    ports: set[int] = set()
    key, certificate = authority.issue("server", "api")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"ports": ports}))
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.server_port, ports
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def _link(port: int, authority: Authority) -> Iterator[KubernetesLink]:
    trusted = base64.b64encode(authority.certificate.read_bytes()).decode()
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority-data": trusted}
    document = {
        "current-context": "main",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
    }
    config = read_kubeconfig(SecretText.of(json.dumps(document)), LOOPBACK)
    link = KubernetesLink(config, tenant="acme", name="main", timeout_s=2, check=LOOPBACK.check)
    try:
        yield link
    finally:
        link.close()


def test_an_api_server_of_the_tenants_authority_is_asked_over_one_connection(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    with _served(authority) as (port, ports), _link(port, authority) as link:
        assert [link.members() for _ in range(3)] == [[], [], []]
        assert len(ports) == 1


def test_a_certificate_of_another_authority_is_not_trusted(tmp_path: Path) -> None:
    mine, other = make_authority(tmp_path, "mine"), make_authority(tmp_path, "other")
    with _served(other) as (port, ports), _link(port, mine) as link:
        with pytest.raises(ClusterUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
            link.members()
        assert ports == set()


def test_a_handshake_that_is_never_answered_ends(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        _link(listener.getsockname()[1], make_authority(tmp_path)) as link,
        pytest.raises(ClusterUnreachable),
    ):
        link.members()
