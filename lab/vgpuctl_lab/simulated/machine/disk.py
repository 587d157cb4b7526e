# SPDX-License-Identifier: Apache-2.0
"""The machine's files as real files, for programs that are not ours: sh and what it starts."""

from pathlib import Path

from vgpuctl_lab.simulated.machine import fabric_manager
from vgpuctl_lab.simulated.machine.programs import PROGRAMS
from vgpuctl_lab.simulated.machine.state import MachineFolder
from vgpuctl_lab.simulated.machine.tree import Link, build

_PROGRAM_FOLDERS = ("/usr/bin/", "/usr/sbin/", "/usr/libexec/")
_PYTHON = "#!/bin/sh\necho 3.11\n"


def programs(machine: MachineFolder) -> dict[str, str]:
    """The programs of the machine and Fabric Manager's library by path, with what sh would run."""
    names = (*machine.shape.versions, *PROGRAMS, "sudo", "virt-ssh-helper", "swtpm", "swtpm_setup")
    found = {f"/usr/bin/{name}": "#!/bin/sh\n" for name in names}
    found["/usr/bin/python3"] = _PYTHON
    if machine.shape.has_fabric_manager:
        found |= {f"/usr/bin/{fabric_manager.PROGRAM}": "#!/bin/sh\n", "/usr/lib64/libnvfm.so.1": "\n"}
    changed = machine.state().files
    return {path: text for path, text in found.items() if changed.get(path, text) is not None}


def write_disk(machine: MachineFolder, folder: Path) -> None:
    """Write the machine under a folder; links stay inside it, and a file that cannot be read is left out."""
    content = {**programs(machine), **build(machine.shape, machine.state())}
    for path, what in content.items():
        place = folder / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(what, Link):
            place.symlink_to(f"{folder}{what.target}")
        elif isinstance(what, str):
            place.write_text(what + "\n" if what and not what.endswith("\n") else what)
            if path.startswith(_PROGRAM_FOLDERS):
                place.chmod(0o755)
