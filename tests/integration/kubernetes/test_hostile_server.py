# SPDX-License-Identifier: Apache-2.0
"""An API server that means harm: whatever it sends, a request ends in time, within its bytes, with an error of ours."""

import contextlib
import gzip
import itertools
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.kubernetes_api import kubeconfig_of, kubernetes_api
from vgpuctl.clusters.kubernetes.api_server import MOST_BYTES
from vgpuctl.clusters.kubernetes.kubeconfig import read_kubeconfig
from vgpuctl.clusters.kubernetes.link import KubernetesLink
from vgpuctl.clusters.kubernetes.server_address import ClusterNetworks, parse_cluster_networks
from vgpuctl.errors import ClusterError, ClusterRefused, ClusterUnreachable
from vgpuctl.model.secret_text import SecretText

LOOPBACK = parse_cluster_networks(["127.0.0.0/8"])
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
TIMEOUT_S = 1.0


@contextlib.contextmanager
def _answering(pieces: Callable[[], Iterator[bytes]], pause_s: float = 0.0) -> Iterator[tuple[str, list[str]]]:
    """Send the pieces to whoever connects. Yields the address, and the first line of each request."""
    requests: list[str] = []
    is_over = threading.Event()

    def serve() -> None:
        while True:
            try:
                connection, _peer = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                requests.append(connection.recv(65_536).split(b"\r\n")[0].decode())
                for piece in pieces():
                    connection.sendall(piece)
                    if is_over.wait(pause_s):
                        return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests
        finally:
            is_over.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            assert not thread.is_alive()


def _members(address: str, timeout_s: float = TIMEOUT_S) -> ClusterError:
    link = KubernetesLink(
        read_kubeconfig(SecretText.of(kubeconfig_of(address)), LOOPBACK),
        tenant="acme",
        name="main",
        timeout_s=timeout_s,
    )
    try:
        with pytest.raises(ClusterError) as caught:
            link.members()
    finally:
        link.close()
    assert "list nodes" in caught.value.message and len(caught.value.message) < 500
    return caught.value


def _endless_body() -> Iterator[bytes]:
    yield OK + b"\r\n"
    yield from itertools.repeat(b" " * 1_000_000)


def _endless_chunks() -> Iterator[bytes]:
    yield OK + b"Transfer-Encoding: chunked\r\n\r\n"
    yield from itertools.repeat(b"f4240\r\n" + b" " * 1_000_000 + b"\r\n")


def _endless_interim_answers() -> Iterator[bytes]:
    yield from itertools.repeat(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 20_000)


def _many_headers() -> Iterator[bytes]:
    yield OK
    yield from (f"X-{number}: {'x' * 1000}\r\n".encode() for number in range(100_000))


def _bomb() -> Iterator[bytes]:
    packed = gzip.compress(b" " * 20_000_000)
    yield OK + f"Content-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n".encode() + packed


@pytest.mark.parametrize(
    ("pieces", "kind", "words"),
    [
        (_endless_body, ClusterRefused, f"sent more than {MOST_BYTES} bytes"),
        (_endless_chunks, ClusterRefused, f"sent more than {MOST_BYTES} bytes"),
        (_endless_interim_answers, ClusterError, "list nodes"),
        (_many_headers, ClusterUnreachable, "did not answer"),
        (_bomb, ClusterRefused, "in the coding b'gzip', which was not asked for"),
    ],
)
def test_an_answer_without_end_is_cut_off(
    pieces: Callable[[], Iterator[bytes]], kind: type[ClusterError], words: str
) -> None:
    # 64 MiB need their time on a busy machine.
    with _answering(pieces) as (address, _requests):
        error = _members(address, timeout_s=60 if kind is ClusterRefused else TIMEOUT_S)
    assert isinstance(error, kind)
    assert words in error.message


@pytest.mark.parametrize("begin", [b"", OK, OK + b"\r\n"])
def test_a_byte_now_and_then_does_not_make_the_time_longer(begin: bytes) -> None:
    def pieces() -> Iterator[bytes]:
        yield begin + b"H"
        yield from itertools.repeat(b"0")

    with _answering(pieces, pause_s=0.1) as (address, _requests):
        error = _members(address)
    assert isinstance(error, ClusterUnreachable)
    assert "it had not answered in full after 1 s" in error.message


def test_silence_ends_with_the_same_words() -> None:
    with _answering(lambda: iter([b""] * 2), pause_s=30) as (address, _requests):
        assert "it had not answered in full after 1 s" in _members(address).message


def test_a_redirect_is_not_followed() -> None:
    with _answering(lambda: iter([OK + b"Content-Length: 2\r\n\r\n{}"])) as (inner, asked):
        answer = f"HTTP/1.1 307 Go\r\nLocation: {inner}/secret\r\nContent-Length: 0\r\n\r\n".encode()
        with _answering(lambda: iter([answer])) as (address, _requests):
            error = _members(address)
    assert isinstance(error, ClusterRefused)
    assert "HTTP status 307" in error.message
    assert asked == []


def test_pages_without_end_end() -> None:
    body = b'{"metadata": {"continue": "x"}, "items": []}'
    answer = OK + f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
    with _answering(lambda: iter([answer])) as (address, requests):
        error = _members(address)
    assert isinstance(error, ClusterUnreachable)
    assert "did not list nodes in full in 6 s" in error.message
    assert "continue=x" in requests[-1]


def test_objects_of_any_depth_are_refused() -> None:
    body = b'{"items": [' + b"[" * 500_000 + b"]" * 500_000 + b"]}"
    answer = OK + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    with _answering(lambda: iter([answer])) as (address, _requests):
        assert "cannot be read" in _members(address).message


def test_a_name_is_checked_as_it_resolves() -> None:
    """A name may lead elsewhere at each connection, so the kubeconfig's check alone is not enough."""
    with kubernetes_api() as api:
        text = kubeconfig_of(api.address.replace("127.0.0.1", "localhost"))
        for networks, is_fine in ((LOOPBACK, True), (ClusterNetworks(), False)):
            link = KubernetesLink(
                read_kubeconfig(SecretText.of(text), LOOPBACK), tenant="acme", name="main", check=networks.check
            )
            with contextlib.nullcontext() if is_fine else pytest.raises(ClusterRefused, match="is this machine"):
                assert link.members() == []
            link.close()
