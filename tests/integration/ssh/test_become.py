# SPDX-License-Identifier: Apache-2.0
"""sudo: a real one, with users of the server's own; and a missing one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sshd_fixture import (
    FREE_USER,
    PASSWORD,
    PASSWORD_USER,
    PLAIN_USER,
    LoopbackSshd,
    missing_for_accounts,
)
from vgpuctl.errors import AuthenticationFailed, BecomeFailed, CommandTimedOut, PythonMissing
from vgpuctl.hosts.become import wrap
from vgpuctl.hosts.connection import Connection
from vgpuctl.model.host_target import HostTarget


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackSshd]:
    if missing := missing_for_accounts():
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("accounts")
    with LoopbackSshd(folder, options=["PasswordAuthentication yes"], accounts=True) as sshd:
        yield sshd


def connect(server: LoopbackSshd, user: str, **changes: object) -> Connection:
    target = server.target(user=user, **{"become": True, **changes})
    return Connection(target, settings=server.settings())


def test_sudo_without_password_runs_as_root(server: LoopbackSshd) -> None:
    with connect(server, FREE_USER) as connection:
        completed = connection.run(["sh", "-c", "id -u; cat; echo err >&2"], timeout_s=10, stdin=b"in")
        assert (completed.exit_status, completed.stdout, completed.stderr) == (0, b"0\nin", b"err\n")
        assert connection.run(["id", "-u"], timeout_s=10, become=False).stdout == b"61001\n"


def test_another_become_user_is_honoured(server: LoopbackSshd) -> None:
    with connect(server, FREE_USER, become_user=PLAIN_USER) as connection:
        assert connection.run(["id", "-un"], timeout_s=10).stdout.decode().strip() == PLAIN_USER


def test_the_exit_status_of_the_command_is_its_own(server: LoopbackSshd) -> None:
    with connect(server, FREE_USER) as connection:
        assert connection.run(["sh", "-c", "echo not sudo >&2; exit 1"], timeout_s=10).exit_status == 1
        assert connection.run(["/no/such/program"], timeout_s=10).exit_status == 127


@pytest.mark.parametrize("changes", [{}, {"become_password": PASSWORD}])
def test_a_missing_python_under_sudo_is_told(server: LoopbackSshd, changes: dict[str, str]) -> None:
    user = PASSWORD_USER if changes else FREE_USER
    with connect(server, user, python_interpreter="/no/python3", **changes) as connection:
        with pytest.raises(PythonMissing, match="was not found"):
            connection.check_python()
        with connection.open_process(["/no/python3"]) as process, pytest.raises(PythonMissing):
            process.read_line(5)


@pytest.mark.parametrize("user", [PASSWORD_USER, FREE_USER])
def test_the_password_goes_to_sudo_only_when_it_asks(server: LoopbackSshd, user: str) -> None:
    with connect(server, user, become_password=PASSWORD) as connection:
        completed = connection.run(["sh", "-c", "id -u; cat; echo err >&2"], timeout_s=10, stdin=b"in\n")
        assert (completed.exit_status, completed.stdout, completed.stderr) == (0, b"0\nin\n", b"err\n")
        with connection.open_process(["cat"]) as process:
            process.write(b"line\n")
            assert process.read_line(5) == b"line"


def test_the_password_is_on_no_argument_list() -> None:
    target = HostTarget("gpu1", "gpu1", become=True, become_password=PASSWORD)
    assert PASSWORD not in wrap(["true"], target, become=True).line


def test_sudo_that_wants_a_password_says_so(server: LoopbackSshd) -> None:
    with (
        connect(server, PASSWORD_USER) as connection,
        pytest.raises(BecomeFailed, match="become root: sudo: a password is required") as caught,
    ):
        connection.run(["true"], timeout_s=10)
    assert "ansible_become_password" in str(caught.value.hint)


def test_a_wrong_password_is_told_and_shown_nowhere(server: LoopbackSshd) -> None:
    with connect(server, PASSWORD_USER, become_password="wrong one") as connection:
        with pytest.raises(BecomeFailed, match=f"did not let {PASSWORD_USER} become root") as caught:
            connection.run(["true"], timeout_s=20)
        assert "wrong one" not in repr((caught.value.message, caught.value.context, caught.value.hint))


def test_a_user_without_sudo_rights_is_told(server: LoopbackSshd) -> None:
    with connect(server, PLAIN_USER, become_password=PASSWORD) as connection, pytest.raises(BecomeFailed) as caught:
        connection.run(["true"], timeout_s=20)
    assert "not in the sudoers file" in caught.value.message


def test_an_unknown_become_user_is_told(server: LoopbackSshd) -> None:
    with (
        connect(server, FREE_USER, become_user="no-such-user") as connection,
        pytest.raises(BecomeFailed, match="unknown user"),
    ):
        connection.run(["true"], timeout_s=10)


def test_a_refused_process_says_so_at_its_first_line(server: LoopbackSshd) -> None:
    with (
        connect(server, PASSWORD_USER) as connection,
        connection.open_process(["cat"]) as process,
        pytest.raises(BecomeFailed),
    ):
        process.read_line(10)


def test_a_command_of_root_that_hangs_is_ended(server: LoopbackSshd, tmp_path: Path) -> None:
    for changes in ({}, {"become_password": PASSWORD}):
        with (
            connect(server, FREE_USER, **changes) as connection,
            pytest.raises(CommandTimedOut, match="it was ended on the host"),
        ):
            connection.run(["sleep", "60"], timeout_s=1.5)


def test_an_upload_is_roots_own(server: LoopbackSshd) -> None:
    with connect(server, FREE_USER) as connection:
        path = connection.upload(b"data", f"{server.folder}/uploaded", 0o600)
    assert (Path(path).owner(), Path(path).read_bytes()) == ("root", b"data")


def test_a_password_logs_in(server: LoopbackSshd) -> None:
    with connect(server, PLAIN_USER, private_key_file=None, password=PASSWORD, become=False) as connection:
        assert connection.run(["id", "-un"], timeout_s=10).stdout.decode().strip() == PLAIN_USER
    with (
        connect(server, PLAIN_USER, private_key_file=None, password="wrong", become=False) as connection,
        pytest.raises(AuthenticationFailed) as caught,
    ):
        connection.open()
    assert caught.value.context[0] == "tried: password"


def test_sudo_refusing_shows_through_the_libvirt_tunnel(server: LoopbackSshd) -> None:
    import libvirt

    with connect(server, PASSWORD_USER) as connection, pytest.raises(BecomeFailed), connection.libvirt_uri() as uri:
        libvirt.open(uri)


def test_a_missing_sudo_is_told(sshd: LoopbackSshd, tmp_path: Path) -> None:
    # A PATH without sudo, whatever the machine has.
    with LoopbackSshd(tmp_path / "bare", environment={"PATH": "/nowhere"}) as bare:
        for changes in ({}, {"become_password": "x"}):
            with (
                Connection(bare.target(become=True, **changes), settings=bare.settings()) as connection,
                pytest.raises(BecomeFailed, match="sudo is not installed"),
            ):
                connection.run(["true"], timeout_s=10)
