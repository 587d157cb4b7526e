# SPDX-License-Identifier: Apache-2.0
"""A program that others may write to is not started, nor one with a script of theirs."""

import shlex
import sys
from pathlib import Path

import pytest

from vgpuctl.bounded_program import run_bounded
from vgpuctl.errors import FileNotTrusted
from vgpuctl.hosts.proxy_command import ProxyCommand
from vgpuctl.hosts.ssh_files import judge_files
from vgpuctl.hosts.ssh_program import SshProgram
from vgpuctl.model.secret import ProgramLine
from vgpuctl.trusted_programs import judge_command, judge_program, judge_shell_line

LINES = [
    "{file} 127.0.0.1 22",
    "exec {file}",
    "A=b exec 'env' {file}",
    "px 22",
    "A='b c' px",
    "~/px",
    "$HOME/px",
    "'{file}'",
    "sh {file} x",
    "sh -c '{file} x'",
    "true; {file}",
    "true&&{file}|cat",
    "(cat <{file})",
    "/etc/..{file}",
]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program on PATH and in the home, that everybody may write to."""
    path = tmp_path / "px"
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/RAN\n")
    path.chmod(0o757)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    return path


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_a_shell_is_not_run_with_a_program_of_others(line: str, file: Path) -> None:
    line = line.format(file=file)
    for use in (judge_shell_line, lambda text: ProxyCommand(ProgramLine(text))):
        with pytest.raises(FileNotTrusted, match=r"/px is not used: it may be written to by every user"):
            use(line)
    config = file.with_name("config")
    config.write_text(f"Match all\nmatch host x !exec {shlex.quote(line)}\n")
    if "'" not in line:
        with pytest.raises(FileNotTrusted, match=r"/px is not used"):
            judge_files(str(config))
    file.chmod(0o755)
    judge_shell_line(line)


def test_a_program_by_itself_is_judged_by_path_and_on_path(file: Path) -> None:
    for words in ([str(file)], ["px"], [sys.executable, str(file)], ["sh", "-c", f"{file} x"]):
        with pytest.raises(FileNotTrusted):
            judge_command(words)
    with pytest.raises(FileNotTrusted):
        run_bounded(["px"], environment={}, longest_s=1, most_bytes=1)
    with pytest.raises(FileNotTrusted):
        SshProgram("px").ask(["-F", "none"], "gpu1", name="gpu1")
    file.parent.chmod(0o777)
    file.chmod(0o755)
    with pytest.raises(FileNotTrusted, match="the folder"):
        judge_program("px")
    assert not file.with_name("RAN").exists()


@pytest.mark.parametrize(
    "line", ["", "nowhere", "/nowhere/px x", "cat /dev/null", "nc -U /tmp", "sh -c 'a", "%h", "cat x\0y", "# what"]
)
def test_what_names_no_file_is_left_to_whoever_runs_it(line: str) -> None:
    judge_shell_line(line)
    judge_command([line])
