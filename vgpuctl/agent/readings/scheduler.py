# SPDX-License-Identifier: Apache-2.0
"""Readings of the vGPU scheduler of a GPU or GPU instance: policy, mode, time slice, run times by runlist.

Source: telemetry reference 2.3.
"""

from typing import Any, Callable, Dict, Sequence

from vgpuctl.agent import nvml_scheduler
from vgpuctl.agent.nvml_scheduler import SchedulerState
from vgpuctl.agent.readings.recorder import Recorder
from vgpuctl.agent.wire.measure_states import ARR_MODES, POLICIES, UNKNOWN

_NANO = 1_000_000_000
STATE = "scheduler_policy scheduler_arr scheduler_time_slice_seconds"
LOG = "scheduler_run_seconds scheduler_preempted_seconds"
_RUNLISTS_AT_MOST = 64


def read(found: Recorder, library: Any, device: Any) -> None:
    """Record the state and log of a GPU's scheduler."""
    _record(
        found,
        lambda: nvml_scheduler.device_state(library, device),
        lambda: nvml_scheduler.device_log(library, device),
    )


def read_instance(found: Recorder, library: Any, device: Any, number: int) -> None:
    """Record the state and log of the scheduler of a GPU instance: its vGPUs share the instance's time."""

    def instance() -> Any:
        return library.nvmlDeviceGetGpuInstanceById(device, number)

    _record(
        found,
        lambda: nvml_scheduler.instance_state(library, instance()),
        lambda: nvml_scheduler.instance_log(library, instance()),
    )


def _record(found: Recorder, read_state: Callable[[], SchedulerState], read_log: Callable[[], Sequence[Any]]) -> None:
    """Record the scheduler's state and, by runlist, the newest totals of its log.

    The entries of the log hold totals since the driver's start, so a reader that is slow loses none of the time.
    """

    def state() -> None:
        answer = read_state()
        names = {number: name for name, number in POLICIES.items()}
        found.add_states("scheduler_policy", (*POLICIES, UNKNOWN), names.get(answer.policy, UNKNOWN))
        if answer.arr is None:
            found.lacks("scheduler_arr", "this driver has only the newer call, which does not tell the mode")
        else:
            now = ARR_MODES[answer.arr] if answer.arr < len(ARR_MODES) else UNKNOWN
            found.add_states("scheduler_arr", (*ARR_MODES, UNKNOWN), now)
        found.add("scheduler_time_slice_seconds", answer.time_slice_ns / _NANO)

    def log() -> None:
        newest: Dict[int, Any] = {}
        for entry in read_log():
            before = newest.get(int(entry.swRunlistId))
            if before is None or entry.timestamp >= before.timestamp:
                newest[int(entry.swRunlistId)] = entry
        for number in sorted(newest)[:_RUNLISTS_AT_MOST]:
            found.add("scheduler_run_seconds", newest[number].timeRunTotal / _NANO, str(number))
            found.add("scheduler_preempted_seconds", newest[number].cumulativePreemptionTime / _NANO, str(number))

    found.ask(STATE, state)
    found.ask(LOG, log)
