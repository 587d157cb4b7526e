# SPDX-License-Identifier: Apache-2.0
"""`-v`, `-vv` and `--log-file`: what is logged, where, and what never is."""

import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest

from vgpuctl import logs
from vgpuctl.cli import contents, main


@pytest.fixture(autouse=True)
def failing_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """`vgpuctl fail` ends with an error that nobody foresaw."""

    def fail() -> None:
        with logs.timed("call", host="gpu1", name="größe x", skipped=None, url="postgresql://me:secret@db/x"):
            raise KeyError("no\x1bsuch key")

    monkeypatch.setitem(contents.COMMANDS, "fail", "")
    monkeypatch.setitem(contents.FOLDERS, "fail", "vm")
    module = type(sys)("vgpuctl.cli.vm.fail")
    module.command = click.Command("fail", callback=fail)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vgpuctl.cli.vm.fail", module)


def _stderr(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main.run(arguments) == 70
    return capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["-vv", "fail"], ["fail", "-vv"], ["-v", "fail", "-vv"]])
def test_a_traceback_is_shown_with_vv_before_or_after_the_command(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    written = _stderr(arguments, capsys)
    assert "Traceback" in written
    (call,) = [line for line in written.splitlines() if "event=call" in line]
    assert 'level=debug event=call host=gpu1 name="größe x" url=postgresql://me:***@db/x' in call
    assert "duration_ms=" in call
    assert "secret" not in written
    assert "\x1b" not in written
    assert written.splitlines()[-1].endswith("event=ended exit_code=70")


def test_without_an_option_nothing_is_logged_and_the_hint_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _stderr(["fail"], capsys).splitlines()
    assert len(lines) == 2
    assert "--log-file" in lines[1] and "support-bundle" in lines[1]
    assert "--log-file" in lines[1]


def test_a_log_file_is_private_and_gets_the_traceback_that_the_user_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "log"
    for _ in range(2):
        assert "Traceback" not in _stderr(["--log-file", str(file), "fail"], capsys)
    text = file.read_text()
    assert text.count("event=call") == 2, "it is appended to, and nothing is written twice"
    assert "Traceback" in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_log_file_that_cannot_be_written_is_an_error_of_the_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["--log-file", str(tmp_path / "none" / "log"), "fail"]) == 6
    assert "No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["-v"]])
def test_what_a_library_logs_is_a_line_of_the_log_or_nothing(more: list[str]) -> None:
    """SQLAlchemy logs a connection that a signal left half closed, with the traceback."""
    program = (
        "import logging, sys; from vgpuctl.cli import contents, main; import click; "
        "contents.COMMANDS['fail'], contents.FOLDERS['fail'] = '', 'vm'; module = type(sys)('vgpuctl.cli.vm.fail'); "
        "say = lambda: logging.getLogger('sqlalchemy.pool').error('not closed \\x1b]52;c;x'); "
        "module.command = click.Command('fail', callback=say); sys.modules['vgpuctl.cli.vm.fail'] = module; "
        "sys.exit(main.run(sys.argv[1:]))"
    )
    done = subprocess.run([sys.executable, "-c", program, "fail", *more], capture_output=True, text=True, check=True)
    assert "\x1b" not in done.stderr
    assert ('event="not closed' in done.stderr) is bool(more), done.stderr
    assert bool(done.stderr) is bool(more)
