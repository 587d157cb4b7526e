# SPDX-License-Identifier: Apache-2.0
"""The cases of alerts on GPUs: Xids, quarantines, memory, temperature."""

from collections.abc import Iterator

from vgpuctl.model.faults import FaultId
from vgpuctl.model.health import DEFAULT_HEALTH_POLICY, HealthCode
from vgpuctl.sharing.xids import CLASSES
from vgpuctl.telemetry.alert_case import GPU, KNOWN, PULSE, AlertCase, series, state, steps
from vgpuctl.telemetry.alerts import ALERTS


def _xid_cases() -> Iterator[AlertCase]:
    names = {one.fault: one.name for one in ALERTS if one.group == "gpus"}
    for code, numbers in CLASSES.items():
        if code not in names:
            continue
        labels = {**GPU, "xid": str(min(numbers)), "class": code.removeprefix("xid-")}
        yield AlertCase(
            names[code],
            f"the first Xid {min(numbers)} of a boot fires, and clears though its counter stays",
            {series("vgpuctl_gpu_xid_total", labels): steps(("_", 20), (1, 60)), **KNOWN},
            (code,),
            labels,
            fires_at=(20, 29),
            silent_at=(19, 31, 60),
        )
        quarantine = {**GPU, "share": "", "finding": str(code)}
        if code not in DEFAULT_HEALTH_POLICY.tolerate:
            yield AlertCase(
                names[code],
                f"Xid {min(numbers)} keeps its alert until the GPU is released, however long that takes",
                {
                    series("vgpuctl_gpu_xid_total", labels): steps(("_", 20), (1, 100)),
                    series("vgpuctl_gpu_quarantine_timestamp_seconds", quarantine): steps(("_", 21), (600, 60))
                    + " stale",
                    **KNOWN,
                },
                (code,),
                labels,
                fires_at=(20, 31, 45, 80),
                silent_at=(19, 82),
            )
    labels = {**GPU, "xid": "79", "class": "restart-bm"}
    yield AlertCase(
        "VgpuctlGpuXidRestartBm",
        "an Xid in Prometheus' first minutes fires at once",
        {series("vgpuctl_gpu_xid_total", labels): steps(("_", 3), (1, 60)), **KNOWN},
        (HealthCode.XID_RESTART_BM,),
        labels,
        fires_at=(3, 8, 12),
        silent_at=(2, 14, 40),
    )
    yield AlertCase(
        "VgpuctlGpuXidRestartBm",
        "an old Xid of a card that is in quarantine for something else does not fire",
        {
            series("vgpuctl_gpu_xid_total", labels): steps((1, 60)),
            series("vgpuctl_gpu_quarantine_timestamp_seconds", GPU, share="", finding="pages-retired"): "600x60",
            **KNOWN,
        },
        silent_at=(0, 5, 20, 40),
    )
    rising = series("vgpuctl_gpu_xid_total", labels)
    yield AlertCase(
        "VgpuctlGpuXidRestartBm",
        "an old Xid that the exporter finds at its first reading does not fire",
        {rising: steps(("_", 20), (79, 60)), **{known: steps(("_", 20), (1, 60)) for known in KNOWN}},
        silent_at=(20, 25, 40),
    )
    yield AlertCase(
        "VgpuctlGpuXidRestartBm",
        "a counter that rises again fires again",
        {rising: steps((3, 20), (4, 60)), **KNOWN},
        (HealthCode.XID_RESTART_BM,),
        labels,
        fires_at=(20, 29),
        silent_at=(19, 31),
    )
    programs = {**GPU, "xid": "31", "class": "restart-app"}
    yield AlertCase(
        "VgpuctlGpuXidResetGpu",
        "a tenant's program that fails (Xid 31) is no fault of the card",
        {series("vgpuctl_gpu_xid_total", programs): steps(("_", 20), (500, 60)), **KNOWN},
        silent_at=(20, 25, 40),
    )


def _quarantine_cases() -> Iterator[AlertCase]:
    for one in ALERTS:
        if one.group == "quarantine":
            labels = {**GPU, "share": "", "finding": str(one.fault)}
            yield AlertCase(
                one.name,
                f"quarantine for {one.fault} until it is released",
                {series("vgpuctl_gpu_quarantine_timestamp_seconds", labels): steps(("_", 10), (600, 30)) + " stale"},
                (one.fault,),
                # Prometheus drops an empty label.
                {name: value for name, value in labels.items() if value},
                fires_at=(10, 39),
                silent_at=(9, 41),
            )
    yield AlertCase(
        "VgpuctlGpuQuarantined",
        "a GPU that an operator put into quarantine needs no alert",
        {series("vgpuctl_gpu_quarantine_timestamp_seconds", GPU, finding="", share=""): steps((600, 30))},
        silent_at=(10, 29),
    )


GPU_CASES: tuple[AlertCase, ...] = (
    *_xid_cases(),
    state("VgpuctlGpuMissing", HealthCode.GPU_MISSING, "vgpuctl_gpu_state", GPU, waits=2, state="missing"),
    state(
        "VgpuctlGpuRecoveryActionPending",
        HealthCode.RESET_REQUIRED,
        "vgpuctl_gpu_recovery_action",
        GPU,
        waits=2,
        action="drain-and-reset",
    ),
    AlertCase(
        "VgpuctlGpuRecoveryActionPending",
        "a healthy card asks for nothing",
        {series("vgpuctl_gpu_recovery_action", GPU, action="none"): "1x60"},
        silent_at=(30,),
    ),
    state("VgpuctlGpuRowRemapPending", HealthCode.ROW_REMAP_PENDING, "vgpuctl_gpu_row_remap_pending", GPU, waits=5),
    state("VgpuctlGpuRowRemapFailed", HealthCode.ROW_REMAP_FAILED, "vgpuctl_gpu_row_remap_failed", GPU, waits=5),
    state("VgpuctlGpuSramThreshold", FaultId.SRAM_THRESHOLD, "vgpuctl_gpu_sram_threshold_exceeded", GPU, waits=5),
    AlertCase(
        "VgpuctlGpuEccUncorrected",
        "new errors fire and clear, though the count since the driver's start stays",
        {series("vgpuctl_gpu_ecc_errors_total", GPU, severity="uncorrected"): steps((2, 20), (3, 60))},
        (HealthCode.ECC_UNCORRECTED,),
        {**GPU, "severity": "uncorrected"},
        fires_at=(20, 30),
        silent_at=(19, 36, 70),
    ),
    AlertCase(
        "VgpuctlGpuThermalSlowdown",
        "a card two degrees below its own slowdown temperature",
        {
            series("vgpuctl_gpu_temperature_celsius", GPU): steps((70, 10), (83, 30), (70, 30)),
            series("vgpuctl_gpu_slowdown_temperature_celsius", GPU): "85x70",
        },
        (FaultId.THERMAL_SLOWDOWN,),
        GPU,
        fires_at=(15, 39, 44),
        silent_at=(14, 46),
    ),
    AlertCase(
        "VgpuctlGpuThermalSlowdown",
        "the same temperature is fine for a card that slows down at 98 degrees",
        {
            series("vgpuctl_gpu_temperature_celsius", GPU): "88x70",
            series("vgpuctl_gpu_slowdown_temperature_celsius", GPU): "98x70",
        },
        silent_at=(30, 60),
    ),
    AlertCase(
        "VgpuctlGpuThermalSlowdown",
        "the driver slows the clocks of a card that tells no slowdown temperature",
        {series("vgpuctl_gpu_clock_event", GPU, reason="hw_thermal"): PULSE},
        (FaultId.THERMAL_SLOWDOWN,),
        {**GPU, "reason": "hw_thermal"},
        fires_at=(15, 39),
        silent_at=(14, 46),
    ),
    *_quarantine_cases(),
)
