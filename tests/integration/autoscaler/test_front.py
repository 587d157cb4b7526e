# SPDX-License-Identifier: Apache-2.0
"""The autoscaler's endpoint behind the front of all servers: its names, web pages, and too many connections."""

import contextlib
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
        assert Provider(channel).call("NodeGroups").nodeGroups, "who is connected stays so"
        assert silent[-1].recv(1) == b"", "one too many is closed"
