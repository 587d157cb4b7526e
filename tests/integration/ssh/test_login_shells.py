# SPDX-License-Identifier: Apache-2.0
"""Users with each of the usual login shells: quoting, the end of a command that hangs, shells that run nothing."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sshd_fixture import FREE_USER, SHELLS, LoopbackSshd, let_others_in, missing_for_accounts
from vgpuctl.errors import CommandFailed, CommandTimedOut
from vgpuctl.hosts.connection import Connection

ARGUMENTS = [
    "",
    " ",
    "a b",
    "$HOME",
    "`id`",
    "it's",
    '"',
    "\\",
    "\\'",
    "!!",
    "a!b",
    "*",
    "new\nline",
    "ü",
    "-n",
    "%s",
    "~",
    ";id",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackSshd]:
    if missing := missing_for_accounts():
        pytest.skip(missing)
    with LoopbackSshd(tmp_path_factory.mktemp("shells"), accounts=True) as sshd:
        yield sshd


@pytest.fixture(params=sorted(SHELLS))
def user(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def connect(server: LoopbackSshd, user: str, **changes: object) -> Connection:
    return Connection(server.target(user=user, **changes), settings=server.settings())


def has_process(text: str) -> bool:
    """Tell whether any process but a zombie has `text` in its command line."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (folder / "cmdline").read_bytes().replace(b"\0", b" "):
                return True
        except OSError:
            continue
    return False


@pytest.mark.parametrize("become", [False, True])
def test_arguments_reach_the_command_through_every_shell(server: LoopbackSshd, user: str, become: bool) -> None:
    with connect(server, user, become=become) as connection:
        completed = connection.run(["printf", "%s\\0", *ARGUMENTS], timeout_s=20)
    assert completed.stdout.decode().split("\0")[:-1] == ARGUMENTS
    assert completed.stderr == b""


_LESS = pytest.mark.long(
    "tests/integration/ssh/test_login_shells.py::test_a_command_that_hangs_is_ended_under_every_shell",
    "tests/integration/ssh/test_commands.py::test_a_command_over_its_time_is_ended_on_the_host",
)


@pytest.mark.parametrize("become", [pytest.param(False, marks=_LESS), True])
def test_a_command_that_hangs_is_ended_under_every_shell(server: LoopbackSshd, user: str, become: bool) -> None:
    seconds = f"{1000 + os.getpid()}.{sorted(SHELLS).index(user)}{become:d}"
    with (
        connect(server, user, become=become) as connection,
        pytest.raises(CommandTimedOut, match="it was ended on the host"),
    ):
        connection.run(["sh", "-c", f"trap '' TERM; sleep {seconds}; true"], timeout_s=1.5)
    assert not has_process(f"sleep {seconds}")


def test_a_command_that_ended_by_itself_is_not_called_ended(server: LoopbackSshd, tmp_path: Path) -> None:
    let_others_in(tmp_path)
    tmp_path.chmod(0o777)
    began = tmp_path / "began"
    with connect(server, FREE_USER) as connection:
        process = connection.open_process(["sh", "-c", f"exec >/dev/null 2>&1; touch {began}"])
        while not began.exists() or has_process(f"touch {began}"):
            time.sleep(0.02)
        with pytest.raises(CommandTimedOut, match="it does not run on the host any more"):
            process.read_line(0.0)


def test_a_process_group_of_its_own_under_sudo_is_ended_too(server: LoopbackSshd, tmp_path: Path) -> None:
    """Older versions of sudo with `use_pty` run the command in a session of its own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    let_others_in(folder)
    (folder / "sudo").write_text(f'#!/bin/sh\nexport PATH={os.environ["PATH"]}\nsetsid -w sudo "$@"\nexit $?\n')
    (folder / "sudo").chmod(0o755)
    seconds = f"{2000 + os.getpid()}.5"
    environment = {"PATH": f"{folder}:{os.environ['PATH']}"}
    with (
        LoopbackSshd(tmp_path / "pty", accounts=True, environment=environment) as sshd,
        connect(sshd, FREE_USER, become=True) as connection,
        pytest.raises(CommandTimedOut, match="it was ended on the host"),
    ):
        connection.run(["sh", "-c", f"trap '' TERM; sleep {seconds}; true"], timeout_s=1.5)
    assert not has_process(f"sleep {seconds}")


@pytest.mark.parametrize("become", [False, True])
@pytest.mark.parametrize("exit_status", [0, 1])
def test_a_shell_that_runs_nothing_is_named(tmp_path: Path, become: bool, exit_status: int) -> None:
    command = f"ForceCommand echo 'Pick an entry from the menu'; exit {exit_status}"
    with (
        LoopbackSshd(tmp_path / "menu", options=[command]) as sshd,
        Connection(sshd.target(become=become), settings=sshd.settings()) as connection,
        pytest.raises(CommandFailed, match=r"the shell of root did not run the command .*: Pick an entry") as caught,
    ):
        connection.run(["id"], timeout_s=10)
    assert "nologin" in str(caught.value.hint)
