# SPDX-License-Identifier: Apache-2.0
"""The end of a command that gets a signal, whatever threads and exit functions of libraries still wait for."""

import signal
import subprocess
import sys

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

for name, callback in (("wait", wait), ("work", work)):
    module = type(sys)(f"vgpuctl.cli.vm.{name}")
    module.command = click.Command(name, callback=callback)
    main.COMMANDS[name], main.FOLDERS[name] = "", "vm"
    sys.modules[f"vgpuctl.cli.vm.{name}"] = module
main.main()
"""


def _run(command: str) -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, "-c", PROGRAM, command]
    return subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)


def test_an_interrupted_command_waits_for_no_thread_and_keeps_its_output() -> None:
    done = _run("wait")
    assert (done.returncode, done.stdout) == (130, "data\n")
    assert done.stderr.startswith("\nerror: interrupted\n")


def test_a_signal_after_the_end_of_a_command_ends_the_process_without_a_word() -> None:
    done = _run("work")
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGTERM, "data\n", "")
