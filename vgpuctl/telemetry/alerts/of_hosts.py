# SPDX-License-Identifier: Apache-2.0
"""Alerts on hosts: their answers, their layouts, and what store, devices and libvirt say of one VM."""

from vgpuctl.model.faults import FaultId
from vgpuctl.telemetry.alerts.alert import CRITICAL, WARNING, Alert

OF_HOSTS = (
    Alert(
        FaultId.HOST_UNREACHABLE,
        "hosts",
        "VgpuctlHostUnreachable",
        CRITICAL,
        'max by (host) (vgpuctl_collect_success{part="answer"}) == 0\n'
        'unless on (host) vgpuctl_host_restriction{state=~"drain|fence"} == 1',
        "{{ $labels.host }} does not answer",
        "5m",
    ),
    Alert(
        FaultId.LAYOUT_DIFFERS,
        "hosts",
        "VgpuctlLayoutDiffers",
        WARNING,
        "vgpuctl_host_layout_differences > 0",
        "{{ $labels.host }} differs in {{ $value }} places from its declared layout",
        "15m",
    ),
    Alert(
        FaultId.TRUTH_MISMATCH,
        "hosts",
        "VgpuctlTruthMismatch",
        CRITICAL,
        "vgpuctl_truth_mismatch > 0",
        "Store, libvirt and devices disagree on {{ $labels.host }}: {{ $labels.kind }}",
        "10m",
    ),
    Alert(
        FaultId.QUARANTINE_GROWS,
        "hosts",
        "VgpuctlQuarantineGrows",
        CRITICAL,
        'count(time() - vgpuctl_gpu_quarantine_timestamp_seconds{finding!=""} < 86400) > 2',
        "{{ $value }} GPUs or VFs went into quarantine within a day",
    ),
)
