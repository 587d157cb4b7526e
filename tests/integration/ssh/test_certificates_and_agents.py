# SPDX-License-Identifier: Apache-2.0
"""Logins as companies have them: certificates of a CA, FIDO keys and agents that take their time, on a real sshd."""

import base64
import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.ssh.test_logins import add_to_agent, logged_in_by, open_and_close, running_agent
from tests.sshd_fixture import LoopbackSshd, make_key, missing_for_sshd
from tests.token_agent import TokenAgent
from vgpuctl.errors import AuthenticationFailed
from vgpuctl.hosts import key_agent
from vgpuctl.hosts.public_keys import PublicKey

KINDS = ("ed25519", "rsa", "ecdsa")
# In the line of sshd's log on a login, only when it was by our certificate.
BY_CERTIFICATE = "ID the operator (serial 0) CA ED25519 SHA256:"


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackSshd]:
    """A server that trusts a CA for users, and one key that it knows of old."""
    if missing := missing_for_sshd():
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("company")
    make_key(folder / "ca", "ed25519")
    with LoopbackSshd(folder, options=[f"TrustedUserCAKeys {folder}/ca.pub", "MaxAuthTries 6"]) as server:
        yield server


def certified(company: LoopbackSshd, path: Path, *options: str, kind: str = "ed25519") -> Path:
    """Make a key that the server does not know, and a certificate of the CA next to it."""
    make_key(path, kind)
    argv = ["ssh-keygen", "-q", "-s", f"{company.folder}/ca", "-I", "the operator", "-n", "root", *options]
    subprocess.run([*argv, f"{path}.pub"], check=True, stderr=subprocess.DEVNULL)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_certificate_beside_the_key_logs_in(company: LoopbackSshd, tmp_path: Path, kind: str) -> None:
    key = certified(company, tmp_path / "key", kind=kind)
    assert BY_CERTIFICATE in logged_in_by(company, company.target(private_key_file=str(key)), company.settings())


@pytest.mark.parametrize("kind", KINDS)
def test_a_certificate_of_ssh_config_logs_in(company: LoopbackSshd, tmp_path: Path, kind: str) -> None:
    key = certified(company, tmp_path / "key", kind=kind)
    Path(f"{key}-cert.pub").rename(tmp_path / "elsewhere")
    settings = company.settings(f"IdentityFile {key}\nCertificateFile {tmp_path}/elsewhere")
    assert BY_CERTIFICATE in logged_in_by(company, company.target(private_key_file=None), settings)


def test_a_certificate_of_the_common_arguments_logs_in(company: LoopbackSshd, tmp_path: Path) -> None:
    key = certified(company, tmp_path / "key")
    Path(f"{key}-cert.pub").rename(tmp_path / "elsewhere")
    arguments = f"-o CertificateFile={tmp_path}/elsewhere -o CertificateFile=none"
    target = company.target(private_key_file=str(key), common_args=arguments)
    assert BY_CERTIFICATE in logged_in_by(company, target, company.settings())


@pytest.mark.parametrize("kind", KINDS)
def test_a_certificate_with_its_key_in_the_agent_logs_in(company: LoopbackSshd, tmp_path: Path, kind: str) -> None:
    key = certified(company, tmp_path / "key", kind=kind)
    certificate = Path(f"{key}-cert.pub").rename(tmp_path / "elsewhere")
    with running_agent(tmp_path) as agent:
        add_to_agent(agent, key)
        key.unlink()
        settings = company.settings(
            f"IdentityAgent {agent}\nIdentitiesOnly yes\nIdentityFile {key}\nCertificateFile {certificate}"
        )
        assert BY_CERTIFICATE in logged_in_by(company, company.target(private_key_file=None), settings)


@pytest.mark.parametrize("kind", KINDS)
def test_a_certificate_that_the_agent_holds_logs_in(company: LoopbackSshd, tmp_path: Path, kind: str) -> None:
    key = certified(company, tmp_path / "key", kind=kind)
    with running_agent(tmp_path) as agent:
        add_to_agent(agent, key)  # with the certificate that lies beside it
        for path in tmp_path.glob("key*"):
            path.unlink()
        settings = company.settings(f"IdentityAgent {agent}")
        assert BY_CERTIFICATE in logged_in_by(company, company.target(private_key_file=None), settings)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-V", "20200101:20200102"), "valid until 2020-01-02"),
        (("-n", "other"), "for other"),
        (("-h",), "of a host, not of a user"),
    ],
)
def test_a_certificate_that_does_not_serve_says_whose_it_is(
    company: LoopbackSshd, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    key = certified(company, tmp_path / "key", *options)
    with pytest.raises(AuthenticationFailed) as caught:
        open_and_close(company.target(private_key_file=str(key)), company.settings())
    first, second = caught.value.context[:2]
    assert first.startswith("tried: certificate 'the operator' serial 0, ") and said in first
    assert f"({key}-cert.pub) with key {key}" in first
    assert second.startswith(f"tried: key {key} (SHA256:")


def test_the_key_itself_serves_when_its_certificate_does_not(company: LoopbackSshd, tmp_path: Path) -> None:
    key = certified(company, tmp_path / "key", "-n", "other")
    with company.admits(Path(f"{key}.pub").read_text()):
        line = logged_in_by(company, company.target(private_key_file=str(key)), company.settings())
    assert " ssh2: ED25519 SHA256:" in line


def test_certificates_that_cannot_be_read_are_named(company: LoopbackSshd, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no certificate")
    (tmp_path / "plain").write_text(f"{company.public_key()} x")
    kind, data = company.public_key().split()
    cut = base64.b64encode(base64.b64decode(data)[:-4]).decode()
    (tmp_path / "cut").write_text(f"{kind} {cut}")
    names = ("text", "plain", "cut", "missing")
    config = "".join(f"CertificateFile {tmp_path}/{name}\n" for name in names)
    with pytest.raises(AuthenticationFailed) as caught:
        open_and_close(company.target(private_key_file=None), company.settings(config))
    for name in names:
        assert any(line.startswith(f"not tried: certificate {tmp_path}/{name}: ") for line in caught.value.context)


def key_of(agent: TokenAgent) -> str:
    """The agent's key as a line of authorized_keys."""
    return f"{PublicKey.of_blob(agent.blob).kind} {base64.b64encode(agent.blob).decode()} token"


_PLAIN = pytest.mark.long(
    "tests/integration/ssh/test_certificates_and_agents.py::test_an_agent_that_signs_after_8_seconds_logs_in"
)


@pytest.mark.parametrize("is_token", [pytest.param(False, marks=_PLAIN), True], ids=["plain", "FIDO"])
def test_an_agent_that_signs_after_8_seconds_logs_in(
    sshd: LoopbackSshd, tmp_path: Path, is_token: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with TokenAgent(tmp_path / "agent", is_token=is_token, delay_s=8.0) as agent, sshd.admits(key_of(agent)):
        settings = sshd.settings(f"IdentityAgent {agent.path}", connect_timeout_s=5.0)
        with caplog.at_level(logging.WARNING):
            open_and_close(sshd.target(private_key_file=None), settings)
        assert agent.signed == 1
    assert "has not signed yet with key the token: touch the token" in caplog.text


def test_an_agent_that_refuses_is_named_and_the_next_key_tried(sshd: LoopbackSshd, tmp_path: Path) -> None:
    with TokenAgent(tmp_path / "agent", is_token=True, refuses=True) as agent, sshd.admits(key_of(agent)):
        settings = sshd.settings(f"IdentityAgent {agent.path}")
        with pytest.raises(AuthenticationFailed) as caught:
            open_and_close(sshd.target(private_key_file=None, password="wrong"), settings)
    assert caught.value.context[0].startswith("tried: agent key the token (SHA256:")
    assert caught.value.context[0].endswith(": the agent did not sign: it refused to sign")
    assert caught.value.context[1] == "tried: password"


def test_an_agent_that_never_signs_is_given_up(
    sshd: LoopbackSshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_agent, "SIGN_TIMEOUT_S", 0.3)
    with TokenAgent(tmp_path / "agent", delay_s=3.0) as agent, sshd.admits(key_of(agent)):
        settings = sshd.settings(f"IdentityAgent {agent.path}")
        with pytest.raises(AuthenticationFailed) as caught:
            open_and_close(sshd.target(private_key_file=None), settings)
    assert caught.value.context[0].endswith(r": the agent did not sign: no answer within 0.3 s")


def test_a_fido_key_file_asks_for_the_agent(sshd: LoopbackSshd, tmp_path: Path) -> None:
    key = tmp_path / "id_ed25519_sk"
    with TokenAgent(tmp_path / "agent", is_token=True) as agent:
        Path(f"{key}.pub").write_text(f"{key_of(agent)}\n")
    key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nxxxx\n-----END OPENSSH PRIVATE KEY-----\n")
    key.chmod(0o600)
    with pytest.raises(AuthenticationFailed) as caught:
        open_and_close(sshd.target(private_key_file=str(key)), sshd.settings())
    assert f"not tried: key {key}: a FIDO key, whose token only an agent can ask" in caught.value.context
    assert caught.value.hint == f"load the key into an agent: `ssh-add {key}`"


def test_something_else_than_an_agent_is_named(sshd: LoopbackSshd, tmp_path: Path) -> None:
    with TokenAgent(tmp_path / "no-agent", refuses=True) as agent_like:
        agent_like.answer = lambda message: b"\x0c\xff\xff\xff\xff"  # type: ignore[method-assign]
        with pytest.raises(AuthenticationFailed) as caught:
            open_and_close(sshd.target(private_key_file=None), sshd.settings(f"IdentityAgent {agent_like.path}"))
    assert f"not tried: agent {agent_like.path}: it does not list its keys" in caught.value.context


def test_kerberos_is_named_when_the_server_would_take_it(tmp_path: Path) -> None:
    if missing := missing_for_sshd():
        pytest.skip(missing)
    with LoopbackSshd(tmp_path, options=["GSSAPIAuthentication yes"]) as server:
        config = "GSSAPIAuthentication yes\nPKCS11Provider /usr/lib/p11.so"
        with pytest.raises(AuthenticationFailed) as caught:
            open_and_close(server.target(private_key_file=None), server.settings(config))
    assert "not tried: Kerberos tickets (GSSAPIAuthentication): not supported" in caught.value.context
    assert any(line.startswith("not tried: PKCS11Provider: not supported") for line in caught.value.context)
