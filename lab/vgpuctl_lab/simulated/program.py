# SPDX-License-Identifier: Apache-2.0
"""A program of a simulated host, as a login on it starts it: nvidia-smi, sriov-manage, systemctl, sh.

`lab up` copies it to `bin/` under each of these names. The login's environment says which host it is on.
"""

import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

HOST_VARIABLE = "VGPUCTL_SIMULATED_HOST"
PACKAGE_VARIABLE = "VGPUCTL_SIMULATED_PACKAGE"
MODEL_VARIABLE = "VGPUCTL_SIMULATED_MODEL"
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
    if sys.argv[1:] != ["-s", "/"] or HOST_VARIABLE not in os.environ:
        os.execv(_SH, ["sh", *sys.argv[1:]])
    if (Path(os.environ[HOST_VARIABLE]) / "capture.json").exists():
        sys.exit("not in this capture: what plain sh reads of a host")
    with tempfile.TemporaryDirectory(prefix="vgpuctl-simulated-") as folder:
        _module("disk").write_disk(_machine(), Path(folder))
        done = subprocess.run([_SH, "-s", folder], check=False)
    sys.exit(done.returncode)


def _machine() -> Any:
    """Return the files of the host's machine."""
    return _module("state").MachineFolder(Path(os.environ[HOST_VARIABLE]))


def _module(name: str) -> Any:
    """Import a module of the simulated machine, which needs of the packages above it the model and the agent's wire."""
    lab, model = os.environ[PACKAGE_VARIABLE], os.environ[MODEL_VARIABLE]
    for parent, places in (
        ("vgpuctl_lab", [lab]),
        ("vgpuctl_lab.simulated", [f"{lab}/simulated"]),
        ("vgpuctl", []),
        ("vgpuctl.model", [model]),
        ("vgpuctl.agent", [str(Path(model).parent / "agent")]),
    ):
        package = ModuleType(parent)
        package.__path__ = places
        sys.modules.setdefault(parent, package)
    return importlib.import_module(f"vgpuctl_lab.simulated.machine.{name}")


if __name__ == "__main__":
    main()
