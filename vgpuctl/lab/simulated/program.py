# SPDX-License-Identifier: Apache-2.0
"""A program of a simulated host, as a shell on it starts it: nvidia-smi, sriov-manage, systemctl.

`lab up` copies it to `bin/` under each of these names. Which host it is on says the login's environment.
"""

import os
import sys
from pathlib import Path
from types import ModuleType

HOST_VARIABLE = "VGPUCTL_SIMULATED_HOST"
PACKAGE_VARIABLE = "VGPUCTL_SIMULATED_PACKAGE"


def main() -> None:
    """Run the program on the host's machine, whose files need none of the packages above them."""
    for name in ("vgpuctl", "vgpuctl.lab", "vgpuctl.lab.simulated"):
        package = ModuleType(name)
        package.__path__ = ["/".join((os.environ[PACKAGE_VARIABLE], *name.split(".")[1:]))]
        sys.modules[name] = package
    programs = __import__("vgpuctl.lab.simulated.machine.programs", fromlist=["run_program"])
    state = __import__("vgpuctl.lab.simulated.machine.state", fromlist=["MachineFolder"])
    machine = state.MachineFolder(Path(os.environ[HOST_VARIABLE]))
    status, output, errors = programs.run_program(machine, [Path(sys.argv[0]).name, *sys.argv[1:]])
    sys.stdout.write(output)
    sys.stderr.write(errors)
    sys.exit(status)


if __name__ == "__main__":
    main()
