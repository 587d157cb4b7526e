# SPDX-License-Identifier: Apache-2.0
"""Servers that allow few sessions on a connection (MaxSessions): behaviour and errors with 1 and 2."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import libvirt
import pytest

from tests.libvirtd_fixture import LocalLibvirtd, missing_for_libvirtd
from tests.sshd_fixture import LoopbackSshd, missing_for_sshd
from vgpuctl.errors import HostUnreachable
from vgpuctl.hosts.agent_client import AgentClient
from vgpuctl.hosts.connection import Connection

HINT = "set MaxSessions to 10, OpenSSH's default, in the host's sshd_config and reload sshd"


@contextmanager
def server_with(tmp_path: Path, sessions: int, mounts: dict[Path, Path] | None = None) -> Iterator[Connection]:
    if missing := missing_for_sshd():
        pytest.skip(missing)
    with (
        LoopbackSshd(tmp_path / "sshd", options=[f"MaxSessions {sessions}"], mounts=mounts) as server,
        Connection(server.target(), settings=server.settings()) as connection,
    ):
        yield connection


def test_one_session_is_enough_for_commands_in_turn(tmp_path: Path) -> None:
    with server_with(tmp_path, 1) as connection, ThreadPoolExecutor(4) as pool:
        commands = [pool.submit(connection.run, ["echo", str(number)], timeout_s=30) for number in range(8)]
        assert [command.result().stdout for command in commands] == [b"%d\n" % number for number in range(8)]


_ONE_MORE = pytest.mark.long("tests/integration/ssh/test_sessions.py::test_sessions_that_nobody_gives_back_are_named")


@pytest.mark.parametrize(("sessions", "shown"), [(1, "1 session"), pytest.param(2, "2 sessions", marks=_ONE_MORE)])
def test_sessions_that_nobody_gives_back_are_named(tmp_path: Path, sessions: int, shown: str) -> None:
    with server_with(tmp_path, sessions) as connection:
        lasting = [connection.open_process(["cat"]) for _ in range(sessions)]
        for start in (lambda: connection.run(["true"], timeout_s=600), lambda: connection.open_process(["cat"])):
            with pytest.raises(HostUnreachable, match=rf"gpu1: the SSH server allows {shown} .*MaxSessions") as caught:
                start()
            assert caught.value.hint == HINT
        lasting.pop().close()
        assert connection.run(["echo", "again"], timeout_s=30).stdout == b"again\n"


def test_libvirt_beside_the_agent_is_refused_by_name_with_one_session(tmp_path: Path) -> None:
    with (
        server_with(tmp_path, 1) as connection,
        AgentClient(connection) as agent,
        pytest.raises(HostUnreachable, match="allows 1 session on a connection"),
    ):
        agent.image("/etc/hostname")
        with connection.libvirt_uri() as uri:
            libvirt.open(uri)


def test_agent_and_libvirt_work_with_two_sessions(tmp_path: Path) -> None:
    if missing := missing_for_libvirtd():
        pytest.skip(missing)
    with (
        LocalLibvirtd(tmp_path / "lv") as daemon,
        server_with(tmp_path, 2, {Path("/run/libvirt"): daemon.folder / "sockets"}) as connection,
        AgentClient(connection) as agent,
        connection.libvirt_uri() as uri,
    ):
        client = libvirt.open(uri)
        for _ in range(3):
            agent.image("/etc/hostname")
            assert client.listAllDomains() == []
        client.close()
