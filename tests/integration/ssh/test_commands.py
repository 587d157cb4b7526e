# SPDX-License-Identifier: Apache-2.0
"""Commands, streams and files over one connection to a real sshd."""

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko
import pytest

from tests.sshd_fixture import LoopbackSshd
from vgpuctl.errors import CommandFailed, CommandTimedOut, HostUnreachable, PythonMissing
from vgpuctl.hosts.connection import Connection


def wait_until(condition: Callable[[], bool], limit_s: float = 5.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_command_gives_exit_status_and_both_outputs(connection: Connection) -> None:
    completed = connection.run(["sh", "-c", "echo out; echo err >&2; exit 7"], timeout_s=10)
    assert (completed.exit_status, completed.stdout, completed.stderr) == (7, b"out\n", b"err\n")


def test_arguments_reach_the_command_unchanged(connection: Connection) -> None:
    arguments = ["", " ", "a b", "$HOME", "`id`", "it's", '"', "\\", "*", "new\nline", "ü", "-n", ";true"]
    completed = connection.run(["printf", "%s\\0", *arguments], timeout_s=10)
    assert completed.stdout.decode().split("\0")[:-1] == arguments


def test_a_command_killed_by_a_signal_has_no_exit_status(connection: Connection) -> None:
    assert connection.run(["sh", "-c", "kill -9 $$"], timeout_s=10).exit_status == -1


def test_a_missing_command_is_127(connection: Connection) -> None:
    assert connection.run(["/no/such/program"], timeout_s=10).exit_status == 127


def test_five_megabytes_go_both_ways_unharmed(connection: Connection) -> None:
    data = os.urandom(5 * 2**20)
    completed = connection.run(["cat"], timeout_s=30, stdin=data)
    assert completed.stdout == data


def test_a_flood_on_stderr_does_not_block_stdout(connection: Connection) -> None:
    script = "head -c 5000000 /dev/zero >&2; head -c 5000000 /dev/zero; echo end"
    completed = connection.run(["sh", "-c", script], timeout_s=30)
    assert len(completed.stdout) == 5_000_004
    assert b"bytes left out]" in completed.stderr


def test_a_command_that_reads_no_stdin_still_completes(connection: Connection) -> None:
    assert connection.run(["true"], timeout_s=10, stdin=b"x" * 5_000_000).exit_status == 0


def test_a_child_left_in_the_background_does_not_hold_the_command(connection: Connection) -> None:
    completed = connection.run(["sh", "-c", "sleep 1000 & echo $!"], timeout_s=60)
    os.kill(int(completed.stdout), signal.SIGKILL)  # it is there still


def test_output_that_comes_just_before_the_exit_status_is_not_lost(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The machine is busy: output and exit status come between the look for one and the question for the other.
    monkeypatch.setattr(paramiko.Channel, "exit_status_ready", lambda channel: channel.status_event.wait(5))
    completed = connection.run(["sh", "-c", "sleep 1.3; echo late"], timeout_s=20)
    assert (completed.exit_status, completed.stdout) == (0, b"late\n")


def test_a_stream_that_is_closed_while_it_sends_costs_no_connection(connection: Connection) -> None:
    for _ in range(40):
        process = connection.open_process(["sh", "-c", "while :; do echo x; done"])
        select.select([process.fileno()], [], [], 5)
        process.take()
        process.close()
    assert connection.statistics.read().logins == 1


def test_twenty_commands_run_at_once_over_one_login(sshd: LoopbackSshd, connection: Connection) -> None:
    def ask(number: int) -> bytes:
        return connection.run(["sh", "-c", f"sleep 0.1; echo {number}"], timeout_s=20).stdout

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(ask, range(20)))
    assert answers == [f"{number}\n".encode() for number in range(20)]
    counts = connection.statistics.read()
    assert (counts.logins, counts.channels) == (1, 20)


def test_statistics_count_bytes_and_round_trips(connection: Connection) -> None:
    connection.open()
    before = connection.statistics.read()
    connection.run(["cat"], timeout_s=10, stdin=b"x" * 100_000)
    after = connection.statistics.read()
    assert 100_000 < after.bytes_sent - before.bytes_sent < 120_000
    assert 100_000 < after.bytes_received - before.bytes_received < 120_000
    assert 2 <= after.round_trips - before.round_trips <= 12


def test_a_command_over_its_time_is_ended_on_the_host(connection: Connection, tmp_path: Path) -> None:
    connection.open()
    pid_file = tmp_path / "pid"
    with pytest.raises(CommandTimedOut, match=r"did not answer within 2 s; it was ended on the host") as caught:
        connection.run(["sh", "-c", f"echo $$ > {pid_file}; echo busy >&2; sleep 60; true"], timeout_s=2.0)
    assert caught.value.context == ("busy",)
    wait_until(lambda: not is_running(int(pid_file.read_text())))


def test_a_command_that_ignores_sigterm_is_killed(connection: Connection, tmp_path: Path) -> None:
    connection.open()
    pid_file = tmp_path / "pid"
    script = f"trap '' TERM; echo $$ > {pid_file}; while :; do sleep 0.2; done"
    with pytest.raises(CommandTimedOut, match="it was ended on the host"):
        connection.run(["sh", "-c", script], timeout_s=2.0)
    wait_until(lambda: not is_running(int(pid_file.read_text())))


def test_a_process_answers_line_by_line(connection: Connection) -> None:
    with connection.open_process(["sh", "-c", "while read line; do echo got $line; done; echo bye >&2"]) as process:
        for word in (b"one", b"two"):
            process.write(word + b"\n")
            assert process.read_line(5) == b"got " + word
        process.close_stdin()
        with pytest.raises(CommandFailed, match="ended with exit status 0"):
            process.read_line(5)
        assert process.stderr == b"bye\n"


def test_a_long_line_arrives_whole(connection: Connection) -> None:
    with connection.open_process(["cat"]) as process:
        line = b"x" * 3_000_000
        process.write(line + b"\nnext\n")
        assert process.read_line(20) == line
        assert process.read_line(5) == b"next"


def test_a_process_that_ends_says_why(connection: Connection) -> None:
    with connection.open_process(["sh", "-c", "read line; echo broken >&2; exit 3"]) as process:
        process.write(b"go\n")
        with pytest.raises(CommandFailed, match="ended with exit status 3") as caught:
            process.read_line(5)
    assert caught.value.context == ("broken",)


def test_a_process_that_says_nothing_times_out(connection: Connection) -> None:
    process = connection.open_process(["sleep", "60"])
    with pytest.raises(CommandTimedOut, match="`sleep …` did not answer within"):
        process.read_line(0.3)


def test_closing_a_process_ends_its_stdin(connection: Connection, tmp_path: Path) -> None:
    with connection.open_process(["sh", "-c", f"echo ready; cat; touch {tmp_path}/ended"]) as process:
        process.read_line(5)
    wait_until((tmp_path / "ended").exists)


def test_a_connection_killed_in_the_middle_names_what_ran(connection: Connection) -> None:
    session = int(connection.run(["sh", "-c", "echo $PPID"], timeout_s=10).stdout)
    killer = threading.Timer(0.3, os.kill, (session, signal.SIGKILL))
    killer.start()
    with pytest.raises(HostUnreachable, match=r"was lost while `sleep …` was running; it may have gone on"):
        connection.run(["sleep", "20"], timeout_s=15)
    killer.join()


def test_a_lost_connection_is_opened_again(connection: Connection) -> None:
    session = int(connection.run(["sh", "-c", "echo $PPID"], timeout_s=10).stdout)
    os.kill(session, signal.SIGKILL)
    wait_until(lambda: not is_running(session))

    def is_back() -> bool:
        try:
            return connection.run(["true"], timeout_s=10).exit_status == 0
        except HostUnreachable:
            return False

    wait_until(is_back)
    assert connection.statistics.read().logins == 2


def test_a_closed_connection_stays_closed(connection: Connection) -> None:
    connection.close()
    with pytest.raises(HostUnreachable, match="is closed"):
        connection.run(["true"], timeout_s=5)


def test_an_upload_has_its_mode_and_leaves_no_temporary(connection: Connection, tmp_path: Path) -> None:
    data = os.urandom(300_000)
    path = tmp_path / "new folder" / "file's name"
    assert connection.upload(data, str(path), 0o600, folder_mode=0o700) == str(path)
    assert path.read_bytes() == data
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    connection.upload(b"", str(path), 0o644)
    assert path.read_bytes() == b""
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_an_upload_to_the_home_folder_returns_the_absolute_path(connection: Connection) -> None:
    home = connection.run(["sh", "-c", "echo $HOME"], timeout_s=10).stdout.decode().strip()
    name = f".vgpuctl-test-{os.getpid()}"
    path = connection.upload(b"x", f"~/{name}", 0o600)
    assert path == f"{home}/{name}"
    Path(path).unlink()


def test_an_upload_to_a_missing_folder_fails(connection: Connection) -> None:
    with pytest.raises(CommandFailed, match="/no/folder/file could not be written"):
        connection.upload(b"x", "/no/folder/file", 0o600)


@pytest.mark.parametrize(
    ("interpreter", "message"),
    [("/no/python3", "/no/python3 was not found"), ("/etc/passwd", "/etc/passwd cannot be executed")],
)
def test_a_missing_python_is_an_error_of_its_own(sshd: LoopbackSshd, interpreter: str, message: str) -> None:
    with (
        Connection(sshd.target(python_interpreter=interpreter), settings=sshd.settings()) as connection,
        connection.open_process([interpreter, "-I"]) as process,
        pytest.raises(PythonMissing, match=message) as caught,
    ):
        process.read_line(5)
    assert "ansible_python_interpreter" in str(caught.value.hint)


def test_no_thread_or_file_descriptor_is_left(sshd: LoopbackSshd) -> None:
    def use() -> None:
        with Connection(sshd.target(), settings=sshd.settings()) as connection:
            connection.run(["true"], timeout_s=10)
            connection.open_process(["cat"])

    use()
    threads, descriptors = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        use()
    wait_until(lambda: threading.active_count() <= threads)
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors
