# SPDX-License-Identifier: Apache-2.0
"""`systemd-analyze verify` of a simulated host: this machine's own program, on the units that the host has."""

import os
import shutil
import subprocess
from collections.abc import Sequence

from vgpuctl_lab.simulated.machine.state import MachineFolder

PROGRAM = "systemd-analyze"
_UNITS, _CHANGED_UNITS = "usr/lib/systemd/system", "etc/systemd/system"
_LIMIT_S = 60


def is_here() -> bool:
    """Return whether this machine has the program; the simulated host then has it too."""
    return shutil.which(PROGRAM) is not None


def run(machine: MachineFolder, arguments: Sequence[str]) -> tuple[int, str, str]:
    """Run it: (exit status, stdout, stderr); 127 where this machine does not have it."""
    program = shutil.which(PROGRAM)
    if program is None:
        return 127, "", ""
    _write_units(machine)
    paths = [str(machine.root / one[1:]) if one.startswith("/") else one for one in arguments]
    folders = [str(machine.root / folder) for folder in (_CHANGED_UNITS, _UNITS)]
    done = subprocess.run(
        [program, *paths],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
        # The empty name at the end stands for systemd's own folders (systemd.unit(5)).
        env={"PATH": os.environ.get("PATH", ""), "SYSTEMD_UNIT_PATH": ":".join([*folders, ""])},
    )
    return done.returncode, done.stdout, done.stderr


def _write_units(machine: MachineFolder) -> None:
    """A unit for each service of the host, started at boot as packages enable theirs."""
    folder = machine.root / _UNITS
    wants = folder / "multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    for name in machine.state().services:
        unit = folder / name
        if not unit.exists():
            unit.write_text(f"[Unit]\nDescription={name}\n[Service]\nExecStart=/bin/true\n")
            (wants / name).symlink_to(f"../{name}")
