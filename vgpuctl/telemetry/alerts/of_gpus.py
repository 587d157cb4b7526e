# SPDX-License-Identifier: Apache-2.0
"""Alerts on GPUs: Xids, memory errors, heat; and the quarantine of each finding."""

from collections.abc import Iterator

from vgpuctl.model.faults import FaultId
from vgpuctl.model.health import DEFAULT_HEALTH_POLICY, HealthCode
from vgpuctl.sharing.xids import CLASSES
from vgpuctl.telemetry.alerts.alert import CRITICAL, INFO, WARNING, Alert

XID_WINDOW = "10m"
"""An alert on an Xid ends this long after the last one; one that closes its GPU ends with the quarantine."""
_GPU = "GPU {{ $labels.gpu }} of {{ $labels.host }}"


def _new(series: str, window: str) -> str:
    """An expression for a counter that rose, or that was born: `increase` alone does not see the first value.

    A series is born only if its GPU was read before it: what an exporter finds at its first reading is old. So the GPU
    was there before the window, or has more samples in it, which also tells in Prometheus' first minutes.
    """
    family, _, _labels = series.partition("{")
    fresh = f"{series} > 0 unless {family} offset {window}"
    readings = f"sum by (host, gpu) (count_over_time(vgpuctl_gpu_info[{window}]))"
    return (
        f"increase({series}[{window}]) > 0\n"
        f"or ({fresh} and on (host, gpu) vgpuctl_gpu_info offset {window})\n"
        f"or ({fresh} and count_over_time({series}[{window}]) < on (host, gpu) group_left () {readings})"
    )


def _closing(series: str, code: HealthCode) -> str:
    """An expression for a counter of what closes a GPU: it holds until the GPU is released, not only for a while."""
    quarantine = f'vgpuctl_gpu_quarantine_timestamp_seconds{{finding="{code}",share=""}}'
    return f"{_new(series, XID_WINDOW)}\nor ({series} > 0 and on (host, gpu) {quarantine} > 0)"


_XID_SEVERITIES = {
    HealthCode.XID_RESTART_APP: INFO,
    HealthCode.XID_RESTART_VM: WARNING,
    HealthCode.XID_UPDATE_SWFW: WARNING,
    HealthCode.XID_WORKFLOW_45: WARNING,
}


def _camel(text: str) -> str:
    return "".join(word.capitalize() for word in text.split("-"))


def _xid_alerts() -> Iterator[Alert]:
    """One for each class: the class decides who looks, not the number of the Xid. xid-ignore has none."""
    for code in CLASSES:
        if code is HealthCode.XID_IGNORE:
            continue
        series = f'vgpuctl_gpu_xid_total{{class="{code.removeprefix("xid-")}"}}'
        yield Alert(
            code,
            "gpus",
            f"VgpuctlGpu{_camel(code)}",
            _XID_SEVERITIES.get(code, CRITICAL),
            _new(series, XID_WINDOW) if code in DEFAULT_HEALTH_POLICY.tolerate else _closing(series, code),
            f"Xid {{{{ $labels.xid }}}} of {_GPU}",
        )


def _quarantine_alerts() -> Iterator[Alert]:
    """One for each finding that the default policy does not tolerate, until somebody releases the GPU."""
    for code in HealthCode:
        if code not in DEFAULT_HEALTH_POLICY.tolerate:
            yield Alert(
                code,
                "quarantine",
                "VgpuctlGpuQuarantined",
                WARNING,
                f'vgpuctl_gpu_quarantine_timestamp_seconds{{finding="{code}"}} > 0',
                f"{_GPU} is in quarantine: {code}",
            )


OF_GPUS = (
    *_xid_alerts(),
    Alert(
        HealthCode.GPU_MISSING,
        "gpus",
        "VgpuctlGpuMissing",
        CRITICAL,
        'vgpuctl_gpu_state{state="missing"} == 1',
        f"{_GPU} is gone from its host",
        "2m",
    ),
    Alert(
        HealthCode.RESET_REQUIRED,
        "gpus",
        "VgpuctlGpuRecoveryActionPending",
        CRITICAL,
        'vgpuctl_gpu_recovery_action{action!="none"} == 1',
        f"The driver asks for {{{{ $labels.action }}}} of {_GPU}",
        "2m",
    ),
    Alert(
        HealthCode.ROW_REMAP_PENDING,
        "gpus",
        "VgpuctlGpuRowRemapPending",
        WARNING,
        "vgpuctl_gpu_row_remap_pending == 1",
        f"{_GPU} waits for a reset to use a spare memory row",
        "5m",
    ),
    Alert(
        HealthCode.ROW_REMAP_FAILED,
        "gpus",
        "VgpuctlGpuRowRemapFailed",
        CRITICAL,
        "vgpuctl_gpu_row_remap_failed == 1",
        f"{_GPU} has no spare memory row left",
        "5m",
    ),
    Alert(
        FaultId.SRAM_THRESHOLD,
        "gpus",
        "VgpuctlGpuSramThreshold",
        CRITICAL,
        "vgpuctl_gpu_sram_threshold_exceeded == 1",
        f"{_GPU} has more SRAM errors than NVIDIA accepts",
        "5m",
    ),
    Alert(
        HealthCode.ECC_UNCORRECTED,
        "gpus",
        "VgpuctlGpuEccUncorrected",
        CRITICAL,
        'increase(vgpuctl_gpu_ecc_errors_total{severity="uncorrected"}[15m]) > 0',
        f"{_GPU} has new uncorrected memory errors",
    ),
    Alert(
        FaultId.THERMAL_SLOWDOWN,
        "gpus",
        "VgpuctlGpuThermalSlowdown",
        WARNING,
        "vgpuctl_gpu_slowdown_temperature_celsius - vgpuctl_gpu_temperature_celsius < 3\n"
        'or on (host, gpu) vgpuctl_gpu_clock_event{reason=~"hw_thermal|sw_thermal"} == 1',
        f"{_GPU} is too hot for its full clocks",
        "5m",
        "5m",
    ),
)
OF_QUARANTINES: tuple[Alert, ...] = tuple(_quarantine_alerts())
