# SPDX-License-Identifier: Apache-2.0
"""The alerts that vgpuctl ships: one table, from which rule files, their tests and docs/monitoring.md are made.

The id and the remedy of an alert are those of its fault (model/faults.py), as in events and in check-hosts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.model.faults import FAULTS, Fault, FaultId
from vgpuctl.model.health import DEFAULT_HEALTH_POLICY, HealthCode
from vgpuctl.sharing.xids import CLASSES

XID_WINDOW = "10m"
"""An alert on an Xid ends this long after the last one; one that closes its GPU ends with the quarantine."""


class AlertSeverity(StrEnum):
    """The urgency of an alert, as its label `severity`."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"

    @property
    def meaning(self) -> str:
        """The operator's reaction."""
        return {"critical": "somebody looks now", "warning": "somebody looks today", "info": "nobody is woken"}[self]


@dataclass(frozen=True)
class Alert:
    """One alerting rule.

    group: the file it is in. lasts: how long the expression must hold (`for`); keeps: how long the alert goes on after
    it no longer holds (`keep_firing_for`), for values that flap. summary: a template of Prometheus.
    """

    fault: HealthCode | FaultId
    group: str
    name: str
    severity: AlertSeverity
    expression: str
    summary: str
    lasts: str = "0m"
    keeps: str | None = None

    @property
    def told(self) -> Fault:
        """Meaning and remedy."""
        return FAULTS[self.fault]


_CRITICAL, _WARNING, _INFO = AlertSeverity
_GPU = "GPU {{ $labels.gpu }} of {{ $labels.host }}"
_POOL = "node pool {{ $labels.tenant }}/{{ $labels.node_pool }}"
_VM = "{{ $labels.tenant }}/{{ $labels.vm }} on {{ $labels.host }}"


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


_OF_MONITORING = (
    Alert(
        FaultId.EXPORTER_BLIND,
        "monitoring",
        "VgpuctlExporterBlind",
        _CRITICAL,
        'up{job=~"vgpuctl.*"} == 0\nor absent(vgpuctl_collect_success)',
        "Prometheus gets no readings of any GPU host from vgpuctl's exporter",
        "5m",
    ),
    Alert(
        FaultId.SNAPSHOT_STALE,
        "monitoring",
        "VgpuctlSnapshotStale",
        _WARNING,
        "vgpuctl_snapshot_age_seconds > 300",
        "The readings of {{ $labels.host }} are {{ $value | humanizeDuration }} old",
        "5m",
    ),
    Alert(
        FaultId.READING_INCOMPLETE,
        "monitoring",
        "VgpuctlReadingIncomplete",
        _INFO,
        'max by (host) (vgpuctl_collect_success{part="complete"}) == 0\n'
        'unless on (host) max by (host) (vgpuctl_collect_success{part="answer"}) == 0',
        "Parts of {{ $labels.host }} cannot be read",
        "30m",
    ),
    Alert(
        FaultId.STORE_UNUSABLE,
        "monitoring",
        "VgpuctlStoreUnreadable",
        _CRITICAL,
        "vgpuctl_store_up == 0",
        "The exporter cannot read the store; leases, queue and quotas are old",
        "5m",
    ),
)
_OF_CERTIFICATES = (
    Alert(
        FaultId.CERTIFICATE_EXPIRES,
        "monitoring",
        "VgpuctlCertificateExpires",
        _WARNING,
        "vgpuctl_certificate_expiry_timestamp_seconds - time() < 1209600",
        "The certificate in {{ $labels.file }} ends in {{ $value | humanizeDuration }}",
        "1h",
    ),
)
_OF_HOSTS = (
    Alert(
        FaultId.HOST_UNREACHABLE,
        "hosts",
        "VgpuctlHostUnreachable",
        _CRITICAL,
        'max by (host) (vgpuctl_collect_success{part="answer"}) == 0\n'
        'unless on (host) vgpuctl_host_restriction{state=~"drain|fence"} == 1',
        "{{ $labels.host }} does not answer",
        "5m",
    ),
    Alert(
        FaultId.LAYOUT_DIFFERS,
        "hosts",
        "VgpuctlLayoutDiffers",
        _WARNING,
        "vgpuctl_host_layout_differences > 0",
        "{{ $labels.host }} differs in {{ $value }} places from its declared layout",
        "15m",
    ),
    Alert(
        FaultId.TRUTH_MISMATCH,
        "hosts",
        "VgpuctlTruthMismatch",
        _CRITICAL,
        "vgpuctl_truth_mismatch > 0",
        "Store, libvirt and devices disagree on {{ $labels.host }}: {{ $labels.kind }}",
        "10m",
    ),
    Alert(
        FaultId.QUARANTINE_GROWS,
        "hosts",
        "VgpuctlQuarantineGrows",
        _CRITICAL,
        'count(time() - vgpuctl_gpu_quarantine_timestamp_seconds{finding!=""} < 86400) > 2',
        "{{ $value }} GPUs or VFs went into quarantine within a day",
    ),
)
_XID_SEVERITIES = {
    HealthCode.XID_RESTART_APP: _INFO,
    HealthCode.XID_RESTART_VM: _WARNING,
    HealthCode.XID_UPDATE_SWFW: _WARNING,
    HealthCode.XID_WORKFLOW_45: _WARNING,
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
            _XID_SEVERITIES.get(code, _CRITICAL),
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
                _WARNING,
                f'vgpuctl_gpu_quarantine_timestamp_seconds{{finding="{code}"}} > 0',
                f"{_GPU} is in quarantine: {code}",
            )


_OF_GPUS = (
    *_xid_alerts(),
    Alert(
        HealthCode.GPU_MISSING,
        "gpus",
        "VgpuctlGpuMissing",
        _CRITICAL,
        'vgpuctl_gpu_state{state="missing"} == 1',
        f"{_GPU} is gone from its host",
        "2m",
    ),
    Alert(
        HealthCode.RESET_REQUIRED,
        "gpus",
        "VgpuctlGpuRecoveryActionPending",
        _CRITICAL,
        'vgpuctl_gpu_recovery_action{action!="none"} == 1',
        f"The driver asks for {{{{ $labels.action }}}} of {_GPU}",
        "2m",
    ),
    Alert(
        HealthCode.ROW_REMAP_PENDING,
        "gpus",
        "VgpuctlGpuRowRemapPending",
        _WARNING,
        "vgpuctl_gpu_row_remap_pending == 1",
        f"{_GPU} waits for a reset to use a spare memory row",
        "5m",
    ),
    Alert(
        HealthCode.ROW_REMAP_FAILED,
        "gpus",
        "VgpuctlGpuRowRemapFailed",
        _CRITICAL,
        "vgpuctl_gpu_row_remap_failed == 1",
        f"{_GPU} has no spare memory row left",
        "5m",
    ),
    Alert(
        FaultId.SRAM_THRESHOLD,
        "gpus",
        "VgpuctlGpuSramThreshold",
        _CRITICAL,
        "vgpuctl_gpu_sram_threshold_exceeded == 1",
        f"{_GPU} has more SRAM errors than NVIDIA accepts",
        "5m",
    ),
    Alert(
        HealthCode.ECC_UNCORRECTED,
        "gpus",
        "VgpuctlGpuEccUncorrected",
        _CRITICAL,
        'increase(vgpuctl_gpu_ecc_errors_total{severity="uncorrected"}[15m]) > 0',
        f"{_GPU} has new uncorrected memory errors",
    ),
    Alert(
        FaultId.THERMAL_SLOWDOWN,
        "gpus",
        "VgpuctlGpuThermalSlowdown",
        _WARNING,
        "vgpuctl_gpu_slowdown_temperature_celsius - vgpuctl_gpu_temperature_celsius < 3\n"
        'or on (host, gpu) vgpuctl_gpu_clock_event{reason=~"hw_thermal|sw_thermal"} == 1',
        f"{_GPU} is too hot for its full clocks",
        "5m",
        "5m",
    ),
)
_OF_CAPACITY = (
    Alert(
        FaultId.NO_CAPACITY,
        "capacity",
        "VgpuctlNoCapacity",
        _WARNING,
        'sum by (profile) (vgpuctl_slices{state="free"}) == 0\n'
        'and on (profile) sum by (profile) (vgpuctl_slices{state="leased"}) > 0',
        "No share of {{ $labels.profile }} is left on any host",
        "15m",
    ),
    Alert(
        FaultId.QUEUE_STARVES,
        "capacity",
        "VgpuctlQueueStarves",
        _WARNING,
        "vgpuctl_queue_oldest_age_seconds > 14400",
        "A VM of {{ $labels.tenant }} waits in the queue for {{ $value | humanizeDuration }}",
        "5m",
    ),
    Alert(
        FaultId.NODE_POOL_SHORT,
        "capacity",
        "VgpuctlNodePoolBelowMinimum",
        _WARNING,
        "vgpuctl_node_pool_available_nodes < vgpuctl_node_pool_minimum",
        f"{_POOL} has {{{{ $value }}}} available nodes, fewer than its minimum",
        "30m",
    ),
    Alert(
        FaultId.NODES_NEVER_JOIN,
        "capacity",
        "VgpuctlNodesNeverJoin",
        _WARNING,
        "vgpuctl_node_pool_never_joined > 1",
        f"{{{{ $value }}}} nodes of {_POOL} in succession did not join cluster {{{{ $labels.cluster }}}}",
        "1m",
    ),
    Alert(
        FaultId.CLUSTER_SILENT,
        "capacity",
        "VgpuctlClusterSilent",
        _WARNING,
        "vgpuctl_node_pool_cluster_silence_seconds > 600",
        f"Cluster {{{{ $labels.cluster }}}} has told nothing of {_POOL} for {{{{ $value | humanizeDuration }}}}",
        "5m",
    ),
    Alert(
        FaultId.QUOTA_NEARLY_USED,
        "capacity",
        "VgpuctlQuotaNearlyUsed",
        _INFO,
        "vgpuctl_tenant_quota_used / (vgpuctl_tenant_quota_limit > 0) >= 0.9",
        "{{ $labels.tenant }} has used {{ $value | humanizePercentage }} of its {{ $labels.resource }}",
        "15m",
        "15m",
    ),
    Alert(
        FaultId.LICENCE_POOL_FULL,
        "capacity",
        "VgpuctlLicencePoolNearlyFull",
        _WARNING,
        'vgpuctl_licence_seats{state="free"}\n'
        "< on (pool, edition) group_left () 0.1 * sum by (pool, edition) (vgpuctl_licence_seats)",
        "{{ $value }} seats of licence pool {{ $labels.pool }} ({{ $labels.edition }}) are free",
        "15m",
        "15m",
    ),
)
# A guest goes from one unlicensed state to the next, after 20 minutes and after 24 hours by the driver's defaults; its
# time without a licence goes on.
_UNLICENSED = 'sum without (state) (vgpuctl_vgpu_license_state{state=~"unlicensed.*"})'
_OF_SHARES = (
    Alert(
        FaultId.PROMISE_BROKEN,
        "shares",
        "VgpuctlPromiseBroken",
        _WARNING,
        'vgpuctl_promise_broken{row!="compute"} == 1',
        f"{_VM} does not have what its owner was promised: {{{{ $labels.row }}}}",
        "1m",
        "5m",
    ),
    Alert(
        FaultId.VGPU_UNLICENSED,
        "shares",
        "VgpuctlVgpuUnlicensed",
        _WARNING,
        f"{_UNLICENSED} > 0",
        f"The guest of {_VM} has no vGPU licence",
        "10m",
    ),
    Alert(
        FaultId.VGPU_RESTRICTED,
        "shares",
        "VgpuctlVgpuRestricted",
        _CRITICAL,
        'vgpuctl_vgpu_license_state{state=~"unlicensed|unlicensed-restricted"} == 1',
        f"The vGPU of {_VM} is restricted: its guest has no licence",
        "1m",
    ),
    Alert(
        FaultId.VGPU_UNLICENSED_DAY,
        "shares",
        "VgpuctlVgpuUnlicensedForADay",
        _CRITICAL,
        f"{_UNLICENSED} == 1",
        f"The guest of {_VM} has had no vGPU licence for a day",
        "24h",
    ),
    Alert(
        FaultId.LICENCE_EXPIRES,
        "shares",
        "VgpuctlLicenceExpires",
        _WARNING,
        "vgpuctl_vgpu_license_expiry_timestamp_seconds - time() < 7200\n"
        'and on (host, gpu, share) vgpuctl_vgpu_license_state{state="licensed"} == 1',
        f"The vGPU licence of {_VM} ends in {{{{ $value | humanizeDuration }}}}",
        "10m",
    ),
    Alert(
        FaultId.COMPUTE_SHORT,
        "shares",
        "VgpuctlComputeShort",
        _WARNING,
        "avg_over_time(vgpuctl_vgpu_share_utilization_ratio[10m]) < 0.8\n"
        "and on (host, gpu, share) min_over_time(vgpuctl_vgpu_steal_ratio[10m]) > 0",
        f"{_VM} gets {{{{ $value | humanizePercentage }}}} of its promised share of a GPU without idle time",
        "10m",
        "5m",
    ),
    Alert(
        FaultId.SHARE_STOLEN,
        "shares",
        "VgpuctlShareStolen",
        _INFO,
        "vgpuctl_gpu_contention_ratio > 0",
        f"{_VM} takes up to {{{{ $value | humanizePercentage }}}} of a GPU from neighbours that were promised it",
        "5m",
        "5m",
    ),
    Alert(
        FaultId.SHARE_EXCEEDED,
        "shares",
        "VgpuctlTenantOverShare",
        _INFO,
        "avg_over_time(tenant:vgpuctl_vgpu_share_utilization:ratio[1h]) > 1.2",
        "{{ $labels.tenant }} uses {{ $value | humanizePercentage }} of what its VMs are promised",
        "30m",
    ),
    Alert(
        FaultId.FRAMEBUFFER_RUNS_OUT,
        "shares",
        "VgpuctlFramebufferRunsOut",
        _WARNING,
        'vgpuctl_vgpu_framebuffer_exhaustion_seconds{bound="expected"} < 14400',
        f"The framebuffer of {_VM} is full in {{{{ $value | humanizeDuration }}}} if it grows on",
        "5m",
        "15m",
    ),
)
ALERTS: tuple[Alert, ...] = (
    *_OF_MONITORING,
    *_OF_CERTIFICATES,
    *_OF_HOSTS,
    *_OF_GPUS,
    *_quarantine_alerts(),
    *_OF_CAPACITY,
    *_OF_SHARES,
)
