# SPDX-License-Identifier: Apache-2.0
"""The program server: a program of a simulated host runs there as a process of its own would run."""

import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.lab.simulated_fixtures import fleet
from vgpuctl_lab.builds import ensure_program_client
from vgpuctl_lab.simulated.layout import simulated_folder

__all__ = ["fleet"]
FLEET = (1, "a40")
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(fleet: lab.LabFolder, tmp_path: Path) -> Start:
    """Start a program of the host `sim-001` in an empty folder."""
    folder = simulated_folder(fleet)

    def begin(name: str, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [folder.programs / name, *arguments],
            env={"PATH": os.environ["PATH"], "VGPUCTL_SIMULATED_HOST": str(folder.host("sim-001")), "SAID": "so"},
            cwd=tmp_path,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    return begin


def _python(start: Start, program: str, *arguments: str, given: str = "") -> tuple[int, str, str]:
    process = start("python3", "-I", "-S", "-c", program, *arguments)
    out, err = process.communicate(given, timeout=60)
    return process.returncode, out, err


def test_it_has_the_streams_arguments_environment_folder_and_exit_code_of_its_client(
    start: Start, tmp_path: Path
) -> None:
    program = (
        "import os, sys; print(sys.argv[1:], os.environ['SAID'], os.getcwd(), sys.stdin.read());"
        " sys.stderr.write('aside'); sys.exit(7)"
    )
    assert _python(start, program, "a b", given="in") == (7, f"['a b'] so {tmp_path} in\n", "aside")
    assert start("sh", "-c", "exit 3").wait(60) == 3
    assert start("sh", "-c", "kill -9 $$").wait(60) == 128 + 9


def test_an_error_is_told_as_python_tells_it(start: Start) -> None:
    code, _out, err = _python(start, "1 / 0")
    assert code == 1 and err.startswith("Traceback") and err.endswith("ZeroDivisionError: division by zero\n")
    assert _python(start, "raise SystemExit('no')") == (1, "", "no\n")


def test_nothing_of_the_agent_or_of_this_machines_packages_is_there_before_the_agent_brings_it(start: Start) -> None:
    code, out, _err = _python(start, "import sys; print(*(one for one in sys.modules if 'vgpuctl' in one), *sys.path)")
    *_, found = out.splitlines()
    assert code == 0 and "vgpuctl.agent" not in found and "site-packages" not in found
    assert _python(start, "import vgpuctl.agent")[0] == 1


def test_a_client_that_is_stopped_before_it_says_what_it_wants_delays_no_other(
    start: Start, fleet: lab.LabFolder
) -> None:
    folder = os.open(simulated_folder(fleet).path, os.O_PATH)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.connect(f"/proc/self/fd/{folder}/programs.sock")
        assert _python(start, "print(1)") == (0, "1\n", "")
    os.close(folder)
    assert _python(start, "print(2)") == (0, "2\n", "")


def test_programs_run_side_by_side(start: Start) -> None:
    first = start("python3", "-c", "print(input())")
    assert _python(start, "print(2)") == (0, "2\n", "")
    assert first.communicate("1\n", timeout=60)[0] == "1\n"


def test_a_program_ends_with_its_client(start: Start) -> None:
    process = start("python3", "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert Path(f"/proc/{pid}").exists() and pid != process.pid
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "it runs on"
        time.sleep(0.02)


def test_a_client_without_a_server_says_so(tmp_path: Path) -> None:
    client = ensure_program_client(lab.LabFolder(tmp_path / "lab"))
    (tmp_path / "hosts/sim-001").mkdir(parents=True)
    environment = {"VGPUCTL_SIMULATED_HOST": str(tmp_path / "hosts/sim-001")}
    done = subprocess.run([client], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"{client}: the lab daemon runs no programs: No such file or directory\n"
