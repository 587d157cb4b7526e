# SPDX-License-Identifier: Apache-2.0
"""The machine's programs: sriov-manage (reference 3.1), nvidia-smi, systemctl, virsh, modprobe, --version of some."""

from collections.abc import Sequence

from vgpuctl_lab.simulated.machine import (
    fabric_manager,
    network_functions,
    nvidia_smi,
    ovn,
    sriov_manage,
    systemctl,
    systemd_analyze,
    virsh,
)
from vgpuctl_lab.simulated.machine.drivers import STUB, Drivers
from vgpuctl_lab.simulated.machine.state import MachineFolder, is_nvidia

# Programs on the PATH of a shell on the host; the agent finds more.
PROGRAMS = ("nvidia-smi", "sriov-manage", "systemctl")


def run_program(machine: MachineFolder, argv: Sequence[str]) -> tuple[int, str, str]:
    """Run a program: (exit status, stdout, stderr); 127 for an unknown name."""
    program = argv[0].rpartition("/")[2]
    if program in machine.shape.versions and list(argv[1:]) == ["--version"]:
        return 0, machine.shape.versions[program] + "\n", ""
    if program == "modprobe":
        known = any(argv[-1] == driver for driver in ("vfio-pci", STUB))
        return (0, "", "") if known else (1, "", f"modprobe: FATAL: Module {argv[-1]} not found.\n")
    if program == "nvidia-smi" and has_nvidia(machine):
        return nvidia_smi.run(machine, argv[1:])
    if program == fabric_manager.PROGRAM and machine.shape.has_fabric_manager:
        return 0, fabric_manager.version(machine), ""
    if program == "virsh":
        return virsh.run(machine, argv[1:])
    if program == "systemctl":
        return systemctl.run(machine, argv[1:])
    if program == systemd_analyze.PROGRAM:
        return systemd_analyze.run(machine, argv[1:])
    if program in network_functions.PROGRAMS:
        return network_functions.run_program(program, argv[1:])
    if program in ovn.PROGRAMS:
        return ovn.run(machine, program, argv[1:])
    if program == "sriov-manage":
        return sriov_manage.run(machine, argv[1:])
    return 127, "", ""


def has_nvidia(machine: MachineFolder) -> bool:
    """True if the host has NVIDIA's driver and programs."""
    return any(is_nvidia(card) for card in machine.shape.cards)


def enable_vfs(machine: MachineFolder) -> None:
    """Bring the VFs that the host's owner wants, as a boot unit of his would."""
    for card in machine.shape.cards:
        count = machine.shape.enabled_vfs.get(card.address, 0)
        if not count:
            continue
        if is_nvidia(card):
            sriov_manage.run(machine, ["-e", card.address])
            continue
        with machine.change() as state:
            # So the host's own driver leaves the VFs to vfio-pci.
            state.no_autoprobe.append(card.address)
            Drivers(machine, state).set_vfs(card, count)
