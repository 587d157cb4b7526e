# SPDX-License-Identifier: Apache-2.0
"""Writes that block in the kernel, and programs that do not end with all their children."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent import machine
from tests.agent.test_process import agent_argv, line
from vgpuctl.agent import time_limits
from vgpuctl.agent.dispatch import answer
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem, Request
from vgpuctl.agent.wire.steps import ResetFunction
from vgpuctl.hosts.bundle import build_agent

PF = "0000:41:00.0"


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def eventually(condition: Callable[[], bool]) -> bool:
    for _ in range(200):
        if condition():
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def blocking(tmp_path: Path) -> Host:
    """A machine whose `reset` takes a write only when somebody reads it: a pipe, opened for writing, waits."""
    folder = tmp_path / f"sys/bus/pci/devices/{PF}"
    folder.mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    for name, text in {"vendor": "0x10de", "device": "0x2235", "class": "0x030200"}.items():
        (folder / name).write_text(f"{text}\n")
    os.mkfifo(folder / "reset")
    host = Host(str(tmp_path))
    host.write_timeout_s = 0.2
    return host


def test_a_write_that_blocks_is_given_up_and_said_to_go_on(blocking: Host, tmp_path: Path) -> None:
    reply = answer(blocking, Request("apply", (ResetFunction(PF),)))
    assert reply.problem is not None
    assert (reply.problem.code, reply.problem.path) == ("write-blocked", f"/sys/bus/pci/devices/{PF}/reset")
    assert "may take effect later" in reply.problem.message
    assert "vgpuctl repair" in (reply.problem.hint or "")
    assert reply.changes == ()
    # The host's lock is free again, and what blocks is not written to once more.
    with blocking.lock(0):
        writes = blocking.writes
        with pytest.raises(Problem, match="may take effect later"):
            blocking.write(f"/sys/bus/pci/devices/{PF}/reset", "1")
    assert blocking.writes == writes
    # It does take effect, later.
    with (tmp_path / f"sys/bus/pci/devices/{PF}/reset").open() as pipe:
        assert pipe.read() == "1"


def test_a_refused_write_keeps_its_errno(tmp_path: Path) -> None:
    with pytest.raises(Problem) as caught:
        Host(str(tmp_path)).write("/nowhere", "1")
    assert (caught.value.code, caught.value.errno) == ("not-found", "ENOENT")


def test_a_program_out_of_time_ends_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "child"
    with pytest.raises(Problem) as caught:
        Host().run(["/bin/sh", "-c", f"sleep 60 & echo $! >{note}; wait"], timeout_s=0.5)
    assert caught.value.code == "program-timed-out"
    assert "its children were ended" in caught.value.message
    assert not is_alive(int(note.read_text()))


def test_a_program_that_heeds_no_sigterm_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "child"
    with pytest.raises(Problem) as caught:
        Host().run(["/bin/sh", "-c", f"trap '' TERM; (sleep 60) & echo $! >{note}; sleep 60; sleep 60"], timeout_s=0.5)
    assert "its children were ended" in caught.value.message
    assert not is_alive(int(note.read_text()))


def test_an_agent_that_is_ended_ends_its_programs(tmp_path: Path) -> None:
    file, note = tmp_path / "agent.pyz", tmp_path / "pid"
    file.write_bytes(build_agent().data)
    root = machine.build(tmp_path / "root", machine.BASE, {"/run/systemd/system": None})
    program = root / "usr/bin/systemctl"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho $$ >{note}.new; mv {note}.new {note}; sleep 60\n")
    program.chmod(0o755)
    with subprocess.Popen(agent_argv(file, root), stdin=subprocess.PIPE) as agent:
        assert agent.stdin is not None
        agent.stdin.write(line(call="facts"))
        agent.stdin.flush()
        assert eventually(note.exists)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(10) == 128 + signal.SIGTERM
    child = int(note.read_text())
    assert eventually(lambda: not is_alive(child))


def test_a_program_that_is_being_started_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    start, ended = subprocess.Popen, []

    def start_while_the_agent_is_ended(*arguments: Any, **options: Any) -> Any:
        process = start(*arguments, **options)
        time_limits.end_programs(lambda: ended.append("agent"))
        assert not ended
        return process

    monkeypatch.setattr(time_limits, "_at_end", [])
    monkeypatch.setattr(subprocess, "Popen", start_while_the_agent_is_ended)
    status, _output, _errors = time_limits.run_group(["sleep", "60"], timeout_s=30, environment={})
    assert (status, ended) == (-signal.SIGTERM, ["agent"])
