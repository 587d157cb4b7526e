# SPDX-License-Identifier: Apache-2.0
"""The end of a command, also of one that gets a signal, whatever threads and exit functions of libraries wait for."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import atexit, os, signal, sys, threading, time
import click
from vgpuctl.cli import main

def wait():
    threading.Thread(target=time.sleep, args=(600,)).start()
    atexit.register(time.sleep, 600)
    print("data")
    raise KeyboardInterrupt

def work():
    atexit.register(os.kill, os.getpid(), signal.SIGTERM)
    print("data")

class Left:
    def __init__(self): self.circle = self
    def __del__(self): print("circles were looked for")

def end():
    atexit.register(print, "exit function")
    main.left = Left()
    print("data")

def stay():
    print("data", flush=True)
    time.sleep(600)

def watch():
    from vgpuctl.cli.lists.live_screen import LiveScreen
    with LiveScreen().shown() as screen:
        print("data", flush=True)
        while screen.key(600) != "q":
            pass

for name, callback in (("wait", wait), ("work", work), ("end", end), ("stop-vm", stay), ("start-vm", watch)):
    module = type(sys)(f"vgpuctl.cli.vm.{name.replace('-', '_')}")
    module.command = click.Command(name, callback=callback)
    main.COMMANDS[name], main.FOLDERS[name] = "", "vm"
    sys.modules[module.__name__] = module
main.main()
"""


def _run(command: str) -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, "-c", PROGRAM, command]
    return subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)


def test_an_interrupted_command_waits_for_no_thread_and_keeps_its_output() -> None:
    done = _run("wait")
    assert (done.returncode, done.stdout) == (130, "data\n")
    assert done.stderr.startswith("\nerror: interrupted\n")


def test_an_ended_command_runs_exit_functions_and_looks_for_no_circles() -> None:
    done = _run("end")
    assert (done.returncode, done.stdout, done.stderr) == (0, "data\nexit function\n", "")


def test_a_signal_after_the_end_of_a_command_ends_the_process_without_a_word() -> None:
    done = _run("work")
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGTERM, "data\n", "")


@pytest.mark.parametrize("command", ["stop-vm", "start-vm"])
def test_a_closed_terminal_interrupts_a_command(command: str) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
        os.execv(sys.executable, [sys.executable, "-c", PROGRAM, command])
    seen = b""
    while b"data" not in seen:
        seen += os.read(terminal, 4096)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 130


def test_an_interrupt_is_told_though_stderr_takes_nothing() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([sys.executable, "-c", PROGRAM, "wait"], stderr=full, timeout=60, check=False)
    assert done.returncode == 130
