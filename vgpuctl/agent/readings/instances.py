# SPDX-License-Identifier: Apache-2.0
"""Readings of the MIG instances of one GPU: framebuffer by NVML, utilization by GPM (telemetry reference 2.5).

NVML tells no utilization of a GPU in MIG mode. GPM does, from Hopper on, between two samples that are at least 100 ms
apart. The first one is taken before everything else of the host is read, so that nobody waits long for the second.
"""

from typing import Any, Dict, List, Optional, Tuple

from vgpuctl.agent.facts import nvml_mig
from vgpuctl.agent.host import Host
from vgpuctl.agent.nvml import Nvml
from vgpuctl.agent.readings import scheduler
from vgpuctl.agent.readings.recorder import Recorder
from vgpuctl.agent.wire.measures import INSTANCE
from vgpuctl.agent.wire.readings import InstanceReadings

# Between the two samples; NVML wants more than 100 ms.
APART_S = 0.12
_PERCENT = 100
# NVML_GPM_METRIC_*
_METRICS = (
    ("utilization_ratio", 1),
    ("sm_activity_ratio", 2),
    ("sm_occupancy_ratio", 3),
    ("tensor_activity_ratio", 5),
    ("memory_activity_ratio", 10),
)
_GPM = " ".join(name for name, _ in _METRICS)
_FRAMEBUFFER = "framebuffer_size_bytes framebuffer_used_bytes"


class Instances:
    """The MIG instances of one GPU while it is read. slices: compute slices by instance; all_slices: of the GPU."""

    def __init__(self, nvml: Nvml, device: Any) -> None:
        """Read which instances there are. Raises NVMLError for a GPU that is lost."""
        self._nvml = nvml
        self._device = device
        noted: List[str] = []
        mode = nvml.part(noted.append, "its MIG mode", lambda: nvml_mig.read_mode(nvml, device), None)
        self.is_on = mode is not None and mode[0]
        self.slices: Dict[int, int] = {}
        self.all_slices = 0
        self.problems: Tuple[str, ...] = tuple(noted)
        self.utilizations: Dict[int, float] = {}
        self.policies: Dict[int, Optional[str]] = {}
        self.why_no_gpm: Optional[str] = None
        self._found: Tuple[nvml_mig.NvmlInstance, ...] = ()
        self._samples: Dict[int, Tuple[Any, float]] = {}
        self._taken_at_s = 0.0
        self.has_gpm = False
        if self.is_on:
            self._read_instances()

    def _read_instances(self) -> None:
        noted: List[str] = []
        profiles = nvml_mig.read_profiles(self._nvml, self._device, noted.append)
        self._found, unread = nvml_mig.read_instances(self._nvml, self._device, profiles)
        self.problems = (*noted, *unread)
        by_name = {one.name: one.compute_slices for one in profiles}
        self.slices = {one.id: by_name.get(one.profile, 0) for one in self._found}
        self.all_slices = max(by_name.values(), default=0)

    def take_first(self, host: Host) -> None:
        """Take the first sample of each instance."""
        library = self._nvml.library
        if not self.is_on:
            return
        try:
            self.has_gpm = bool(library.nvmlGpmQueryDeviceSupport(self._device).isSupportedDevice)
        except library.NVMLError as error:
            self.why_no_gpm = f"NVML tells no GPM of this GPU: {error} (NVML {error.value})"
            return
        if not self.has_gpm:
            self.why_no_gpm = "NVML tells no utilization of GPUs in MIG mode, and boards before Hopper have no GPM"
            return
        for one in self._found:
            sample = self._nvml.if_possible(lambda: self._sample(one.id))  # noqa: B023 - called at once
            if sample is not None:
                self._samples[one.id] = (sample, host.monotonic())

    def read(self, host: Host, address: str) -> List[InstanceReadings]:
        """Return the readings of every instance. Waits until the second sample can be taken."""
        sizes = self._framebuffers()
        found = []
        for one in self._found:
            recorder = Recorder(INSTANCE, self._nvml.library)
            self._record_gpm(host, recorder, one.id)
            size = sizes.get(one.id)
            if size is None:
                recorder.lacks(
                    _FRAMEBUFFER, "NVML tells it of MIG devices, and the instance has no compute instance on the host"
                )
            else:
                recorder.add("framebuffer_size_bytes", size[0])
                recorder.add("framebuffer_used_bytes", size[1])
            scheduler.read_instance(recorder, self._nvml.library, self._device, one.id)
            measured = recorder.measured()
            self.policies[one.id] = measured.label("scheduler_policy")
            used = measured.get("utilization_ratio")
            if used is not None:
                self.utilizations[one.id] = used
            found.append(InstanceReadings(address, one.id, one.profile, measured))
        return found

    def utilization(self) -> Optional[float]:
        """Return the utilization of the whole GPU, None if that of an instance is missing."""
        if not self.all_slices or not self._found or set(self.utilizations) != {one.id for one in self._found}:
            return None
        return sum(self.utilizations[number] * self.slices[number] for number in self.utilizations) / self.all_slices

    def _record_gpm(self, host: Host, found: Recorder, number: int) -> None:
        if self.why_no_gpm is not None:
            found.lacks(_GPM, self.why_no_gpm)
            return
        first = self._samples.pop(number, None)
        if first is None:
            found.unread(_GPM, "GPM gave no sample of the instance")
            return
        library = self._nvml.library
        left_s = first[1] + APART_S - host.monotonic()
        if left_s > 0:
            host.wait(left_s)

        def metrics() -> None:
            second = self._sample(number)
            try:
                answer = library.c_nvmlGpmMetricsGet_t()
                answer.version = library.NVML_GPM_METRICS_GET_VERSION
                answer.numMetrics = len(_METRICS)
                answer.sample1, answer.sample2 = first[0], second
                for place, (_, metric) in enumerate(_METRICS):
                    answer.metrics[place].metricId = metric
                library.nvmlGpmMetricsGet(answer)
                for place, (name, _) in enumerate(_METRICS):
                    self._record_metric(found, name, answer.metrics[place])
            finally:
                self._free(second)

        found.ask(_GPM, metrics)
        self._free(first[0])

    def _record_metric(self, found: Recorder, name: str, metric: Any) -> None:
        code = int(metric.nvmlReturn)
        if code == self._nvml.library.NVML_SUCCESS and 0 <= metric.value < float("inf"):
            found.add(name, metric.value / _PERCENT)
        elif code == self._nvml.library.NVML_ERROR_NOT_SUPPORTED:
            found.lacks(name, f"GPM does not have it here (NVML {code})")
        else:
            found.unread(name, f"GPM did not tell it (NVML {code})")

    def _sample(self, number: int) -> Any:
        """Take a sample of an instance. Raises NVMLError."""
        library = self._nvml.library
        sample = library.nvmlGpmSampleAlloc()
        try:
            library.nvmlGpmMigSampleGet(self._device, number, sample)
        except library.NVMLError:
            self._free(sample)
            raise
        return sample

    def _free(self, sample: Any) -> None:
        self._nvml.if_possible(lambda: self._nvml.library.nvmlGpmSampleFree(sample))

    def _framebuffers(self) -> Dict[int, Tuple[int, int]]:
        """Return (total, used) bytes by instance, of those with a MIG device: a compute instance on the host."""
        library, nvml = self._nvml.library, self._nvml
        found: Dict[int, Tuple[int, int]] = {}
        count = nvml.if_possible(lambda: library.nvmlDeviceGetMaxMigDeviceCount(self._device)) or 0
        for index in range(int(count) if self._found else 0):
            try:
                part = library.nvmlDeviceGetMigDeviceHandleByIndex(self._device, index)
                number = int(library.nvmlDeviceGetGpuInstanceId(part))
                memory = library.nvmlDeviceGetMemoryInfo(part)
            except library.NVMLError:
                continue
            found.setdefault(number, (int(memory.total), int(memory.used)))
        return found
