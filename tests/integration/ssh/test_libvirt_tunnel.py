# SPDX-License-Identifier: Apache-2.0
"""libvirt's own client, through a real sshd and the real virt-ssh-helper, to a real libvirtd."""

import contextlib
import errno
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import libvirt
import pytest

from tests.libvirtd_fixture import LocalLibvirtd, missing_for_libvirtd
from tests.sshd_fixture import LoopbackSshd, missing_for_sshd
from vgpuctl.errors import DomainRejected, HostUnreachable, LibvirtMissing, WayFailed
from vgpuctl.hosts.connection import Connection
from vgpuctl.hosts.libvirt_tunnel import LibvirtTunnel
from vgpuctl.hosts.remote_process import RemoteProcess
from vgpuctl.model.host_target import HostTarget

HELPER = ("virt-ssh-helper", "qemu:///system")
SEEN = Path("/run/libvirt")


@pytest.fixture(scope="module", autouse=True)
def _quiet_libvirt() -> None:
    libvirt.registerErrorHandler(lambda *_: None, None)


@pytest.fixture(scope="module")
def libvirtd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalLibvirtd]:
    if missing := missing_for_libvirtd():
        pytest.skip(missing)
    with LocalLibvirtd(tmp_path_factory.mktemp("lv")) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, libvirtd: LocalLibvirtd) -> Iterator[LoopbackSshd]:
    if missing := missing_for_sshd():
        pytest.skip(missing)
    # The sessions find the tests' own daemon where a host has its daemon.
    mounts = {SEEN: libvirtd.folder / "sockets"}
    with LoopbackSshd(tmp_path_factory.mktemp("sshd"), mounts=mounts) as sshd:
        yield sshd


@pytest.fixture
def connection(server: LoopbackSshd) -> Iterator[Connection]:
    with Connection(server.target(), settings=server.settings()) as opened:
        yield opened


def test_libvirt_answers_through_the_connection_several_times(connection: Connection) -> None:
    with connection.libvirt_uri() as uri:
        for _ in range(3):
            client = libvirt.open(uri)
            assert client.getType() == "QEMU"
            client.close()
        first, second = libvirt.open(uri), libvirt.open(uri)
        assert first.getLibVersion() == second.getLibVersion()
        first.close()
        assert second.listAllDomains() == []
        second.close()
    assert connection.statistics.read().logins == 1


def test_other_commands_run_beside_libvirt(connection: Connection) -> None:
    with connection.libvirt_uri() as uri, ThreadPoolExecutor(4) as pool:
        client = libvirt.open(uri)
        commands = [pool.submit(connection.run, ["echo", "x"], timeout_s=10) for _ in range(8)]
        for _ in range(30):
            client.listAllDomains()
        assert all(command.result().stdout == b"x\n" for command in commands)
        client.close()


def test_the_socket_is_private_and_goes_with_the_context(connection: Connection) -> None:
    with connection.libvirt_uri() as uri:
        path = Path(uri.partition("socket=")[2].partition("&")[0])
        assert path.is_socket()
        assert path.parent.stat().st_mode & 0o777 == 0o700
    assert not path.parent.exists()


def test_a_long_temporary_folder_does_not_break_the_socket(
    connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with connection.libvirt_uri() as uri:
        client = libvirt.open(uri)
        assert client.getType() == "QEMU"
        client.close()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's."""
    with tempfile.TemporaryDirectory(prefix="vgpuctl-", dir="/tmp") as folder:
        yield Path(folder)


def test_what_a_killed_command_left_goes_and_a_living_ones_stays(
    connection: Connection, short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(short_folder))
    dead = short_folder / "vgpuctl-tunnel-dead"
    dead.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(dead / "libvirt-sock"))
    with connection.libvirt_tunnel() as first, connection.libvirt_tunnel() as second:
        assert not dead.exists()
        assert len(list(short_folder.glob("vgpuctl-tunnel-*"))) == 2
        assert first.uri != second.uri
    assert list(short_folder.glob("vgpuctl-tunnel-*")) == []


def test_an_error_of_the_block_itself_passes_unchanged(connection: Connection) -> None:
    with pytest.raises(DomainRejected, match="no"), connection.libvirt_uri() as uri:
        libvirt.open(uri).close()
        raise DomainRejected("no")


def test_a_missing_helper_says_that_libvirt_is_missing(server: LoopbackSshd) -> None:
    settings = server.settings(libvirt_helper=("/no/virt-ssh-helper", "qemu:///system"))
    with (
        Connection(server.target(), settings=settings) as connection,
        pytest.raises(LibvirtMissing, match="/no/virt-ssh-helper was not found on the host") as caught,
        connection.libvirt_uri() as uri,
    ):
        libvirt.open(uri)
    assert "install libvirt" in str(caught.value.hint)
    assert isinstance(caught.value.__cause__, libvirt.libvirtError)


def test_the_helpers_own_words_reach_the_user(server: LoopbackSshd, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with (
        LoopbackSshd(tmp_path / "sshd", mounts={SEEN: empty}) as bare,
        Connection(bare.target(), settings=bare.settings()) as connection,
        pytest.raises(LibvirtMissing, match=r"libvirt does not answer on the host: .*libvirt-sock"),
        connection.libvirt_uri() as uri,
    ):
        libvirt.open(uri)


def test_a_daemon_that_hangs_up_is_named(server: LoopbackSshd) -> None:
    settings = server.settings(libvirt_helper=("sh", "-c", "head -c 1 >/dev/null"))
    with (
        Connection(server.target(), settings=settings) as connection,
        pytest.raises(LibvirtMissing, match=r"the daemon closed the connection \(exit status 0\)"),
        connection.libvirt_uri() as uri,
    ):
        libvirt.open(uri)


def test_a_translated_error_is_replaced_too(server: LoopbackSshd) -> None:
    settings = server.settings(libvirt_helper=("sh", "-c", "echo the reason >&2; exit 1"))
    with (
        Connection(server.target(), settings=settings) as connection,
        pytest.raises(LibvirtMissing, match="the reason"),
        connection.libvirt_uri() as uri,
    ):
        try:
            libvirt.open(uri)
        except libvirt.libvirtError as exc:
            raise DomainRejected(str(exc)) from exc


def test_a_helper_that_ends_while_it_is_written_to_is_explained_too(
    server: LoopbackSshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(process: RemoteProcess, _data: bytes, **_options: object) -> None:
        raise process.explain_end()

    monkeypatch.setattr(RemoteProcess, "write", write)
    settings = server.settings(libvirt_helper=("sh", "-c", "echo the reason >&2; exit 1"))
    with (
        Connection(server.target(), settings=settings) as connection,
        pytest.raises(LibvirtMissing, match="the reason"),
        connection.libvirt_uri() as uri,
    ):
        libvirt.open(uri)


def test_a_lost_connection_is_named_instead_of_end_of_file(server: LoopbackSshd) -> None:
    with (
        Connection(server.target(), settings=server.settings()) as connection,
        pytest.raises(HostUnreachable, match="was lost while"),
        connection.libvirt_uri() as uri,
    ):
        client = libvirt.open(uri)
        session = int(connection.run(["sh", "-c", "echo $PPID"], timeout_s=10).stdout)
        os.kill(session, signal.SIGKILL)
        for _ in range(100):
            client.listAllDomains()
            time.sleep(0.02)


def test_a_call_without_an_answer_ends_with_an_error(server: LoopbackSshd) -> None:
    with Connection(server.target(), settings=server.settings(libvirt_answer_s=1.0)) as connection:
        tunnel = connection.libvirt_tunnel()
        with tunnel:
            client = libvirt.open(tunnel.uri)
            session = connection.run(["sh", "-c", "echo $PPID"], timeout_s=10).stdout.decode().strip()
            listed = connection.run(["ps", "-o", "pid=,args=", "--ppid", session], timeout_s=10).stdout.decode()
            (helper,) = [int(line.split()[0]) for line in listed.splitlines() if HELPER[0] in line]
            os.kill(helper, signal.SIGSTOP)
            try:
                with pytest.raises(libvirt.libvirtError, match="not answered call 273 within 1 s") as refused:
                    client.listAllDomains()
            finally:
                os.kill(helper, signal.SIGCONT)
            assert refused.value.get_error_domain() == libvirt.VIR_FROM_RPC
            with pytest.raises(libvirt.libvirtError):
                client.listAllDomains()
            failure = tunnel.failure()
            assert isinstance(failure, LibvirtMissing)
            assert "has not answered call 273" in failure.message


def test_the_tunnel_leaves_no_thread_file_or_remote_process(connection: Connection) -> None:
    def use() -> None:
        with connection.libvirt_uri() as uri:
            libvirt.open(uri).close()
            kept.append(libvirt.open(uri))
        # Closed after its tunnel, as a careless caller does.
        kept.pop().close()

    def helpers() -> int:
        listed = connection.run(["ps", "-eo", "ppid=,args="], timeout_s=10).stdout.decode()
        return sum(f" {' '.join(HELPER)}" in line and int(line.split()[0]) == session for line in listed.splitlines())

    kept: list[libvirt.virConnect] = []
    use()
    session = int(connection.run(["sh", "-c", "echo $PPID"], timeout_s=10).stdout)
    threads, descriptors = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        use()
    deadline = time.monotonic() + 5
    while threading.active_count() > threads or helpers():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors


def test_become_reaches_libvirt_through_sudo(libvirtd: LocalLibvirtd, tmp_path: Path) -> None:
    recorded = tmp_path / "argv"
    sudo = tmp_path / "sudo"
    sudo.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {recorded}\nshift 4\nexec "$@"\n')
    sudo.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    mounts = {SEEN: libvirtd.folder / "sockets"}
    with (
        LoopbackSshd(tmp_path / "sshd", environment=environment, mounts=mounts) as sshd,
        Connection(replace(sshd.target(), become=True), settings=sshd.settings()) as connection,
        connection.libvirt_uri() as uri,
    ):
        libvirt.open(uri).close()
    arguments = recorded.read_text().splitlines()
    assert (arguments[:6], arguments[-2:]) == (["-n", "-u", "root", "--", "/bin/sh", "-c"], list(HELPER))


class _NoDescriptors(socket.socket):
    """A listener of a process that can open nothing more."""

    def accept(self) -> tuple[socket.socket, object]:
        super().accept()[0].detach()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_process_without_descriptors_leaves_libvirt_no_waiting_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection that is in the queue of the socket is reset, also one that comes later."""

    def listen(path: Path) -> socket.socket:
        listener = _NoDescriptors(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        listener.listen(4)
        return listener

    def open_nothing(_argv: object) -> RemoteProcess:
        raise AssertionError("nothing is run on the host")

    monkeypatch.setattr("vgpuctl.hosts.libvirt_tunnel.listen_at", listen)
    with LibvirtTunnel(HostTarget("gpu1", address="192.0.2.1"), HELPER, open_nothing, 5.0) as tunnel:
        path = tunnel.uri.partition("socket=")[2].partition("&")[0]
        with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as queued:
            first.connect(path)
            with contextlib.suppress(ConnectionError):
                queued.connect(path)
                assert queued.recv(1) == b""
        failure = tunnel.failure()
        assert isinstance(failure, WayFailed) and "this machine took no connection" in failure.message
        with pytest.raises(libvirt.libvirtError):
            libvirt.open(tunnel.uri)
