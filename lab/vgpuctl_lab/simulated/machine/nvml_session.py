# SPDX-License-Identifier: Apache-2.0
"""The start of every function of the simulated NVML: the machine's state now, and the card of a handle."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from vgpuctl_lab.simulated.machine import modes
from vgpuctl_lab.simulated.machine.nvml_values import CONSTANTS, InstanceHandle, NvmlError
from vgpuctl_lab.simulated.machine.rules import DRIVER
from vgpuctl_lab.simulated.machine.sensors import Sensors
from vgpuctl_lab.simulated.machine.shape import CardShape
from vgpuctl_lab.simulated.machine.state import GpuInstance, MachineFolder, State, is_nvidia

T = TypeVar("T")


@dataclass(frozen=True)
class DeviceHandle:
    """nvmlDevice_t: the address of a card."""

    address: str


@dataclass(frozen=True)
class MigDeviceHandle(DeviceHandle):
    """nvmlDevice_t of a MIG device: a compute instance of a GPU instance."""

    instance: int
    compute: int


class Session:
    """One process's use of a machine's NVML."""

    def __init__(self, machine: MachineFolder) -> None:
        self.machine = machine
        self.is_open = False
        # {function: code} of functions that must fail.
        self.injected: dict[str, int] = {}

    def note_opened(self) -> None:
        """Make the cards' UUIDs known to the driver: it asks a card when somebody first uses it."""
        if any(card.address not in self.state.opened for card in self.cards()):
            with self.machine.change() as state:
                state.opened = sorted({*state.opened, *(card.address for card in self.cards())})

    @property
    def state(self) -> State:
        """The state now; for reading only."""
        return self.machine.state()

    def sensors(self) -> Sensors:
        """The sensors of the machine's GPUs and vGPUs now."""
        return Sensors(self.machine)

    @staticmethod
    def had(value: T | None) -> T:
        """A value that this card has; Not Supported without one."""
        if value is None:
            raise NvmlError(CONSTANTS["NVML_ERROR_NOT_SUPPORTED"])
        return value

    def has_driver(self) -> bool:
        """True if NVIDIA's driver is loaded."""
        return any(is_nvidia(card) for card in self.machine.shape.cards)

    def cards(self) -> list[CardShape]:
        """The cards on NVIDIA's driver, by address."""
        if not self.is_open:
            raise NvmlError(CONSTANTS["NVML_ERROR_UNINITIALIZED"])
        state = self.state
        return [
            card
            for card in self.machine.shape.cards
            if is_nvidia(card) and state.drivers.get(card.address) == DRIVER and card.address not in state.unbind_locks
        ]

    def handle(self, card: CardShape) -> DeviceHandle:
        """The handle of a card that answers."""
        if self.state.fault(card, "fallen"):
            raise NvmlError(CONSTANTS["NVML_ERROR_GPU_IS_LOST"])
        return DeviceHandle(card.address)

    def card(self, device: DeviceHandle) -> CardShape:
        """The card of a handle, which may have gone or fallen off the bus since."""
        card = next((one for one in self.cards() if one.address == device.address), None)
        if card is None or self.state.fault(card, "fallen"):
            raise NvmlError(CONSTANTS["NVML_ERROR_GPU_IS_LOST"])
        return card

    def card_of_instance(self, handle: InstanceHandle) -> CardShape:
        """The card of a GPU instance's handle."""
        return self.card(DeviceHandle(self.machine.shape.cards[handle.card].address))

    def instance(self, state: State, handle: InstanceHandle) -> GpuInstance:
        """The GPU instance of a handle in a state."""
        card = self.card_of_instance(handle)
        for one in state.instances_of(card):
            if one.id == handle.instance:
                return one
        raise NvmlError(CONSTANTS["NVML_ERROR_NOT_FOUND"])

    @contextmanager
    def change(self) -> Iterator[State]:
        """Hold the machine and change it; a refusal becomes NVML's error and changes nothing."""
        try:
            with self.machine.change() as state:
                yield state
        except modes.Refused as refused:
            raise NvmlError(refused.code) from refused
