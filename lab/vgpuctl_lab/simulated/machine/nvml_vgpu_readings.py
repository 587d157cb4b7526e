# SPDX-License-Identifier: Apache-2.0
"""The simulated NVML's readings of running vGPUs (telemetry reference 2.1, 2.2, 2.3)."""

import time
from types import SimpleNamespace
from typing import Any

from vgpuctl.agent.wire.measure_states import LICENSE_STATES
from vgpuctl_lab.simulated.machine import modes
from vgpuctl_lab.simulated.machine.nvml_session import DeviceHandle
from vgpuctl_lab.simulated.machine.nvml_values import CONSTANTS, InstanceHandle, NvmlError
from vgpuctl_lab.simulated.machine.nvml_vgpus import VgpuFunctions, newer_scheduler_state, number_of
from vgpuctl_lab.simulated.machine.shape import CardShape

_NOT_SUPPORTED = CONSTANTS["NVML_ERROR_NOT_SUPPORTED"]
_NOT_FOUND = CONSTANTS["NVML_ERROR_NOT_FOUND"]
_ENGINES = {
    "smUtil": "utilization_ratio",
    "memUtil": "memory_activity_ratio",
    "encUtil": "encoder_utilization_ratio",
    "decUtil": "decoder_utilization_ratio",
}
_NEWER_ENGINES = {**_ENGINES, "jpgUtil": "jpeg_utilization_ratio", "ofaUtil": "ofa_utilization_ratio"}
GUEST_DRIVER = "580.95.05"
_LICENSED = LICENSE_STATES.index("licensed")
_EXPIRY_NOT_AVAILABLE, _EXPIRY_VALID = 0, 2
_LEASE_S = 86_400
_SLICE_NS = 2_000_000
# Of the time that neighbours run.
_PREEMPTED_PART = 0.05


class VgpuReadingFunctions(VgpuFunctions):
    """Readings of the vGPUs of running VMs."""

    def device_get_vgpu_instances_utilization_info(self, device: DeviceHandle, _since_us: int) -> list[SimpleNamespace]:
        """nvmlDeviceGetVgpuInstancesUtilizationInfo: one sample of each running vGPU."""
        return self._samples(device, _NEWER_ENGINES)

    def device_get_vgpu_utilization(self, device: DeviceHandle, _since_us: int) -> list[SimpleNamespace]:
        """nvmlDeviceGetVgpuUtilization: without JPEG and OFA."""
        return self._samples(device, _ENGINES)

    def device_get_vgpu_scheduler_log(self, device: DeviceHandle) -> SimpleNamespace:
        """nvmlDeviceGetVgpuSchedulerLog: an entry for the runlist of each running vGPU, with its totals."""
        return self._device_log(device)

    def device_get_vgpu_scheduler_log_v2(self, device: DeviceHandle, _wanted: Any) -> SimpleNamespace:
        """nvmlDeviceGetVgpuSchedulerLog_v2."""
        return self._device_log(device)

    def gpu_instance_get_vgpu_scheduler_state(self, handle: InstanceHandle, _wanted: Any) -> SimpleNamespace:
        """nvmlGpuInstanceGetVgpuSchedulerState, of an instance that several vGPUs can share."""
        return self.scheduler_state(self._shared(handle))

    def gpu_instance_get_vgpu_scheduler_state_v2(self, handle: InstanceHandle, _wanted: Any) -> SimpleNamespace:
        """nvmlGpuInstanceGetVgpuSchedulerState_v2."""
        return newer_scheduler_state(self.scheduler_state(self._shared(handle)))

    def gpu_instance_get_vgpu_scheduler_log(self, handle: InstanceHandle, _wanted: Any) -> SimpleNamespace:
        """nvmlGpuInstanceGetVgpuSchedulerLog, of the instance's vGPUs."""
        return self._scheduler_log(self._shared(handle), int(handle.instance))

    def gpu_instance_get_vgpu_scheduler_log_v2(self, handle: InstanceHandle, _wanted: Any) -> SimpleNamespace:
        """nvmlGpuInstanceGetVgpuSchedulerLog_v2."""
        return self._scheduler_log(self._shared(handle), int(handle.instance))

    def _device_log(self, device: DeviceHandle) -> SimpleNamespace:
        card = self.card(device)
        if not card.types or self.state.mig_mode(card)[0]:
            raise NvmlError(_NOT_SUPPORTED)
        return self._scheduler_log(card, None)

    def _shared(self, handle: InstanceHandle) -> CardShape:
        """The card of a GPU instance that several vGPUs can share; Not Supported for another instance."""
        card, one = self.card_of_instance(handle), self.instance(self.state, handle)
        if not any(each.gi_profile == one.profile_id and each.max_per_instance > 1 for each in card.types):
            raise NvmlError(_NOT_SUPPORTED)
        return card

    def _scheduler_log(self, card: CardShape, instance: int | None) -> SimpleNamespace:
        sensors = self.sensors()
        running = [
            vgpu
            for vgpu in self.state.vgpus_of(card)
            if self.state.holder_of(vgpu) is not None and vgpu.instance == instance
        ]
        times_s = [sensors.vgpu_run_s(vgpu) for vgpu in running]
        entries = []
        for number, run_s in enumerate(times_s):
            waited_s = sensors.labels_of_gpu(card, "scheduler_preempted_seconds").get(str(number))
            if waited_s is None:
                waited_s = (sum(times_s) - run_s) * _PREEMPTED_PART
            entries.append(
                SimpleNamespace(
                    timestamp=round(sensors.now * 1e9),
                    timeRunTotal=round(run_s * 1e9),
                    timeRun=min(round(run_s * 1e9), _SLICE_NS),
                    swRunlistId=number,
                    targetTimeSlice=_SLICE_NS,
                    cumulativePreemptionTime=round(waited_s * 1e9),
                )
            )
        return SimpleNamespace(entriesCount=len(entries), logEntries=entries)

    def vgpu_instance_get_fb_usage(self, number: int) -> int:
        """nvmlVgpuInstanceGetFbUsage, in bytes: a guest without load holds little."""
        vgpu = self.running(number)
        return self.sensors().vgpu_framebuffer(vgpu, self.type(vgpu.type_id).framebuffer_mib)

    def vgpu_instance_get_encoder_stats(self, number: int) -> tuple[int, int, int]:
        """nvmlVgpuInstanceGetEncoderStats: sessions, mean frames a second, mean latency in µs."""
        vgpu, sensors = self.running(number), self.sensors()
        sessions = sensors.of_vgpu(vgpu, "encoder_sessions") or 0
        frames = sensors.of_vgpu(vgpu, "encoder_frame_rate_hertz") or 0
        latency_s = sensors.of_vgpu(vgpu, "encoder_latency_seconds") or 0
        return round(sessions), round(frames), round(latency_s * 1e6)

    def vgpu_instance_get_encoder_capacity(self, number: int) -> int:
        """nvmlVgpuInstanceGetEncoderCapacity, in per cent."""
        told = self.sensors().of_vgpu(self.running(number), "encoder_capacity_ratio")
        return 100 if told is None else round(told * 100)

    def vgpu_instance_get_frame_rate_limit(self, number: int) -> int:
        """nvmlVgpuInstanceGetFrameRateLimit: 0 where the scheduler is equal or fixed share."""
        vgpu = self.running(number)
        card = next(one for one in self.machine.shape.cards if one.address == vgpu.card)
        if modes.scheduler(self.state, card).policy != modes.BEST_EFFORT:
            return 0
        told = self.sensors().of_vgpu(vgpu, "frame_rate_limit_hertz")
        return 60 if told is None else round(told)

    def vgpu_instance_get_vm_driver_version(self, number: int) -> str:
        """nvmlVgpuInstanceGetVmDriverVersion."""
        played = self.sensors().labels_of_vgpu(self.running(number), "guest_driver_info")
        return next((version for version, value in played.items() if value >= 0.5), GUEST_DRIVER)

    def vgpu_instance_get_license_info_v2(self, number: int) -> SimpleNamespace:
        """nvmlVgpuInstanceGetLicenseInfo_v2: curves first, then the guest's licence from a licence server.

        Without both it is licensed for a day, always renewed.
        """
        vgpu, sensors = self.running(number), self.sensors()
        played = sensors.labels_of_vgpu(vgpu, "license_state")
        state = next((LICENSE_STATES.index(name) for name, value in played.items() if value >= 0.5), _LICENSED)
        told = sensors.of_vgpu(vgpu, "license_expiry_timestamp_seconds")
        domain = self.state.domains[self.state.holder_of(vgpu) or ""]
        if domain.licence is not None and not played:
            state = LICENSE_STATES.index(domain.licence.state(sensors.now, domain.started_at))
            told = domain.licence.expires_at
        end = time.gmtime(sensors.now // 3600 * 3600 + _LEASE_S if told is None else told)
        return SimpleNamespace(
            isLicensed=int(state == _LICENSED),
            currentState=state,
            licenseExpiry=SimpleNamespace(
                year=end.tm_year,
                month=end.tm_mon,
                day=end.tm_mday,
                hour=end.tm_hour,
                min=end.tm_min,
                sec=end.tm_sec,
                status=_EXPIRY_VALID if state == _LICENSED else _EXPIRY_NOT_AVAILABLE,
            ),
        )

    def vgpu_instance_get_gpu_pci_id(self, number: int) -> str:
        """nvmlVgpuInstanceGetGpuPciId: where the guest has the vGPU."""
        vgpu = self.running(number)
        mine = [one for one in self.state.vgpus if self.state.holder_of(one) == self.state.holder_of(vgpu)]
        return f"00000000:{mine.index(vgpu) + 1:02X}:00.0"

    def _samples(self, device: DeviceHandle, engines: dict[str, str]) -> list[SimpleNamespace]:
        card, sensors = self.card(device), self.sensors()
        if not card.types or self.state.mig_mode(card)[0]:
            raise NvmlError(_NOT_SUPPORTED)
        running = [vgpu for vgpu in self.state.vgpus_of(card) if self.state.holder_of(vgpu) is not None]
        now_us = round(sensors.now * 1e6)
        return [
            SimpleNamespace(
                timeStamp=now_us,
                vgpuInstance=number_of(vgpu),
                **{
                    member: SimpleNamespace(uiVal=round(sensors.vgpu_share(vgpu, measure) * 100))
                    for member, measure in engines.items()
                },
            )
            for vgpu in running
        ]
