# SPDX-License-Identifier: Apache-2.0
"""Alerts on the monitoring itself: exporter, readings, store, certificates."""

from vgpuctl.model.faults import FaultId
from vgpuctl.telemetry.alerts.alert import CRITICAL, INFO, WARNING, Alert

OF_MONITORING = (
    Alert(
        FaultId.EXPORTER_BLIND,
        "monitoring",
        "VgpuctlExporterBlind",
        CRITICAL,
        'up{job=~"vgpuctl.*"} == 0\nor absent(vgpuctl_collect_success)',
        "Prometheus gets no readings of any GPU host from vgpuctl's exporter",
        "5m",
    ),
    Alert(
        FaultId.SNAPSHOT_STALE,
        "monitoring",
        "VgpuctlSnapshotStale",
        WARNING,
        "vgpuctl_snapshot_age_seconds > 300",
        "The readings of {{ $labels.host }} are {{ $value | humanizeDuration }} old",
        "5m",
    ),
    Alert(
        FaultId.READING_INCOMPLETE,
        "monitoring",
        "VgpuctlReadingIncomplete",
        INFO,
        'max by (host) (vgpuctl_collect_success{part="complete"}) == 0\n'
        'unless on (host) max by (host) (vgpuctl_collect_success{part="answer"}) == 0',
        "Parts of {{ $labels.host }} cannot be read",
        "30m",
    ),
    Alert(
        FaultId.STORE_UNUSABLE,
        "monitoring",
        "VgpuctlStoreUnreadable",
        CRITICAL,
        "vgpuctl_store_up == 0",
        "The exporter cannot read the store; leases, queue and quotas are old",
        "5m",
    ),
    Alert(
        FaultId.CERTIFICATE_EXPIRES,
        "monitoring",
        "VgpuctlCertificateExpires",
        WARNING,
        "vgpuctl_certificate_expiry_timestamp_seconds - time() < 1209600",
        "The certificate in {{ $labels.file }} ends in {{ $value | humanizeDuration }}",
        "1h",
    ),
)
