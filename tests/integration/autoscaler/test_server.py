# SPDX-License-Identifier: Apache-2.0
"""The autoscaler's endpoint: mutual TLS, who may call, and limits."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from tests.autoscaler_client import Provider, refusal
from tests.certificates import Authority, make_authority
from tests.integration.autoscaler.pools import GROUP, stored_pools
from vgpuctl.autoscaler.provider import provider_calls
from vgpuctl.autoscaler.server import serving
from vgpuctl.autoscaler.tls import ServerTls
from vgpuctl.errors import UsageError
from vgpuctl.usecases.kubernetes.serve_autoscaler import NodeGroups


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeGroups]:
    with stored_pools(tmp_path_factory.mktemp("store")) as services:
        yield NodeGroups(services, "acme", "main")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = make_authority(tmp_path_factory.mktemp("pki"))
    made.issue("server", "vgpuctl")
    return made


@contextmanager
def client(
    port: int, trusted: Authority, files: tuple[Path, Path] | None, *, max_bytes: int = -1
) -> Iterator[Provider]:
    key, certificate = (None, None) if files is None else (one.read_bytes() for one in files)
    credentials = grpc.ssl_channel_credentials(trusted.certificate.read_bytes(), key, certificate)
    options = (("grpc.max_send_message_length", max_bytes),)
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials, options=options) as channel:
        yield Provider(channel)


def tls_of(authority: Authority, name: str = "server") -> ServerTls:
    folder = authority.folder
    return ServerTls(folder / f"{name}.key", folder / f"{name}.pem", authority.certificate, ("acme",))


@pytest.fixture(scope="module")
def port(groups: NodeGroups, authority: Authority) -> Iterator[int]:
    with serving(provider_calls(groups), "127.0.0.1", 0, tls_of(authority)) as taken:
        yield taken


@pytest.mark.parametrize(
    ("subject", "alternative", "code"),
    [
        ("acme", "DNS:autoscaler.example", None),
        ("autoscaler", "DNS:acme", None),
        ("globex", "DNS:globex.example", "PERMISSION_DENIED"),
        ("acme.example", "DNS:x.acme", "PERMISSION_DENIED"),
        ("ACME", "URI:spiffe://acme", "PERMISSION_DENIED"),
    ],
)
def test_the_name_in_a_clients_certificate_decides(
    port: int, authority: Authority, subject: str, alternative: str, code: str | None
) -> None:
    files = authority.issue("client", subject, alternative)
    with client(port, authority, files) as provider:
        if code is None:
            assert provider.call("NodeGroups").nodeGroups
            return
        for name, values in (("NodeGroups", {}), ("NodeGroupIncreaseSize", {"id": GROUP, "delta": 1})):
            with pytest.raises(grpc.RpcError) as refused:
                provider.call(name, **values)
            assert refusal(refused.value) == code


def test_a_client_without_a_certificate_of_the_authority_gets_nowhere(
    port: int, authority: Authority, tmp_path: Path
) -> None:
    foreign = make_authority(tmp_path, "other")
    for files in (None, foreign.issue("client", "acme")):
        with client(port, authority, files) as provider, pytest.raises(grpc.RpcError) as refused:
            provider.call("NodeGroups")
        assert refusal(refused.value) == "UNAVAILABLE"
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, pytest.raises(grpc.RpcError) as refused:
        Provider(channel).call("NodeGroups")
    assert refusal(refused.value) == "UNAVAILABLE"


def test_a_request_that_is_too_large_is_refused(port: int, authority: Authority) -> None:
    with (
        client(port, authority, authority.issue("client", "acme")) as provider,
        pytest.raises(grpc.RpcError) as refused,
    ):
        provider.delete(GROUP, [{"name": "x" * (17 * 1024 * 1024)}])
    assert refusal(refused.value) == "RESOURCE_EXHAUSTED"


def test_a_renewed_certificate_needs_no_restart_and_a_broken_one_changes_nothing(
    groups: NodeGroups, tmp_path: Path
) -> None:
    authority = make_authority(tmp_path)
    authority.issue("server", "old")
    files = authority.issue("client", "acme")

    with serving(provider_calls(groups), "127.0.0.1", 0, tls_of(authority)) as port:

        def known(by: Authority) -> list[str]:
            with client(port, by, files) as provider:
                return [one.id for one in provider.call("NodeGroups").nodeGroups]

        before = known(authority)
        assert GROUP in before
        (tmp_path / "server.pem").write_text("broken")
        assert known(authority) == before
        renewed = tmp_path / "renewed"
        renewed.mkdir()
        other = make_authority(renewed)
        for file in other.issue("server", "new"):
            shutil.copy(file, tmp_path)
        assert known(other) == before
        with pytest.raises(grpc.RpcError) as refused:
            known(authority)
        assert refusal(refused.value) == "UNAVAILABLE", "the old certificate is no longer shown"


def test_what_cannot_be_served_is_refused_before(groups: NodeGroups, authority: Authority, tmp_path: Path) -> None:
    calls = provider_calls(groups)

    def refused(address: str, port: int, tls: ServerTls | None) -> str:
        with pytest.raises(UsageError) as error, serving(calls, address, port, tls):
            pass
        return error.value.message

    assert "creates and deletes VMs" in refused("0.0.0.0", 0, None)
    with serving(calls, "127.0.0.1", 0, None) as taken:
        assert refused("127.0.0.1", taken, None).endswith("cannot be listened on: Address already in use")
    make_authority(tmp_path).issue("other", "x")
    key_of_another = ServerTls(
        tmp_path / "other.key", authority.folder / "server.pem", authority.certificate, ("acme",)
    )
    assert "TLS cannot be set up" in refused("127.0.0.1", 0, key_of_another)
    missing = ServerTls(tmp_path / "none", authority.folder / "server.pem", authority.certificate, ("acme",))
    assert "No such file" in refused("127.0.0.1", 0, missing)
