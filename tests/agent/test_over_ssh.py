# SPDX-License-Identifier: Apache-2.0
"""The agent over a real SSH connection: as root, by sudo with and without password, and its end with the connection."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sshd_fixture import FREE_USER, PASSWORD, PASSWORD_USER, PLAIN_USER, LoopbackSshd, missing_for_accounts
from vgpuctl.agent.wire.steps import ResetFunction
from vgpuctl.errors import AgentProblem, BecomeFailed, PythonMissing
from vgpuctl.hosts.agent_client import AgentClient
from vgpuctl.hosts.bundle import build_agent
from vgpuctl.hosts.connection import Connection
from vgpuctl.model.host_target import HostTarget

REASON = missing_for_accounts()
pytestmark = pytest.mark.skipif(REASON is not None, reason=REASON or "")


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackSshd]:
    folder = tmp_path_factory.mktemp("sshd")
    # The users' home; their cache must not be shared, and sshd wants to enter it.
    folder.chmod(0o777)
    home = tmp_path_factory.mktemp("root")
    options = ["PasswordAuthentication yes"]
    with LoopbackSshd(folder, options=options, accounts=True, mounts={Path("/root"): home}) as server:
        yield server


def connect(sshd: LoopbackSshd, target: HostTarget) -> Connection:
    return Connection(target, settings=sshd.settings())


def running_agents() -> set[str]:
    """The processes that run this very agent; sudo carries the same words, so only interpreters count."""
    digest = build_agent().sha256.encode()
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if digest in line and line.startswith(b"/usr/bin/python3"):
            found.add(path.parent.name)
    return found


def test_one_login_and_two_channels_serve_two_sessions(sshd: LoopbackSshd) -> None:
    with connect(sshd, sshd.target()) as connection:
        for _ in range(2):
            with AgentClient(connection) as client:
                assert client.facts().kernel
                assert client.apply([]) == []
        assert connection.statistics.read().logins == 1
        assert connection.statistics.read().channels == 2


@pytest.mark.parametrize("user", [FREE_USER, PASSWORD_USER])
def test_the_agent_runs_by_sudo(user: str, sshd: LoopbackSshd) -> None:
    target = sshd.target(user=user, private_key_file=None, password=PASSWORD, become=True)
    if user == PASSWORD_USER:
        target = sshd.target(user=user, private_key_file=None, password=PASSWORD, become=True, become_password=PASSWORD)
    with connect(sshd, target) as connection, AgentClient(connection) as client:
        assert client.facts().kernel
        assert client.apply([]) == []


def test_a_user_without_rights_can_read_and_is_told_why_not_change(sshd: LoopbackSshd) -> None:
    target = sshd.target(user=PLAIN_USER, private_key_file=None, password=PASSWORD)
    with connect(sshd, target) as connection, AgentClient(connection) as client:
        assert client.facts().kernel
        with pytest.raises(AgentProblem) as caught:
            client.apply([ResetFunction("0000:41:00.0")])
    assert caught.value.code == "lock-refused"
    assert caught.value.hint is not None
    assert "ansible_become" in caught.value.hint


def test_sudos_refusal_is_its_own_error(sshd: LoopbackSshd) -> None:
    target = sshd.target(user=PLAIN_USER, private_key_file=None, password=PASSWORD, become=True)
    with connect(sshd, target) as connection, pytest.raises(BecomeFailed), AgentClient(connection) as client:
        client.facts()


def test_a_missing_python_is_its_own_error(sshd: LoopbackSshd) -> None:
    target = sshd.target(python_interpreter="/nowhere/python3")
    with connect(sshd, target) as connection, pytest.raises(PythonMissing), AgentClient(connection) as client:
        client.facts()


def test_the_agent_ends_with_its_connection(sshd: LoopbackSshd) -> None:
    others = running_agents()
    with connect(sshd, sshd.target()) as connection:
        AgentClient(connection).facts()
        ours = running_agents() - others
        assert ours
    deadline = time.monotonic() + 10
    while ours & running_agents() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not ours & running_agents()
