# SPDX-License-Identifier: Apache-2.0
"""The end of an interrupted command, whatever threads and exit functions of libraries still wait for."""

import subprocess
import sys

PROGRAM = """
import atexit, sys, threading, time
import click
from vgpuctl.cli import main

def wait():
    threading.Thread(target=time.sleep, args=(600,)).start()
    atexit.register(time.sleep, 600)
    print("data")
    raise KeyboardInterrupt

module = type(sys)("vgpuctl.cli.wait")
module.command = click.Command("wait", callback=wait)
main.COMMANDS["wait"] = ""
sys.modules["vgpuctl.cli.wait"] = module
main.main()
"""


def test_an_interrupted_command_waits_for_no_thread_and_keeps_its_output() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "wait"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 130
    assert done.stdout == "data\n"
    assert done.stderr.startswith("\nerror: interrupted\n")
