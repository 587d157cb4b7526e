# SPDX-License-Identifier: Apache-2.0
"""Readings of a GPU's vGPU scheduler: policy, mode, time slice, and run times by runlist (telemetry reference 2.3)."""

from typing import Any, Dict

from vgpuctl.agent.readings.recorder import Recorder
from vgpuctl.agent.wire.measure_states import ARR_MODES, POLICIES, UNKNOWN

_NANO = 1_000_000_000
_STATE = "scheduler_policy scheduler_arr scheduler_time_slice_seconds"
_LOG = "scheduler_run_seconds scheduler_preempted_seconds"
_RUNLISTS_AT_MOST = 64


def read(found: Recorder, library: Any, device: Any) -> None:
    """Record the scheduler's state and, by runlist, the newest totals of its log.

    The entries of the log hold totals since the driver's start, so a reader that is slow loses none of the time.
    """

    def state() -> None:
        answer = library.nvmlDeviceGetVgpuSchedulerState(device)
        names = {number: name for name, number in POLICIES.items()}
        found.add_states("scheduler_policy", (*POLICIES, UNKNOWN), names.get(int(answer.schedulerPolicy), UNKNOWN))
        mode = int(answer.arrMode)
        now = ARR_MODES[mode] if mode < len(ARR_MODES) else UNKNOWN
        found.add_states("scheduler_arr", (*ARR_MODES, UNKNOWN), now)
        is_off = now == "off"
        parameters = answer.schedulerParams
        chosen = parameters.vgpuSchedData if is_off else parameters.vgpuSchedDataWithARR
        found.add("scheduler_time_slice_seconds", int(chosen.timeslice) / _NANO)

    def log() -> None:
        answer = library.nvmlDeviceGetVgpuSchedulerLog(device)
        newest: Dict[int, Any] = {}
        for entry in answer.logEntries[: answer.entriesCount]:
            before = newest.get(int(entry.swRunlistId))
            if before is None or entry.timestamp >= before.timestamp:
                newest[int(entry.swRunlistId)] = entry
        for number in sorted(newest)[:_RUNLISTS_AT_MOST]:
            found.add("scheduler_run_seconds", newest[number].timeRunTotal / _NANO, str(number))
            found.add("scheduler_preempted_seconds", newest[number].cumulativePreemptionTime / _NANO, str(number))

    found.ask(_STATE, state)
    found.ask(_LOG, log)
