# SPDX-License-Identifier: Apache-2.0
"""The machine's programs: `sriov-manage` (reference 3.1), nvidia-smi, systemctl, modprobe, and --version of some."""

from collections.abc import Callable, Sequence

from vgpuctl.lab.simulated.machine import nvidia_smi, ovn, systemctl, systemd_analyze
from vgpuctl.lab.simulated.machine.drivers import STUB, Drivers
from vgpuctl.lab.simulated.machine.kernel import Kernel
from vgpuctl.lab.simulated.machine.shape import Card
from vgpuctl.lab.simulated.machine.state import MachineFolder, State, is_nvidia

# What a shell on the host finds on its PATH; the agent finds more.
PROGRAMS = ("nvidia-smi", "sriov-manage", "systemctl")
_DRIVER = "nvidia"


def run_program(machine: MachineFolder, argv: Sequence[str]) -> tuple[int, str, str]:
    """Run a program: (exit status, stdout, stderr); 127 when the machine has none of this name."""
    program = argv[0].rpartition("/")[2]
    if program in machine.shape.versions and list(argv[1:]) == ["--version"]:
        return 0, machine.shape.versions[program] + "\n", ""
    if program == "modprobe":
        known = any(argv[-1] == driver for driver in ("vfio-pci", STUB))
        return (0, "", "") if known else (1, "", f"modprobe: FATAL: Module {argv[-1]} not found.\n")
    if program == "nvidia-smi" and has_nvidia(machine):
        return nvidia_smi.run(machine, argv[1:])
    if program == "systemctl":
        return systemctl.run(machine, argv[1:])
    if program == systemd_analyze.PROGRAM:
        return systemd_analyze.run(machine, argv[1:])
    if program in ovn.PROGRAMS:
        return ovn.run(machine, program, argv[1:])
    if program == "sriov-manage":
        return _sriov_manage(machine, argv[1:])
    return 127, "", ""


def has_nvidia(machine: MachineFolder) -> bool:
    """Whether the host has NVIDIA's driver and programs."""
    return any(is_nvidia(card) for card in machine.shape.cards)


def enable_vfs(machine: MachineFolder) -> None:
    """Bring the VFs that the host's owner wants, as a boot unit of his would."""
    for card in machine.shape.cards:
        count = machine.shape.enabled_vfs.get(card.address, 0)
        if not count:
            continue
        if is_nvidia(card):
            _sriov_manage(machine, ["-e", card.address])
            continue
        with machine.change() as state:
            # So the host's own driver leaves the VFs to vfio-pci.
            state.no_autoprobe.append(card.address)
            Drivers(machine, state).set_vfs(card, count)


def _sriov_manage(machine: MachineFolder, arguments: Sequence[str]) -> tuple[int, str, str]:
    if len(arguments) != 2 or arguments[0] not in ("-e", "-d"):
        return 1, "", "Usage: sriov-manage <-e|-d> <ssss:bb:dd.f | ALL>\n"
    option, wanted = arguments
    said: list[str] = []
    found = False
    with machine.change() as state:
        for card in machine.shape.cards:
            if wanted in ("ALL", card.address) and _can_manage(state, card):
                found = True
                _manage(machine, state, card, said.append, enable=option == "-e")
    if not found and wanted != "ALL":
        return 1, "", f"{wanted} is not a GPU with SR-IOV on the driver nvidia\n"
    return 0, "".join(f"{line}\n" for line in said), ""


def _can_manage(state: State, card: Card) -> bool:
    return bool(is_nvidia(card) and card.types and card.total_vfs) and state.drivers.get(card.address) == _DRIVER


def _manage(machine: MachineFolder, state: State, card: Card, say: Callable[[str], None], *, enable: bool) -> None:
    address = card.address
    if bool(state.vf_counts.get(address, 0)) == enable:
        verb = f"GPU at {address} already has VFs {'enabled' if enable else 'disabled'}."
        say(verb)
        return
    say(f"{'Enabling' if enable else 'Disabling'} VFs on {address}")
    kernel = Kernel(machine, state)
    drivers = Drivers(machine, state)
    kernel.write(f"/proc/driver/nvidia/gpus/{address}/unbindLock", "1\n")
    if address not in state.unbind_locks:
        say(f"Cannot obtain unbindLock for {address}")
        return
    drivers.unbind(_DRIVER, address)
    kernel.write(f"/sys/bus/pci/devices/{address}/driver_override", f"{STUB}\n")
    drivers.bind(STUB, address)
    kernel.write(f"/sys/bus/pci/devices/{address}/sriov_numvfs", f"{card.total_vfs if enable else 0}\n")
    drivers.unbind(STUB, address)
    kernel.write(f"/sys/bus/pci/devices/{address}/driver_override", "\n")
    drivers.bind(_DRIVER, address)
