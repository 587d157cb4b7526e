# SPDX-License-Identifier: Apache-2.0
"""The simulated NVML's power limit, clocks, ECC and compute mode of cards.

The bounds are the lab's own, since no publication has them for every board: a power limit from half of the board's
power to all of it, and the clocks of `sensors.py`.
"""

from dataclasses import replace

from vgpuctl_lab.simulated.machine import modes
from vgpuctl_lab.simulated.machine.nvml_session import DeviceHandle, Session
from vgpuctl_lab.simulated.machine.nvml_values import CONSTANTS, NvmlError
from vgpuctl_lab.simulated.machine.readings import is_ampere_or_later
from vgpuctl_lab.simulated.machine.sensors import GPU_CLOCKS_MHZ, IDLE_MEMORY_MHZ, MEMORY_MHZ
from vgpuctl_lab.simulated.machine.shape import CardShape
from vgpuctl_lab.simulated.machine.state import State
from vgpuctl_lab.simulated.machine.tuning import Tuning

_INVALID_ARGUMENT = CONSTANTS["NVML_ERROR_INVALID_ARGUMENT"]
_NOT_SUPPORTED = CONSTANTS["NVML_ERROR_NOT_SUPPORTED"]
_COMPUTE_MODES = (0, 2, 3)


class TuningFunctions(Session):
    """Settings of whole cards."""

    def device_get_power_management_limit(self, device: DeviceHandle) -> int:
        """nvmlDeviceGetPowerManagementLimit, in mW."""
        card = self.card(device)
        default = self.device_get_power_management_default_limit(device)
        return modes.tuning(self.state, card).power_mw or default

    def device_get_power_management_default_limit(self, device: DeviceHandle) -> int:
        """nvmlDeviceGetPowerManagementDefaultLimit, in mW."""
        return self.had(self.card(device).power_w * 1000 or None)

    def device_get_power_management_limit_constraints(self, device: DeviceHandle) -> list[int]:
        """nvmlDeviceGetPowerManagementLimitConstraints: least and most, in mW."""
        most = self.device_get_power_management_default_limit(device)
        return [most // 2, most]

    def device_get_enforced_power_limit(self, device: DeviceHandle) -> int:
        """nvmlDeviceGetEnforcedPowerLimit, in mW."""
        return self.device_get_power_management_limit(device)

    def device_set_power_management_limit(self, device: DeviceHandle, limit_mw: int) -> None:
        """nvmlDeviceSetPowerManagementLimit."""
        card = self.card(device)
        least, most = self.device_get_power_management_limit_constraints(device)
        if not least <= limit_mw <= most:
            raise NvmlError(_INVALID_ARGUMENT)
        with self.change() as state:
            _keep(state, card, replace(modes.tuning(state, card), power_mw=None if limit_mw == most else limit_mw))

    def device_get_supported_memory_clocks(self, device: DeviceHandle) -> list[int]:
        """nvmlDeviceGetSupportedMemoryClocks, the highest first."""
        self.card(device)
        return [MEMORY_MHZ, IDLE_MEMORY_MHZ]

    def device_get_supported_graphics_clocks(self, device: DeviceHandle, memory_mhz: int) -> list[int]:
        """nvmlDeviceGetSupportedGraphicsClocks, the highest first."""
        if memory_mhz not in self.device_get_supported_memory_clocks(device):
            raise NvmlError(CONSTANTS["NVML_ERROR_NOT_FOUND"])
        return [*reversed(GPU_CLOCKS_MHZ)] if memory_mhz == MEMORY_MHZ else [IDLE_MEMORY_MHZ]

    def device_set_gpu_locked_clocks(self, device: DeviceHandle, lowest_mhz: int, highest_mhz: int) -> None:
        """nvmlDeviceSetGpuLockedClocks."""
        card = self.card(device)
        if lowest_mhz > highest_mhz or not {lowest_mhz, highest_mhz} <= set(GPU_CLOCKS_MHZ):
            raise NvmlError(_INVALID_ARGUMENT)
        with self.change() as state:
            _keep(state, card, replace(modes.tuning(state, card), clocks_mhz=(lowest_mhz, highest_mhz)))

    def device_reset_gpu_locked_clocks(self, device: DeviceHandle) -> None:
        """nvmlDeviceResetGpuLockedClocks."""
        card = self.card(device)
        with self.change() as state:
            _keep(state, card, replace(modes.tuning(state, card), clocks_mhz=None))

    def device_set_memory_locked_clocks(self, device: DeviceHandle, lowest_mhz: int, highest_mhz: int) -> None:
        """nvmlDeviceSetMemoryLockedClocks: from Ampere on."""
        card = self._with_memory_lock(device)
        if lowest_mhz > highest_mhz or not {lowest_mhz, highest_mhz} <= {MEMORY_MHZ, IDLE_MEMORY_MHZ}:
            raise NvmlError(_INVALID_ARGUMENT)
        with self.change() as state:
            _keep(state, card, replace(modes.tuning(state, card), memory_mhz=(lowest_mhz, highest_mhz)))

    def device_reset_memory_locked_clocks(self, device: DeviceHandle) -> None:
        """nvmlDeviceResetMemoryLockedClocks: from Ampere on."""
        card = self._with_memory_lock(device)
        with self.change() as state:
            _keep(state, card, replace(modes.tuning(state, card), memory_mhz=None))

    def device_get_ecc_mode(self, device: DeviceHandle) -> list[int]:
        """nvmlDeviceGetEccMode: current and pending; on wherever a board with vGPUs has it."""
        return [int(one) for one in modes.ecc_mode(self.state, self._with_ecc(device))]

    def device_set_ecc_mode(self, device: DeviceHandle, mode: int) -> None:
        """nvmlDeviceSetEccMode: it counts after the next reset or reboot."""
        card = self._with_ecc(device)
        if mode not in (0, 1):
            raise NvmlError(_INVALID_ARGUMENT)
        with self.change() as state:
            state.ecc[card.address] = (modes.ecc_mode(state, card)[0], bool(mode))
            if state.ecc[card.address] == (True, True):
                del state.ecc[card.address]

    def device_get_persistence_mode(self, device: DeviceHandle) -> int:
        """nvmlDeviceGetPersistenceMode: off; the lab's driver forgets nothing by it."""
        self.card(device)
        return 0

    def device_get_compute_mode(self, device: DeviceHandle) -> int:
        """nvmlDeviceGetComputeMode."""
        return modes.tuning(self.state, self.card(device)).compute_mode

    def device_set_compute_mode(self, device: DeviceHandle, mode: int) -> None:
        """nvmlDeviceSetComputeMode: not in MIG mode, which has the default alone."""
        card = self.card(device)
        if self.state.mig_mode(card)[0]:
            raise NvmlError(_NOT_SUPPORTED)
        if mode not in _COMPUTE_MODES:
            raise NvmlError(_INVALID_ARGUMENT)
        with self.change() as state:
            _keep(state, card, replace(modes.tuning(state, card), compute_mode=mode))

    def _with_memory_lock(self, device: DeviceHandle) -> CardShape:
        card = self.card(device)
        if not is_ampere_or_later(card):
            raise NvmlError(_NOT_SUPPORTED)
        return card

    def _with_ecc(self, device: DeviceHandle) -> CardShape:
        card = self.card(device)
        if not card.types:
            raise NvmlError(_NOT_SUPPORTED)
        return card


def _keep(state: State, card: CardShape, tuning: Tuning) -> None:
    state.tunings.pop(card.address, None)
    if tuning != Tuning():
        state.tunings[card.address] = tuning
