# SPDX-License-Identifier: Apache-2.0
"""sudo: a real one, with users of the server's own; and a missing one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host_targets import host_target
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
    with (
        connect(server, user, python_interpreter="/no/python3", **changes) as connection,
        connection.open_process(["/no/python3"]) as process,
        pytest.raises(PythonMissing, match="was not found"),
    ):
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
    target = host_target(become=True, become_password=PASSWORD)
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


def with_sudo(tmp_path: Path, script: str) -> LoopbackSshd:
    """Return a server of root whose sudo is the script."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sudo").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "sudo").chmod(0o755)
    return LoopbackSshd(tmp_path / "sshd", environment={"PATH": f"{folder}:/usr/bin:/bin"})


# Texts of sudo-rs 0.2.5 (as Debian 13 prints them) and 0.2.8, of sudo 1.9, and one that nobody knows yet.
REFUSALS = {
    "sudo: interactive authentication is required": "ansible_become_password",
    "sudo-rs: interactive authentication is required": "ansible_become_password",
    "sudo: I'm sorry root. I'm afraid I can't do that": "NOPASSWD: ALL",
    "sudo-rs: I'm sorry root. I'm afraid I can't do that": "NOPASSWD: ALL",
    "sudo-rs: user 'nobody-knows' not found": "ansible_become_user",
    "sudo: sorry, you must have a tty to run sudo": "!requiretty",
    "sudo: unknown user nobody-knows": "ansible_become_user",
    "sudo: Authentication failed": "ansible_become_password",
    "sudo: words of a later version": "ansible_become_password",
    "sudo: /etc/sudoers:3:7: syntax error": "visudo -c",
    'sudo: The "no new privileges" flag is set, which prevents sudo from running as root.': "NoNewPrivileges",
}


@pytest.mark.parametrize(("text", "hint"), REFUSALS.items())
def test_a_refusal_is_known_whatever_sudo_says(tmp_path: Path, text: str, hint: str) -> None:
    with (
        with_sudo(tmp_path, f"cat <<'END' >&2\n{text}\nEND\nexit 1") as server,
        Connection(server.target(become=True), settings=server.settings()) as connection,
    ):
        for argv in (["true"], ["sh", "-c", "echo output"]):
            with pytest.raises(BecomeFailed, match="did not let root become root: ") as caught:
                connection.run(argv, timeout_s=10)
            assert text in caught.value.message
            assert hint in str(caught.value.hint)


SUDO_RS_ASKS = """\
prompt=authenticate
while [ "$1" != -- ]; do
  if [ "$1" = -p ]; then prompt=$2; fi
  shift
done
shift
for attempt in 1 2 3; do
  printf '[sudo: %s] Password: ' "$prompt" >&2
  read -r password || exit 1
  if [ "$password" = right ]; then exec "$@"; fi
  echo 'sudo: Authentication failed, try again.' >&2
done
echo 'sudo: Maximum 3 incorrect authentication attempts' >&2
exit 1
"""


def test_the_question_of_sudo_rs_is_answered_once(tmp_path: Path) -> None:
    with with_sudo(tmp_path, SUDO_RS_ASKS) as server:
        target = server.target(become=True, become_password="right")
        with Connection(target, settings=server.settings()) as connection:
            completed = connection.run(["sh", "-c", "cat; echo err >&2"], timeout_s=10, stdin=b"in\n")
            assert (completed.exit_status, completed.stdout, completed.stderr) == (0, b"in\n", b"err\n")
        target = server.target(become=True, become_password="wrong")
        with (
            Connection(target, settings=server.settings()) as connection,
            pytest.raises(BecomeFailed, match="Authentication failed, try again") as caught,
        ):
            connection.run(["true"], timeout_s=10)
        assert "wrong" not in repr((caught.value.message, caught.value.context, caught.value.hint))


def test_a_command_that_fails_under_sudo_is_no_refusal(server: LoopbackSshd) -> None:
    """The words of a refusal in a command's own output decide nothing."""
    with connect(server, FREE_USER) as connection:
        script = "echo 'sudo: a password is required' >&2; exit 1"
        completed = connection.run(["sh", "-c", script], timeout_s=10)
        assert (completed.exit_status, completed.stderr) == (1, b"sudo: a password is required\n")
