# SPDX-License-Identifier: Apache-2.0
"""The simulated NVML's GPM: samples of GPU instances, from Hopper on (telemetry reference 2.5)."""

from types import SimpleNamespace
from typing import Any

from vgpuctl_lab.simulated.machine.nvml_session import DeviceHandle, Session
from vgpuctl_lab.simulated.machine.nvml_values import CONSTANTS, NvmlError
from vgpuctl_lab.simulated.machine.readings import is_hopper_or_later

_INVALID_ARGUMENT = CONSTANTS["NVML_ERROR_INVALID_ARGUMENT"]
_NOT_SUPPORTED = CONSTANTS["NVML_ERROR_NOT_SUPPORTED"]
# NVML_GPM_METRIC_*, as far as it is played.
_METRICS = {
    1: "utilization_ratio",
    2: "sm_activity_ratio",
    3: "sm_occupancy_ratio",
    5: "tensor_activity_ratio",
    10: "memory_activity_ratio",
}
# Of the utilization, where no curve plays a metric.
_PARTS = {2: 0.8, 3: 0.4, 5: 0.3, 10: 0.5}
_APART_US = 100_000


class GpmFunctions(Session):
    """GPM of GPU instances. A sample is what the instance's sensors say at its moment."""

    def gpm_query_device_support(self, device: DeviceHandle) -> SimpleNamespace:
        """nvmlGpmQueryDeviceSupport."""
        return SimpleNamespace(isSupportedDevice=int(is_hopper_or_later(self.card(device))))

    def gpm_sample_alloc(self) -> SimpleNamespace:
        """nvmlGpmSampleAlloc."""
        return SimpleNamespace(values=None, at_us=0)

    def gpm_sample_free(self, sample: SimpleNamespace) -> None:
        """nvmlGpmSampleFree."""
        if sample.values is None and not sample.at_us:
            return
        sample.values, sample.at_us = None, 0

    def gpm_mig_sample_get(self, device: DeviceHandle, number: int, sample: SimpleNamespace) -> SimpleNamespace:
        """nvmlGpmMigSampleGet of one GPU instance."""
        card = self.card(device)
        if not is_hopper_or_later(card) or not self.state.mig_mode(card)[0]:
            raise NvmlError(_NOT_SUPPORTED)
        instance = next((one for one in self.state.instances_of(card) if one.id == number), None)
        if instance is None:
            raise NvmlError(_INVALID_ARGUMENT)
        sensors = self.sensors()
        used = sensors.instance_share(instance)
        values = {1: used}
        for metric, part in _PARTS.items():
            told = sensors.of_instance(instance, _METRICS[metric])
            values[metric] = used * part if told is None else told
        sample.values, sample.at_us = values, round(sensors.now * 1e6)
        return sample

    def gpm_metrics_get(self, wanted: Any) -> Any:
        """nvmlGpmMetricsGet: between two samples of an instance that are more than 100 ms apart."""
        first, second = wanted.sample1, wanted.sample2
        if first is None or second is None or first.values is None or second.values is None:
            raise NvmlError(_INVALID_ARGUMENT)
        if second.at_us - first.at_us < _APART_US:
            raise NvmlError(_INVALID_ARGUMENT)
        for metric in wanted.metrics[: wanted.numMetrics]:
            known = metric.metricId in _METRICS
            metric.nvmlReturn = 0 if known else _NOT_SUPPORTED
            if known:
                metric.value = (first.values[metric.metricId] + second.values[metric.metricId]) / 2 * 100
        return wanted
