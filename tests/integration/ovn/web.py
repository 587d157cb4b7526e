# SPDX-License-Identifier: Apache-2.0
"""A web server and a client for endpoints' namespaces, with the standard library alone.

`serve NAME PORT` answers each request with its name and what it was sent. `load` makes many requests, a new connection
each, and prints what became of them.
"""

import hashlib
import http.client
import json
import socket
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_LIMIT_S = 15.0


class _Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6
    request_queue_size = 256
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is nothing to tell."""

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def serve(name: str, port: str, slow_s: str) -> None:
    """Answer every request; one for /slow takes its time."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path.startswith("/slow"):
                time.sleep(float(slow_s))
            headers = [[key.lower(), value] for key, value in self.headers.items()]
            body = json.dumps({"name": name, "path": self.path, "headers": headers}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
            pass

    server = _Server(("::", int(port)), Handler)
    _tell("ready")
    server.serve_forever()


def get(url: str, headers: str) -> None:
    """Make one request, with these headers besides, and print its status, answer and headers as JSON."""
    status, body, answered, _certificate = _request(json.loads(url), json.loads(headers))
    _tell(json.dumps([status, body, answered]))


def raw(address: str, port: str, text: str) -> None:
    """Send a text as it is, and print the first line of the answer."""
    with socket.create_connection((address, int(port)), timeout=_LIMIT_S) as one:
        one.sendall(json.loads(text).encode("latin-1"))
        _tell(one.recv(4000).decode("latin-1").partition("\r\n")[0])


def load(url: str, count: str, workers: str, first_port: str) -> None:
    """Make many requests; print how many failed and why, and who answered with which certificate.

    first_port: of the source ports, each used once: Open vSwitch 3.1's own conntrack ends itself when one is used again
    for a translated connection that has just closed (lib/conntrack.c, conn_update_state).
    """
    wanted, lock = int(count), threading.Lock()
    begun = 0
    failures: Counter[str] = Counter()
    names: Counter[str] = Counter()
    certificates: Counter[str] = Counter()

    def work() -> None:
        nonlocal begun
        while True:
            with lock:
                if begun == wanted:
                    return
                begun += 1
                source_port = int(first_port) + begun
            try:
                status, body, _headers, certificate = _request(json.loads(url), [], source_port)
                problem = "" if status == 200 else f"status {status}"
            except (OSError, http.client.HTTPException) as error:
                body, certificate, problem = {}, "", f"{type(error).__name__}: {error}"
            with lock:
                if problem:
                    failures[problem] += 1
                else:
                    names[str(body["name"])] += 1
                    certificates[certificate] += 1

    threads = [threading.Thread(target=work) for _ in range(int(workers))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    _tell(json.dumps({"requests": wanted, "failures": failures, "names": names, "certificates": certificates}))


def _request(
    url: "list[object]", headers: "list[list[str]]", source_port: int = 0
) -> "tuple[int, dict[str, object], list[list[str]], str]":
    """url: [address, port, is TLS, host, path]."""
    address, port, is_tls, host, path = url
    target = (str(address), int(str(port)))
    sock: socket.socket = socket.create_connection(target, timeout=_LIMIT_S, source_address=("", source_port))
    certificate = ""
    if is_tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        sock = context.wrap_socket(sock, server_hostname=str(host))
        certificate = hashlib.sha256(sock.getpeercert(binary_form=True) or b"").hexdigest()
    connection = http.client.HTTPConnection(str(address))
    connection.sock = sock
    try:
        connection.putrequest("GET", str(path), skip_host=True)
        connection.putheader("Host", str(host))
        connection.putheader("Connection", "close")
        for key, value in headers:
            connection.putheader(key, value)
        connection.endheaders()
        answer = connection.getresponse()
        text = answer.read()
        body = json.loads(text) if text.startswith(b"{") else {}
        return answer.status, body, [list(one) for one in answer.getheaders()], certificate
    finally:
        connection.close()


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {"serve": serve, "get": get, "raw": raw, "load": load}
    commands[sys.argv[1]](*sys.argv[2:])
