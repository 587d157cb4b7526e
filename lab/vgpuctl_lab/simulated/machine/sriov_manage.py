# SPDX-License-Identifier: Apache-2.0
"""`sriov-manage` of a simulated host: calls, side effects and wordings of NVIDIA's script of the A100 era.

A failure in the middle leaves everything as it is then, and the exit status proves nothing.
"""

from collections.abc import Callable, Sequence

from vgpuctl_lab.simulated.machine import usage
from vgpuctl_lab.simulated.machine.drivers import STUB, VFIO, Drivers
from vgpuctl_lab.simulated.machine.kernel import SimulatedKernel
from vgpuctl_lab.simulated.machine.rules import DRIVER
from vgpuctl_lab.simulated.machine.shape import CardShape
from vgpuctl_lab.simulated.machine.state import MachineFolder, State, is_nvidia
from vgpuctl_lab.simulated.machine.tree import known_boards

USAGE = "Usage:\n    /usr/lib/nvidia/sriov-manage <-e|-d> <ssss:bb:dd.f|ALL>\n"
# Faults of the script: how many more of its runs die with the PF unbound, or do nothing and end with 0.
PF_UNBOUND, SILENT = "pf-unbound", "sriov-silent"


def run(machine: MachineFolder, arguments: Sequence[str]) -> tuple[int, str, str]:
    """Run it: (exit status, stdout, stderr)."""
    if len(arguments) != 2 or arguments[0] not in ("-e", "-d"):
        return 1, "", USAGE
    option, wanted = arguments
    cards = [card for card in machine.shape.cards if is_nvidia(card)]
    if wanted.upper() != "ALL":
        cards = [card for card in cards if card.address == wanted]
        if not cards:
            return 1, "", ""
    output, errors, status = "", "", 0
    for card in cards:
        status, said, complained = _run_on(machine, card, enable=option == "-e")
        output, errors = output + said, errors + complained
        if status:
            break
    return status, output, errors


def _run_on(machine: MachineFolder, card: CardShape, *, enable: bool) -> tuple[int, str, str]:
    said: list[str] = []
    complained: list[str] = []
    with machine.change() as state:
        if not card.total_vfs or card.device not in known_boards(machine.shape, state):
            return 0, "", ""
        one = _Run(machine, state, card, said.append, complained.append)
        is_done = one.enable() if enable else one.disable()
    return int(not is_done), "".join(f"{line}\n" for line in said), "".join(f"{line}\n" for line in complained)


class _Run:
    """One run for one card while the state is held. say, complain: stdout and stderr."""

    def __init__(
        self,
        machine: MachineFolder,
        state: State,
        card: CardShape,
        say: Callable[[str], None],
        complain: Callable[[str], None],
    ) -> None:
        self._machine, self._state, self._card = machine, state, card
        self._say, self._complain = say, complain
        self._drivers, self._kernel = Drivers(machine, state), SimulatedKernel(machine, state)

    def enable(self) -> bool:
        """Enable all VFs, then bind everything else on the card's bus to nvidia."""
        if self._count():
            self._say(f"GPU at {self._card.address} already has VFs enabled.")
            return True
        self._say(f"Enabling VFs on {self._card.address}")
        if self._state.use_up(self._card, SILENT):
            return True
        is_done = self._set_count(self._card.total_vfs)
        if self._state.drivers.get(self._card.address) is None:
            return False
        for function in self._others():
            driver = self._state.drivers.get(function)
            if driver != DRIVER:
                if driver is not None:
                    self._try(lambda f=function, d=driver: self._drivers.unbind(d, f))  # type: ignore[misc]
                self._try(lambda f=function: self._drivers.bind(DRIVER, f))  # type: ignore[misc]
        return is_done

    def disable(self) -> bool:
        """Unbind everything else on the card's bus, and only then ask for unbindLock."""
        if not self._count():
            self._say(f"GPU at {self._card.address} already has VFs disabled.")
            return True
        self._say(f"Disabling VFs on {self._card.address}")
        if self._state.use_up(self._card, SILENT):
            return True
        for function in self._others():
            driver = self._state.drivers.get(function)
            if driver in (DRIVER, VFIO):
                self._try(lambda f=function, d=driver: self._drivers.unbind(d, f))  # type: ignore[misc]
        return self._set_count(0)

    def _set_count(self, count: int) -> bool:
        """Set the count through pci-pf-stub."""
        address = self._card.address
        driver = self._state.drivers.get(address)
        if driver == DRIVER and not self._has_lock():
            self._complain(f"Cannot obtain unbindLock for {address}")
            self._resume()
            return False
        if driver is not None and not self._try(lambda: self._drivers.unbind(driver, address)):
            return False
        identity = f"{self._card.vendor} {self._card.device}"
        if self._state.use_up(self._card, PF_UNBOUND):
            new_id = "awk: cmd. line:1: warning: close of fd failed: /sys/bus/pci/drivers/pci-pf-stub/new_id"
            self._complain(f"{new_id} (File exists)\nsriov-manage: line 184: echo: write error: No such device")
            self._state.stub_ids.append(identity)
            return False
        if not self._try(lambda: self._kernel.write(f"/sys/bus/pci/drivers/{STUB}/new_id", f"{identity}\n")):
            self._complain("awk: cmd. line:1: warning: close of fd failed (File exists)")
        if self._state.drivers.get(address) != STUB:
            self._try(lambda: self._drivers.bind(STUB, address))
        self._try(lambda: self._kernel.write(f"/sys/bus/pci/devices/{address}/sriov_numvfs", f"{count}\n"))
        self._try(lambda: self._drivers.unbind(STUB, address))
        self._try(lambda: self._kernel.write(f"/sys/bus/pci/drivers/{STUB}/remove_id", f"{identity}\n"))
        self._try(lambda: self._drivers.bind(DRIVER, address))
        self._resume()
        return True

    def _has_lock(self) -> bool:
        address = self._card.address
        self._kernel.write(f"/proc/driver/nvidia/gpus/{address}/unbindLock", "1\n")
        return address in self._state.unbind_locks

    def _resume(self) -> None:
        """`nvidia-smi -pm 1`, which is for every GPU."""
        usage.persist(self._machine.shape, self._state)

    def _others(self) -> list[str]:
        return [*(one.address for one in self._card.companions), *self._state.vfs_of(self._card)]

    def _count(self) -> int:
        return self._state.vf_counts.get(self._card.address, 0)

    def _try(self, deed: Callable[[], object]) -> bool:
        try:
            deed()
        except OSError as error:
            self._complain(f"sriov-manage: echo: write error: {error.strerror}")
            return False
        return True
