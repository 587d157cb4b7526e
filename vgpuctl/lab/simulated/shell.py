# SPDX-License-Identifier: Apache-2.0
"""The `sh` of a simulated host. A script from stdin with the argument `/` reads the simulated machine's files.

`lab up` copies it to `bin/sh`. Everything else is the real sh's.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

HOST_VARIABLE = "VGPUCTL_SIMULATED_HOST"
PACKAGE_VARIABLE = "VGPUCTL_SIMULATED_PACKAGE"
_SH = "/bin/sh"


def main() -> None:
    """Take sh's own arguments."""
    if sys.argv[1:] != ["-s", "/"] or HOST_VARIABLE not in os.environ:
        os.execv(_SH, ["sh", *sys.argv[1:]])
    for name in ("vgpuctl", "vgpuctl.lab", "vgpuctl.lab.simulated"):
        package = ModuleType(name)
        package.__path__ = ["/".join((os.environ[PACKAGE_VARIABLE], *name.split(".")[1:]))]
        sys.modules[name] = package
    disk = __import__("vgpuctl.lab.simulated.machine.disk", fromlist=["write_disk"])
    state = __import__("vgpuctl.lab.simulated.machine.state", fromlist=["MachineFolder"])
    machine = state.MachineFolder(Path(os.environ[HOST_VARIABLE]))
    with tempfile.TemporaryDirectory(prefix="vgpuctl-simulated-") as folder:
        disk.write_disk(machine, Path(folder))
        done = subprocess.run([_SH, "-s", folder], check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
