# SPDX-License-Identifier: Apache-2.0
"""The programs of a simulated host that are not Python's: nvidia-smi, sriov-manage, systemctl, sh.

The program server runs them. The login's environment says which host it is on.
"""

import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from vgpuctl_lab.simulated.interpreter import CAPTURE, HOST_VARIABLE

_SH = "/bin/sh"


def main() -> None:
    """Run the program that the file's own name says."""
    name = Path(sys.argv[0]).name
    if name == "sh":
        _run_shell()
    status, output, errors = _module("programs").run_program(_machine(), [name, *sys.argv[1:]])
    sys.stdout.write(output)
    sys.stderr.write(errors)
    sys.exit(status)


def _run_shell() -> None:
    """Run the real sh. A script from stdin with the argument `/` reads the simulated machine's files instead."""
    if sys.argv[1:] != ["-s", "/"]:
        os.execv(_SH, ["sh", *sys.argv[1:]])
    if (Path(os.environ[HOST_VARIABLE]) / CAPTURE).exists():
        sys.exit("not in this capture: what plain sh reads of a host")
    with tempfile.TemporaryDirectory(prefix="vgpuctl-simulated-") as folder:
        _module("disk").write_disk(_machine(), Path(folder))
        done = subprocess.run([_SH, "-s", folder], check=False)
    sys.exit(done.returncode)


def _machine() -> Any:
    """Return the files of the host's machine."""
    return _module("state").MachineFolder(Path(os.environ[HOST_VARIABLE]))


def _module(name: str) -> Any:
    """Import a module of the simulated machine, which needs of the product the model and the agent's wire."""
    model = Path(sys.modules["vgpuctl.model"].__path__[0])
    for parent, places in (("vgpuctl", []), ("vgpuctl.agent", [str(model.parent / "agent")])):
        package = ModuleType(parent)
        package.__path__ = places
        sys.modules.setdefault(parent, package)
    return importlib.import_module(f"vgpuctl_lab.simulated.machine.{name}")
