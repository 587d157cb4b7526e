# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of all simulated hosts of a lab: it imports what they need once, and forks for each of them.

A program has the arguments, the environment, the folder and the streams of its client (`program_client.py`), and ends
like a process of its own. The server has no module of an agent itself: each agent gets those of its own file.
"""

import gc
import importlib
import os
import socket
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vgpuctl_lab.simulated.loaded_agents import LoadedAgents

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
    programs = (f"vgpuctl_lab.simulated.{one}" for one in ("helper", "interpreter", "loaded_agents", "program"))
    for name in (*_STANDARD, *(f"vgpuctl_lab.simulated.machine.{one}" for one in _MACHINE), *programs):
        importlib.import_module(name)
    gc.freeze()


def _parse(message: bytes) -> tuple[str, list[str], dict[str, str]]:
    """The folder, the arguments and the environment of a client, as program_client.c writes them."""
    folder, count, *words = map(os.fsdecode, message.split(b"\0")[:-1])
    pairs = (one.partition("=") for one in words[int(count) :])
    return folder, words[: int(count)], {name: value for name, equals, value in pairs if equals}


def become(message: bytes, agents: "LoadedAgents") -> None:
    """Run the program of a client: its arguments, environment and folder."""
    from vgpuctl_lab.simulated import helper, interpreter, program

    folder, sys.argv, environment = _parse(message)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    agents.give(sys.argv, environment)
    mains = {"python3": interpreter.main, "virt-ssh-helper": helper.main}
    mains.get(sys.argv[0].rpartition("/")[2], program.main)()


def main() -> None:
    """Take a listening socket's number, and the folders of `vgpuctl_lab` and `vgpuctl.model`."""
    load(*sys.argv[2:4])
    from vgpuctl_lab.fork_server import ForkServer
    from vgpuctl_lab.simulated.loaded_agents import LoadedAgents

    agents = LoadedAgents()
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        ForkServer(listening, lambda one: become(one, agents), prepare=lambda one: agents.load(*_parse(one)[1:])).run()


if __name__ == "__main__":
    main()
