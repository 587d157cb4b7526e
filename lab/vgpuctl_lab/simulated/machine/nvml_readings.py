# SPDX-License-Identifier: Apache-2.0
"""The simulated NVML's sensors and error counters of GPUs (telemetry reference 2.4)."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from vgpuctl_lab.simulated.machine.nvml_links import LinkFunctions
from vgpuctl_lab.simulated.machine.nvml_session import DeviceHandle
from vgpuctl_lab.simulated.machine.nvml_tuning import TuningFunctions
from vgpuctl_lab.simulated.machine.nvml_values import CONSTANTS, NvmlError
from vgpuctl_lab.simulated.machine.readings import is_ampere_or_later, remapped_rows
from vgpuctl_lab.simulated.machine.shape import CardShape

_INVALID_ARGUMENT = CONSTANTS["NVML_ERROR_INVALID_ARGUMENT"]
_NOT_SUPPORTED = CONSTANTS["NVML_ERROR_NOT_SUPPORTED"]
_UNSIGNED, _UNSIGNED_64 = 1, 3
_SAMPLE_US = 166_000
_CORRECTED, _UNCORRECTED = 0, 1
_SEVERITIES = {_CORRECTED: "corrected", _UNCORRECTED: "uncorrected"}


class ReadingFunctions(LinkFunctions, TuningFunctions):
    """Sensors and counters of the machine's cards."""

    def device_get_utilization_rates(self, device: DeviceHandle) -> SimpleNamespace:
        """nvmlDeviceGetUtilizationRates: not to be had of a card in MIG mode."""
        card, sensors = self._whole(device), self.sensors()
        return SimpleNamespace(
            gpu=_percent(sensors.gpu_share(card)), memory=_percent(sensors.gpu_share(card, "memory_activity_ratio"))
        )

    def device_get_encoder_utilization(self, device: DeviceHandle) -> list[int]:
        """nvmlDeviceGetEncoderUtilization, with its sample period in µs."""
        return [_percent(self.sensors().gpu_share(self._whole(device), "encoder_utilization_ratio")), _SAMPLE_US]

    def device_get_decoder_utilization(self, device: DeviceHandle) -> list[int]:
        """nvmlDeviceGetDecoderUtilization."""
        return [_percent(self.sensors().gpu_share(self._whole(device), "decoder_utilization_ratio")), _SAMPLE_US]

    def device_get_jpg_utilization(self, device: DeviceHandle) -> list[int]:
        """nvmlDeviceGetJpgUtilization: from Ampere on."""
        card = self._ampere(self._whole(device))
        return [_percent(self.sensors().gpu_share(card, "jpeg_utilization_ratio")), _SAMPLE_US]

    def device_get_ofa_utilization(self, device: DeviceHandle) -> list[int]:
        """nvmlDeviceGetOfaUtilization: from Ampere on."""
        card = self._ampere(self._whole(device))
        return [_percent(self.sensors().gpu_share(card, "ofa_utilization_ratio")), _SAMPLE_US]

    def device_get_power_usage(self, device: DeviceHandle) -> int:
        """nvmlDeviceGetPowerUsage, in mW."""
        return self.had(round(self.sensors().power_w(self.card(device)) * 1000) or None)

    def device_get_total_energy_consumption(self, device: DeviceHandle) -> int:
        """nvmlDeviceGetTotalEnergyConsumption, in mJ since the driver was loaded."""
        card = self.card(device)
        self.had(card.power_w or None)
        return round(self.sensors().energy_j(card) * 1000)

    def device_get_temperature(self, device: DeviceHandle, sensor: int) -> int:
        """nvmlDeviceGetTemperature, in degrees Celsius."""
        if sensor != CONSTANTS["NVML_TEMPERATURE_GPU"]:
            raise NvmlError(_INVALID_ARGUMENT)
        return self.sensors().temperature_c(self.card(device))

    def device_get_temperature_threshold(self, device: DeviceHandle, threshold: int) -> int:
        """nvmlDeviceGetTemperatureThreshold: only that of the slowdown is played."""
        card = self.card(device)
        if threshold != CONSTANTS["NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"]:
            raise NvmlError(_NOT_SUPPORTED)
        return self.sensors().slowdown_c(card)

    def device_get_margin_temperature(self, device: DeviceHandle) -> int:
        """nvmlDeviceGetMarginTemperature: the distance to the slowdown, below 0 beyond it."""
        card, sensors = self.card(device), self.sensors()
        return sensors.slowdown_c(card) - sensors.temperature_c(card)

    def device_get_clock_info(self, device: DeviceHandle, clock: int) -> int:
        """nvmlDeviceGetClockInfo, in MHz."""
        card, sensors = self.card(device), self.sensors()
        if clock == CONSTANTS["NVML_CLOCK_SM"]:
            return sensors.sm_clock_mhz(card)
        if clock == CONSTANTS["NVML_CLOCK_MEM"]:
            return sensors.memory_clock_mhz(card)
        raise NvmlError(_INVALID_ARGUMENT)

    def device_get_current_clocks_event_reasons(self, device: DeviceHandle) -> int:
        """nvmlDeviceGetCurrentClocksEventReasons."""
        return self.sensors().clock_events(self.card(device))

    def device_get_current_clocks_throttle_reasons(self, device: DeviceHandle) -> int:
        """nvmlDeviceGetCurrentClocksThrottleReasons: the name of older drivers."""
        return self.device_get_current_clocks_event_reasons(device)

    def device_get_total_ecc_errors(self, device: DeviceHandle, error_type: int, counter: int) -> int:
        """nvmlDeviceGetTotalEccErrors: those of the fault `ecc` are uncorrected (1)."""
        if error_type not in _SEVERITIES or counter not in (0, 1):
            raise NvmlError(_INVALID_ARGUMENT)
        return self.sensors().ecc_errors(self._with_ecc(device), _SEVERITIES[error_type])

    def device_get_remapped_rows(self, device: DeviceHandle) -> tuple[int, int, int, int]:
        """nvmlDeviceGetRemappedRows: Ampere and later, and not while MIG instances exist."""
        card = self.card(device)
        if self.state.instances_of(card):
            raise NvmlError(_NOT_SUPPORTED)
        sensors = self.sensors()
        corrected, uncorrected, pending, failed = self.had(remapped_rows(self.state, card))
        played = sensors.labels_of_gpu(card, "remapped_rows")
        return (
            int(played.get("corrected", corrected)),
            int(played.get("uncorrected", uncorrected)),
            int(_played(sensors.of_gpu(card, "row_remap_pending"), pending)),
            int(_played(sensors.of_gpu(card, "row_remap_failed"), failed)),
        )

    def device_get_sram_ecc_error_status(self, device: DeviceHandle, status: Any) -> int:
        """nvmlDeviceGetSramEccErrorStatus."""
        card = self._ampere(self._with_ecc(device))
        told = self.sensors().of_gpu(card, "sram_threshold_exceeded")
        status._obj.bThresholdExceeded = _played(told, 0)
        return 0

    def device_get_repair_status(self, device: DeviceHandle) -> list[int]:
        """nvmlDeviceGetRepairStatus: of channels and TPCs."""
        card = self._ampere(self.card(device))
        played = self.sensors().labels_of_gpu(card, "repair_pending")
        return [int(played.get(unit, 0) >= 0.5) for unit in ("channel", "tpc")]

    def device_get_pcie_replay_counter(self, device: DeviceHandle) -> int:
        """nvmlDeviceGetPcieReplayCounter."""
        return int(self.sensors().of_gpu(self.card(device), "pcie_replays") or 0)

    def device_get_field_values(self, device: DeviceHandle, fields: Sequence[tuple[int, int]]) -> list[SimpleNamespace]:
        """nvmlDeviceGetFieldValues: each field has its own return code."""
        card = self.card(device)
        found = []
        for number, scope in fields:
            value = self._field(card, number, scope)
            kind = _UNSIGNED_64 if number in _WIDE_FIELDS else _UNSIGNED
            found.append(
                SimpleNamespace(
                    fieldId=number,
                    scopeId=scope,
                    nvmlReturn=0 if value is not None else _NOT_SUPPORTED,
                    valueType=kind,
                    value=SimpleNamespace(uiVal=value or 0, ullVal=value or 0),
                )
            )
        return found

    def _field(self, card: CardShape, number: int, scope: int) -> int | None:
        sensors = self.sensors()
        if number == CONSTANTS["NVML_FI_DEV_MEMORY_TEMP"]:
            return sensors.memory_temperature_c(card)
        if number == CONSTANTS["NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"]:
            return sensors.recovery_action(card)
        if number in _LINK_BYTES and scope == _ALL_LINKS:
            told = self.link_bytes(card, _LINK_BYTES[number])
            return None if told is None else told // 1024
        return None

    def _whole(self, device: DeviceHandle) -> CardShape:
        """A card whose engines are not divided."""
        card = self.card(device)
        if self.state.mig_mode(card)[0]:
            raise NvmlError(_NOT_SUPPORTED)
        return card

    @staticmethod
    def _ampere(card: CardShape) -> CardShape:
        if not is_ampere_or_later(card):
            raise NvmlError(_NOT_SUPPORTED)
        return card


_LINK_BYTES = {
    CONSTANTS["NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX"]: "tx",
    CONSTANTS["NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX"]: "rx",
}
_WIDE_FIELDS = tuple(_LINK_BYTES)
_ALL_LINKS = 0xFFFFFFFF


def _percent(share: float) -> int:
    return round(share * 100)


def _played(told: float | None, otherwise: int) -> int:
    """A flag by its curve, else by the machine's state."""
    return otherwise if told is None else int(told >= 0.5)
