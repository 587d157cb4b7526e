# SPDX-License-Identifier: Apache-2.0
"""The autoscaler's endpoint behind the front of all servers: its names, web pages, and too many connections."""

import contextlib
import logging
import socket
from collections.abc import Iterator

import grpc
import pytest

from tests.autoscaler_client import Provider, refusal
from tests.integration.autoscaler.pools import stored_pools
from tests.integration.web.attacks import HEADS
from vgpuctl.autoscaler import server as autoscaler
from vgpuctl.autoscaler.provider import provider_calls
from vgpuctl.listening.relay import MOST_OF_CLIENT
from vgpuctl.usecases.kubernetes.serve_autoscaler import NodeGroups


@pytest.fixture(scope="module")
def grpc_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with stored_pools(tmp_path_factory.mktemp("pools")) as services:
        calls = provider_calls(NodeGroups(services, "acme", "main"))
        with autoscaler.serving(calls, "127.0.0.1", 0, None, ("autoscaler.example",)) as port:
            yield port


@pytest.mark.parametrize("authority", [
    "evil.example", "evil.example:8086", "127.0.0.1.evil.example", "192.0.2.1:1", "user@127.0.0.1", "127.1", "x y",
])  # fmt: skip
def test_the_autoscaler_is_called_by_its_own_names_alone(grpc_port: int, authority: str) -> None:
    options = (("grpc.default_authority", authority),)
    with (
        grpc.insecure_channel(f"127.0.0.1:{grpc_port}", options=options) as channel,
        pytest.raises(grpc.RpcError) as refused,
    ):
        Provider(channel).call("NodeGroups")
    assert refusal(refused.value) in ("PERMISSION_DENIED", "UNAVAILABLE", "INTERNAL")


@pytest.mark.parametrize("authority", ["localhost:1", "AUTOSCALER.example.", "autoscaler.example:8086", "127.0.0.1"])
def test_the_names_of_the_autoscaler(grpc_port: int, authority: str) -> None:
    options = (("grpc.default_authority", authority),)
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}", options=options) as channel:
        assert Provider(channel).call("NodeGroups").nodeGroups


def test_a_web_page_may_not_call_the_autoscaler(grpc_port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        method = channel.unary_unary("/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider/Refresh")
        for key in ("origin", "sec-fetch-site"):
            with pytest.raises(grpc.RpcError) as refused:
                method(b"", metadata=((key, "http://evil.example"),), timeout=60)
            assert refusal(refused.value) == "PERMISSION_DENIED"


@pytest.mark.parametrize("attack", ["foreign Host", "two Hosts", "foreign Origin", "chunks", "a body of GET"])
def test_the_autoscaler_speaks_no_http_of_browsers(grpc_port: int, attack: str) -> None:
    head = "\r\n".join(["GET / HTTP/1.1", *HEADS[attack][0], "", ""])
    with socket.create_connection(("127.0.0.1", grpc_port), 30) as client:
        client.sendall(head.encode())
        held = b""
        with contextlib.suppress(ConnectionError):
            while data := client.recv(65536):
                held += data
    assert not held.startswith(b"HTTP/")  # frames of HTTP/2 that end the connection


def test_silent_clients_keep_no_autoscaler_waiting(grpc_port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel, contextlib.ExitStack() as opened:
        assert Provider(channel).call("NodeGroups").nodeGroups
        silent = [
            opened.enter_context(socket.create_connection(("127.0.0.1", grpc_port), 60))
            for _ in range(2 * MOST_OF_CLIENT)
        ]
        assert Provider(channel).call("NodeGroups").nodeGroups
        assert _is_ended(silent[0]), "what is quiet longest makes room"


def test_idle_clients_of_several_addresses_keep_no_autoscaler_out(
    grpc_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Each has as many connections as one may have, and HTTP/2 begun on them."""
    caplog.set_level(logging.INFO)
    with contextlib.ExitStack() as opened:
        idle = []
        for source in ("127.0.0.2", "127.0.0.3"):
            for _ in range(MOST_OF_CLIENT):
                one = opened.enter_context(socket.create_connection(("127.0.0.1", grpc_port), 60, (source, 0)))
                one.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
                assert one.recv(1)
                idle.append(one)
        with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
            for _ in range(3):
                assert Provider(channel).call("NodeGroups").nodeGroups
                idle.append(
                    opened.enter_context(socket.create_connection(("127.0.0.1", grpc_port), 60, ("127.0.0.4", 0)))
                )
                assert Provider(channel).call("NodeGroups").nodeGroups, "who calls stays connected"
        assert _is_ended(idle[0])
    (*_, last) = [one for one in caplog.records if one.message == "connection ended"]
    assert last.fields["refused"]["connections"] >= 4  # type: ignore[attr-defined]


def _is_ended(client: socket.socket) -> bool:
    with contextlib.suppress(ConnectionError):
        while client.recv(4096):
            pass
    return True


def test_an_ended_call_is_counted_in_the_log(grpc_port: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    options = (("grpc.default_authority", "evil.example"),)
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}", options=options) as channel, pytest.raises(grpc.RpcError):
        Provider(channel).call("NodeGroups")
    (told,) = [one for one in caplog.records if one.message == "call refused"]
    assert told.fields["reason"] == "host"  # type: ignore[attr-defined]
    assert told.fields["refused"]["host"] >= 1  # type: ignore[attr-defined]
