# SPDX-License-Identifier: Apache-2.0
"""Alerts on the shares of VMs: promises, licences of guests, compute time, framebuffer."""

from vgpuctl.model.faults import FaultId
from vgpuctl.telemetry.alerts.alert import CRITICAL, INFO, WARNING, Alert

_VM = "{{ $labels.tenant }}/{{ $labels.vm }} on {{ $labels.host }}"
# A guest goes from one unlicensed state to the next, after 20 minutes and after 24 hours by the driver's defaults; its
# time without a licence goes on.
_UNLICENSED = 'sum without (state) (vgpuctl_vgpu_license_state{state=~"unlicensed.*"})'
OF_SHARES = (
    Alert(
        FaultId.PROMISE_BROKEN,
        "shares",
        "VgpuctlPromiseBroken",
        WARNING,
        'vgpuctl_promise_broken{row!="compute"} == 1',
        f"{_VM} does not have what its owner was promised: {{{{ $labels.row }}}}",
        "1m",
        "5m",
    ),
    Alert(
        FaultId.VGPU_UNLICENSED,
        "shares",
        "VgpuctlVgpuUnlicensed",
        WARNING,
        f"{_UNLICENSED} > 0",
        f"The guest of {_VM} has no vGPU licence",
        "10m",
    ),
    Alert(
        FaultId.VGPU_RESTRICTED,
        "shares",
        "VgpuctlVgpuRestricted",
        CRITICAL,
        'vgpuctl_vgpu_license_state{state=~"unlicensed|unlicensed-restricted"} == 1',
        f"The vGPU of {_VM} is restricted: its guest has no licence",
        "1m",
    ),
    Alert(
        FaultId.VGPU_UNLICENSED_DAY,
        "shares",
        "VgpuctlVgpuUnlicensedForADay",
        CRITICAL,
        f"{_UNLICENSED} == 1",
        f"The guest of {_VM} has had no vGPU licence for a day",
        "24h",
    ),
    Alert(
        FaultId.LICENCE_EXPIRES,
        "shares",
        "VgpuctlLicenceExpires",
        WARNING,
        "vgpuctl_vgpu_license_expiry_timestamp_seconds - time() < 7200\n"
        'and on (host, gpu, share) vgpuctl_vgpu_license_state{state="licensed"} == 1',
        f"The vGPU licence of {_VM} ends in {{{{ $value | humanizeDuration }}}}",
        "10m",
    ),
    Alert(
        FaultId.COMPUTE_SHORT,
        "shares",
        "VgpuctlComputeShort",
        WARNING,
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
        INFO,
        "vgpuctl_gpu_contention_ratio > 0",
        f"{_VM} takes up to {{{{ $value | humanizePercentage }}}} of a GPU from neighbours that were promised it",
        "5m",
        "5m",
    ),
    Alert(
        FaultId.SHARE_EXCEEDED,
        "shares",
        "VgpuctlTenantOverShare",
        INFO,
        "avg_over_time(tenant:vgpuctl_vgpu_share_utilization:ratio[1h]) > 1.2",
        "{{ $labels.tenant }} uses {{ $value | humanizePercentage }} of what its VMs are promised",
        "30m",
    ),
    Alert(
        FaultId.FRAMEBUFFER_RUNS_OUT,
        "shares",
        "VgpuctlFramebufferRunsOut",
        WARNING,
        'vgpuctl_vgpu_framebuffer_exhaustion_seconds{bound="expected"} < 14400',
        f"The framebuffer of {_VM} is full in {{{{ $value | humanizeDuration }}}} if it grows on",
        "5m",
        "15m",
    ),
)
