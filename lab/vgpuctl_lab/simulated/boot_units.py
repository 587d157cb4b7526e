# SPDX-License-Identifier: Apache-2.0
"""systemd's part at the boot of a simulated host: run the enabled oneshot units before libvirt."""

import asyncio
import os
import shlex

from vgpuctl_lab.simulated import interpreter
from vgpuctl_lab.simulated.layout import SimulatedFolder
from vgpuctl_lab.simulated.machine.network_functions import UNIT_PREFIX
from vgpuctl_lab.simulated.machine.state import MachineFolder

_LIMIT_S = 60.0
_WANTS = "etc/systemd/system/multi-user.target.wants"


async def run_boot_units(lab: SimulatedFolder, machine: MachineFolder) -> None:
    """Run what is wanted by multi-user.target; what the units say lies in the machine's journal afterwards."""
    wants = machine.root / _WANTS
    for link in sorted(wants.iterdir()) if wants.is_dir() else []:
        if link.name.startswith(UNIT_PREFIX):
            with machine.change() as state:
                state.services[link.name] = True
            continue
        unit = machine.root / os.readlink(link).lstrip("/")  # noqa: PTH115 - the target lies under the machine's root
        for line in unit.read_text().splitlines() if unit.is_file() else []:
            key, _, command = line.partition("=")
            if key in ("ExecStartPre", "ExecStart"):
                status = await run_program(lab, machine, shlex.split(command.removeprefix("-")), unit.stem)
                if status and not command.startswith("-"):
                    break


async def run_program(lab: SimulatedFolder, machine: MachineFolder, argv: list[str], identifier: str) -> int | None:
    """Run a unit's command to its end, as on the host. Returns its exit status."""
    environment = {
        **os.environ,
        interpreter.HOST_VARIABLE: str(machine.folder),
        interpreter.BOOT_VARIABLE: "yes",
        "PATH": f"{lab.programs}:{os.environ.get('PATH', '')}",
    }
    journal = machine.root / "var/log/journal.txt"
    journal.parent.mkdir(parents=True, exist_ok=True)
    with journal.open("a") as log:
        log.write(f"{identifier}: starting {' '.join(argv)}\n")
        log.flush()
        process = await asyncio.create_subprocess_exec(*argv, stdout=log, stderr=log, env=environment)
        try:
            await asyncio.wait_for(process.wait(), _LIMIT_S)
        except TimeoutError:
            process.kill()
            await process.wait()
        log.write(f"{identifier}: ended with {process.returncode}\n")
    return process.returncode
