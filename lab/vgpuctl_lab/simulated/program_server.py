# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of all simulated hosts of a lab: it imports what they need once, and forks for each of them.

A program has the arguments, the environment, the folder and the streams of its client (`program_client.py`), and ends
like a process of its own. The server imports no module of the agent: each agent loads those of its own file.
"""

import gc
import importlib
import os
import socket
import sys
from types import ModuleType

_STANDARD = (
    "base64", "contextlib", "ctypes", "ctypes.util", "dataclasses", "enum", "fcntl", "functools", "glob", "hashlib",
    "ipaddress", "json", "pathlib", "platform", "pwd", "shutil", "struct", "subprocess", "tempfile", "threading",
    "traceback", "typing", "uuid", "xml.etree.ElementTree", "zipfile",
)  # fmt: skip
# Modules that need nothing of the agent.
_MACHINE = ("curves", "kernel", "rules", "state", "tree")


def load(lab: str, model: str) -> None:
    """Import what programs need: the lab's package without its commands, and of the product the model alone."""
    for name, place in (("vgpuctl_lab", lab), ("vgpuctl_lab.simulated", f"{lab}/simulated"), ("vgpuctl.model", model)):
        package = ModuleType(name)
        package.__path__ = [place]
        sys.modules[name] = package
    programs = (f"vgpuctl_lab.simulated.{one}" for one in ("helper", "interpreter", "program"))
    for name in (*_STANDARD, *(f"vgpuctl_lab.simulated.machine.{one}" for one in _MACHINE), *programs):
        importlib.import_module(name)
    gc.freeze()


def become(message: bytes) -> None:
    """Run the program of a client: its arguments, environment and folder."""
    from vgpuctl_lab.simulated import helper, interpreter, program

    folder, count, *words = map(os.fsdecode, message.split(b"\0")[:-1])  # as program_client.c writes them
    sys.argv, environment = words[: int(count)], words[int(count) :]
    os.environ.clear()
    pairs = (one.partition("=") for one in environment)
    os.environ.update({name: value for name, equals, value in pairs if equals})
    os.chdir(folder)
    mains = {"python3": interpreter.main, "virt-ssh-helper": helper.main}
    mains.get(sys.argv[0].rpartition("/")[2], program.main)()


def main() -> None:
    """Take a listening socket's number, and the folders of `vgpuctl_lab` and `vgpuctl.model`."""
    load(*sys.argv[2:4])
    from vgpuctl_lab.fork_server import ForkServer

    with socket.socket(fileno=int(sys.argv[1])) as listening:
        ForkServer(listening, become).run()


if __name__ == "__main__":
    main()
