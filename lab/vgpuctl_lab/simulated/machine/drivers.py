# SPDX-License-Identifier: Apache-2.0
"""The driver of a function, and the state that goes with it (reference 1.2, 3.1)."""

import errno
import os
from typing import NoReturn

from vgpuctl_lab.simulated.machine import modes, rules, usage
from vgpuctl_lab.simulated.machine.shape import NVIDIA, CardShape
from vgpuctl_lab.simulated.machine.state import MachineFolder, State

VFIO, STUB = "vfio-pci", "pci-pf-stub"
# The fault: how many more times the VFs of a card come without types.
UNREGISTERED = "vfs-unregistered"
_WITH_SRIOV_CONFIGURE = (STUB, "xe", "i915")


class Drivers:
    """Binds and unbinds while the state is held. Raises OSError."""

    def __init__(self, machine: MachineFolder, state: State) -> None:
        self._machine = machine
        self._shape = machine.shape
        self._state = state

    def card_of(self, function: str) -> CardShape | None:
        """The card that a function belongs to: its PF, VF or companion."""
        for card in self._shape.cards:
            own = {card.address, *self._state.vfs_of(card), *(each.address for each in card.companions)}
            if function in own:
                return card
        return None

    def can_configure_vfs(self, function: str) -> bool:
        """True if the function's driver has a `sriov_configure` hook; NVIDIA's has none."""
        return self._state.drivers.get(function) in _WITH_SRIOV_CONFIGURE

    def bind(self, driver: str, function: str) -> None:
        """Bind to exactly this driver: ENODEV when it does not match, EBUSY when the function is bound."""
        if self.card_of(function) is None or not self._matches(driver, function):
            _refuse(errno.ENODEV)
        if self._state.drivers.get(function) is not None:
            _refuse(errno.EBUSY)
        if self._fails_to_probe(driver, function):
            _refuse(errno.EPERM)
        self._attach(driver, function)

    def unbind(self, driver: str, function: str) -> None:
        """Take the function from this driver: ENODEV when it is not on it."""
        card = self.card_of(function)
        if card is None or not driver or self._state.drivers.get(function) != driver:
            _refuse(errno.ENODEV)
        if driver == rules.DRIVER:
            if any(self._state.holder_of(vgpu) for vgpu in self._state.vgpus if vgpu.function == function):
                _refuse(errno.EBUSY)
            self._leave_nvidia(card, function)
        elif any(function in domain.functions for domain in self._state.domains.values()):
            # The kernel asks QEMU to let go and sleeps until it does; here nobody sleeps.
            _refuse(errno.EBUSY)
        self._state.drivers[function] = None

    def probe(self, function: str) -> None:
        """Let the kernel pick: success also when nobody claims the function."""
        if self.card_of(function) is None:
            _refuse(errno.ENODEV)
        if self._state.drivers.get(function) is not None:
            return
        # NVIDIA's driver was there before pci-pf-stub, so the kernel asks it first.
        for driver in (self._state.overrides.get(function) or self._native(function), STUB):
            if driver is not None and self._matches(driver, function):
                if not self._fails_to_probe(driver, function):
                    self._attach(driver, function)
                return

    def _fails_to_probe(self, driver: str, function: str) -> bool:
        """True if the probe of the card's own driver fails. The log line is that of Linux's drivers/base/dd.c."""
        card = self.card_of(function)
        if card is None or driver != card.driver or not self._state.fault(card, "driver-lost"):
            return False
        self._machine.log(f"{driver}: probe of {function} failed with error -1")
        return True

    def claim(self, driver: str) -> None:
        """Bind a driver to every matching function without a driver, as after a new id."""
        for card in self._shape.cards:
            for function in (card.address, *self._state.vfs_of(card)):
                if self._state.drivers.get(function) is None and self._matches(driver, function):
                    self._attach(driver, function)

    def set_vfs(self, card: CardShape, count: int) -> None:
        """Bring the VFs of a card; those it had go, with all that is on them."""
        for address in self._state.vfs_of(card):
            self._state.drivers.pop(address, None)
            self._state.overrides.pop(address, None)
            self._state.vf_params.pop(address, None)
            self._state.wedged = [one for one in self._state.wedged if one != address]
            self._state.vgpus = [vgpu for vgpu in self._state.vgpus if vgpu.function != address]
        self._state.stopped_vfs = [one for one in self._state.stopped_vfs if one not in self._state.vfs_of(card)]
        self._divide_memory(card, count)
        self._state.vf_counts[card.address] = count
        modes.forget(self._state, card)
        if card.address in self._state.unregistered:
            self._state.unregistered.remove(card.address)
        if count and self._state.use_up(card, UNREGISTERED):
            self._state.unregistered.append(card.address)
        for address in self._state.vfs_of(card):
            self.probe(address)

    def _divide_memory(self, card: CardShape, count: int) -> None:
        """Intel's driver divides the memory itself, unless somebody has begun before the VFs are enabled."""
        vfs = [card.vf_address(number) for number in range(card.total_vfs)]
        by_hand = [one for one in self._state.quotas_by_hand if one != card.address]
        if count and any("vram_quota" in self._state.vf_params.get(one, {}) for one in vfs):
            by_hand.append(card.address)
        self._state.quotas_by_hand = by_hand

    def _native(self, function: str) -> str | None:
        card = self.card_of(function)
        if card is None:
            return None
        companion = next((each for each in card.companions if each.address == function), None)
        if companion is not None:
            return companion.driver
        is_vf = function != card.address
        # NVIDIA's driver without vGPU support ignores VFs; GIM's VFs are for guests only.
        return None if is_vf and (card.driver == "gim" or (card.vendor == NVIDIA and not card.types)) else card.driver

    def _matches(self, driver: str, function: str) -> bool:
        override = self._state.overrides.get(function)
        if override is not None:
            return driver == override and driver in (VFIO, STUB, self._native(function))
        return self._claims(driver, function) and not self._is_kept_from_drivers(function)

    def _claims(self, driver: str, function: str) -> bool:
        if driver != STUB:
            return driver == self._native(function)
        card = self.card_of(function)
        if card is None or any(one.address == function for one in card.companions):
            return False
        # On some boards a VF has the id of its PF, and the driver that claims the PF claims it too.
        device = card.device if function == card.address else card.vf_device
        return f"{card.vendor} {device}" in self._state.stub_ids

    def _is_kept_from_drivers(self, function: str) -> bool:
        """True if sriov_drivers_autoprobe is 0 for this VF; only an override gets through (Linux pci-driver.c)."""
        card = self.card_of(function)
        return card is not None and card.address in self._state.no_autoprobe and function in self._state.vfs_of(card)

    def _attach(self, driver: str, function: str) -> None:
        self._state.drivers[function] = driver
        if driver == rules.DRIVER and function in self._state.unbind_locks:
            self._state.unbind_locks.remove(function)

    def _leave_nvidia(self, card: CardShape, function: str) -> None:
        """vGPUs go with the driver of their function. VFs stay without a driver when the driver of their PF goes."""
        if function == card.address:
            self._state.opened = [address for address in self._state.opened if address != function]
            if self._state.is_used(card) or usage.is_used(self._state, card):
                # NVIDIA's driver says this and lets the writer sleep; here nobody sleeps.
                self._machine.log(
                    f"NVRM: Attempting to remove device {function} with non-zero usage count!",
                )
                _refuse(errno.EBUSY)
            modes.forget(self._state, card)
            self._strand_vfs(card)
        self._state.vgpus = [vgpu for vgpu in self._state.vgpus if vgpu.function != function]

    def _strand_vfs(self, card: CardShape) -> None:
        vfs = self._state.vfs_of(card)
        if vfs:
            self._machine.log(f"nvidia {card.address}: driver left SR-IOV enabled after remove")
        for address in vfs:
            if self._state.drivers.get(address) == rules.DRIVER:
                self._state.drivers[address] = None
        self._state.vgpus = [vgpu for vgpu in self._state.vgpus if vgpu.function not in vfs]


def _refuse(number: int) -> NoReturn:
    raise OSError(number, os.strerror(number))
