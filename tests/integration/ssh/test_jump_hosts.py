# SPDX-License-Identifier: Apache-2.0
"""Many hosts behind one bastion, and servers that refuse the start: real sshd with the limits of real ones."""

import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sshd_fixture import LoopbackSshd, make_key, missing_for_sshd
from vgpuctl.errors import AuthenticationFailed, HostKeyUnknown, HostUnreachable
from vgpuctl.hosts import login
from vgpuctl.hosts.connection import Connection
from vgpuctl.hosts.fleet import run_on_hosts
from vgpuctl.hosts.jump_hosts import JumpHosts
from vgpuctl.hosts.settings import SshSettings

# The words of OpenSSH before 9.8 and after.
REFUSED = "(Exceeded MaxStartups|Not allowed at this time)"
HOSTS = [f"gpu{number}" for number in range(16)]


@pytest.fixture
def bastion(tmp_path: Path) -> Iterator[LoopbackSshd]:
    """A jump host that takes two logins at a time."""
    if missing := missing_for_sshd():
        pytest.skip(missing)
    with LoopbackSshd(tmp_path / "bastion", options=["MaxStartups 2", "AllowTcpForwarding yes"]) as server:
        yield server


def behind(bastion: LoopbackSshd, sshd: LoopbackSshd, **changes: str) -> SshSettings:
    options = {"HostName": "127.0.0.1", "Port": bastion.port, "User": "root", "IdentityFile": bastion.client_key}
    options |= {"UserKnownHostsFile": bastion.known_hosts, **changes}
    section = "".join(f" {key} {value}\n" for key, value in options.items())
    return sshd.settings(f"Host bastion\n{section}Host 127.0.0.1\n ProxyJump bastion\n")


def logins(server: LoopbackSshd) -> int:
    return server.log.count("Accepted publickey")


class Run:
    """Connections to many hosts with one set of jump hosts, all open at the end, as in a command."""

    def __init__(self, sshd: LoopbackSshd, settings: SshSettings) -> None:
        self.jump_hosts = JumpHosts()
        self.connections = {
            name: Connection(sshd.target(name=name), settings=settings, jump_hosts=self.jump_hosts) for name in HOSTS
        }

    def echo(self, name: str) -> str:
        return self.connections[name].run(["echo", name], timeout_s=30).stdout.decode().strip()

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()


@pytest.fixture
def run(bastion: LoopbackSshd, sshd: LoopbackSshd) -> Iterator[Run]:
    opened = Run(sshd, behind(bastion, sshd))
    yield opened
    opened.close()


def test_many_hosts_log_in_to_their_bastion_once(bastion: LoopbackSshd, run: Run) -> None:
    results = run_on_hosts(HOSTS, run.echo, forks=len(HOSTS))
    assert [result.get() for result in results] == HOSTS
    assert logins(bastion) == 1
    assert bastion.log.count("MaxStartups") == 0


def test_without_sharing_each_host_logs_in_and_refused_starts_are_tried_again(
    bastion: LoopbackSshd, sshd: LoopbackSshd
) -> None:
    def echo(name: str) -> str:
        with Connection(sshd.target(name=name), settings=behind(bastion, sshd)) as connection:
            return connection.run(["echo", name], timeout_s=30).stdout.decode().strip()

    results = run_on_hosts(HOSTS[:6], echo, forks=6)
    assert [result.get() for result in results] == HOSTS[:6]
    assert logins(bastion) == 6


def test_a_bastion_that_went_away_is_logged_in_to_again(bastion: LoopbackSshd, run: Run) -> None:
    run_on_hosts(HOSTS[:4], run.echo, forks=4)
    assert bastion.kill_sessions() == 1
    for name in HOSTS[:4]:
        while run.connections[name].is_open:
            time.sleep(0.01)
    results = run_on_hosts(HOSTS[:8], run.echo, forks=8)
    assert [result.get() for result in results] == HOSTS[:8]
    assert logins(bastion) == 2


def test_the_bastion_is_left_with_the_last_host_behind_it(run: Run) -> None:
    before = set(threading.enumerate())
    for name in HOSTS[:3]:
        run.echo(name)
    ours = [one for one in threading.enumerate() if one not in before and type(one).__name__ == "OrderedTransport"]
    assert len(ours) == 4
    run.connections[HOSTS[0]].close()
    assert run.echo(HOSTS[1]) == HOSTS[1]
    run.close()
    for transport in ours:
        transport.join(10)
    assert not [transport for transport in ours if transport.is_alive()]


def test_everybody_behind_a_bastion_that_refuses_gets_its_reason(
    bastion: LoopbackSshd, sshd: LoopbackSshd, tmp_path: Path
) -> None:
    make_key(tmp_path / "stranger", "ed25519")
    refused = Run(sshd, behind(bastion, sshd, IdentityFile=str(tmp_path / "stranger")))
    for result in run_on_hosts(HOSTS[:5], refused.echo, forks=5):
        assert isinstance(result.error, AuthenticationFailed)
        assert result.error.message.startswith(f"{result.name}: jump host bastion: 127.0.0.1 port ")
    unknown = Run(sshd, behind(bastion, sshd, UserKnownHostsFile=str(tmp_path / "none")))
    for result in run_on_hosts(HOSTS[:5], unknown.echo, forks=5):
        assert isinstance(result.error, HostKeyUnknown)
        assert result.error.message.startswith(f"{result.name}: jump host bastion: the host key of ")


class Filler(logging.Handler):
    """Takes every place of a server, and gives them back when the first retry is logged."""

    def __init__(self, server: LoopbackSshd, count: int) -> None:
        super().__init__()
        self.taken = [socket.create_connection((server.address, server.port)) for _ in range(count)]
        for stream in self.taken:
            assert stream.recv(4) == b"SSH-"
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())
        for stream in self.taken:
            stream.close()


def test_a_refused_start_is_tried_again_and_told(bastion: LoopbackSshd) -> None:
    filler = Filler(bastion, 2)
    logging.getLogger("vgpuctl.hosts").addHandler(filler)
    try:
        with Connection(bastion.target(), settings=bastion.settings()) as connection:
            connection.open()
    finally:
        logging.getLogger("vgpuctl.hosts").removeHandler(filler)
    assert re.match(rf"gpu1: the SSH server refused to begin \({REFUSED}\); try 2 of 7 in ", filler.said[0])


def test_a_server_that_goes_on_refusing_is_named(bastion: LoopbackSshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "PAUSES_S", (0.01, 0.01))
    filler = Filler(bastion, 2)
    with (
        Connection(bastion.target(), settings=bastion.settings()) as connection,
        pytest.raises(HostUnreachable, match=f"closed it at once, 3 times: {REFUSED}") as caught,
    ):
        connection.open()
    assert "raise MaxStartups in its sshd_config or lower --forks" in str(caught.value.hint)
    for stream in filler.taken:
        stream.close()


def test_a_port_that_hangs_up_without_a_word_is_named(sshd: LoopbackSshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "PAUSES_S", (0.01, 0.01))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(3):
                server.accept()[0].close()

        threading.Thread(target=serve, daemon=True).start()
        target = sshd.target(port=server.getsockname()[1])
        with (
            Connection(target, settings=sshd.settings()) as connection,
            pytest.raises(HostUnreachable, match="3 times: it said nothing"),
        ):
            connection.open()
