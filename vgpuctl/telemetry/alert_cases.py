# SPDX-License-Identifier: Apache-2.0
"""One case or more for every alert. They are written as tests of promtool, which ship with the rules."""

from vgpuctl.model.faults import FaultId
from vgpuctl.model.units import MIB
from vgpuctl.telemetry.alert_case import DIP, GPU, HOST, OTHER, SHARE, AlertCase, series, state, steps
from vgpuctl.telemetry.capacity_alert_cases import CAPACITY_CASES
from vgpuctl.telemetry.gpu_alert_cases import GPU_CASES

_PROMISED = {**HOST, "tenant": "acme", "vm": "web-1"}
_OF_MONITORING = (
    AlertCase(
        "VgpuctlExporterBlind",
        "no series of the exporter for twenty minutes",
        {series("vgpuctl_collect_success", HOST, part="answer"): steps(("_", 20), (1, 20))},
        (FaultId.EXPORTER_BLIND,),
        fires_at=(5, 19),
        silent_at=(4, 20),
    ),
    AlertCase(
        "VgpuctlExporterBlind",
        "one of two exporters is down, then comes back",
        {
            series("vgpuctl_collect_success", HOST, part="answer"): "1x120",
            'up{job="vgpuctl",instance="a:9480"}': steps((1, 10), (0, 20), (1, 30)),
        },
        (FaultId.EXPORTER_BLIND,),
        {"job": "vgpuctl", "instance": "a:9480"},
        fires_at=(15, 29),
        silent_at=(14, 31),
    ),
    AlertCase(
        "VgpuctlSnapshotStale",
        "a host hangs for an hour",
        {'vgpuctl_snapshot_age_seconds{host="gpu1"}': "5x4 5+60x50 5x10"},
        (FaultId.SNAPSHOT_STALE,),
        HOST,
        fires_at=(20,),
        silent_at=(4, 10, 60),
        value="15m 5s",
    ),
    AlertCase(
        "VgpuctlReadingIncomplete",
        "the kernel's log of a host cannot be read",
        {
            series("vgpuctl_collect_success", HOST, part="answer"): "1x90",
            series("vgpuctl_collect_success", HOST, part="complete"): steps((1, 10), (0, 50), (1, 30)),
        },
        (FaultId.READING_INCOMPLETE,),
        HOST,
        fires_at=(40, 59),
        silent_at=(39, 60),
    ),
    AlertCase(
        "VgpuctlStoreUnreadable",
        "the store does not answer for half an hour",
        {"vgpuctl_store_up": DIP},
        (FaultId.STORE_UNUSABLE,),
        fires_at=(15, 39),
        silent_at=(14, 40),
    ),
)
_OF_CERTIFICATES = (
    AlertCase(
        "VgpuctlCertificateExpires",
        "a certificate ends in two weeks, and is replaced after two hours",
        {'vgpuctl_certificate_expiry_timestamp_seconds{file="tls.crt"}': steps((1213200, 180), (9000000, 60))},
        (FaultId.CERTIFICATE_EXPIRES,),
        {"file": "tls.crt"},
        fires_at=(150,),
        silent_at=(119, 185),
        value="13d 22h 30m 0s",
    ),
)
_OF_HOSTS = (
    AlertCase(
        "VgpuctlHostUnreachable",
        "a host does not answer for half an hour",
        {
            series("vgpuctl_collect_success", HOST, part="answer"): DIP,
            series("vgpuctl_collect_success", HOST, part="complete"): DIP,
        },
        (FaultId.HOST_UNREACHABLE,),
        HOST,
        fires_at=(15, 39),
        silent_at=(14, 45),
    ),
    AlertCase(
        "VgpuctlHostUnreachable",
        "a host that was drained may be off",
        {
            series("vgpuctl_collect_success", HOST, part="answer"): DIP,
            series("vgpuctl_host_restriction", HOST, state="drain"): "1x70",
        },
        silent_at=(20, 39),
    ),
    AlertCase(
        "VgpuctlLayoutDiffers",
        "a host drifts and is brought back",
        {series("vgpuctl_host_layout_differences", HOST): steps((0, 10), (2, 30), (0, 30))},
        (FaultId.LAYOUT_DIFFERS,),
        HOST,
        fires_at=(25, 39),
        silent_at=(24, 40),
        value="2",
    ),
    state(
        "VgpuctlTruthMismatch",
        FaultId.TRUTH_MISMATCH,
        "vgpuctl_truth_mismatch",
        HOST,
        waits=10,
        kind="share-lost",
    ),
    AlertCase(
        "VgpuctlQuarantineGrows",
        "three cards within a day; a day later it is history",
        {
            series("vgpuctl_gpu_quarantine_timestamp_seconds", GPU, finding=finding): steps(("_", at), (60 * at, 1600))
            for at, finding in ((10, "off-the-bus"), (20, "ecc-uncorrected"), (30, "xid-reset-gpu"))
        },
        (FaultId.QUARANTINE_GROWS,),
        fires_at=(30, 1000),
        silent_at=(29, 1460),
        value="3",
    ),
)
_LOST = {
    series("vgpuctl_vgpu_license_state", SHARE, state="licensed"): steps((1, 10), (0, 60), (1, 30)),
    series("vgpuctl_vgpu_license_state", SHARE, state="unlicensed-unrestricted"): steps((0, 10), (1, 20), (0, 70)),
    series("vgpuctl_vgpu_license_state", SHARE, state="unlicensed-restricted"): steps((0, 30), (1, 40), (0, 30)),
}
_OF_SHARES = (
    AlertCase(
        "VgpuctlVgpuUnlicensed",
        "a guest loses its licence, is restricted after 20 minutes, and has a licence again",
        _LOST,
        (FaultId.VGPU_UNLICENSED,),
        SHARE,
        fires_at=(20, 29, 31, 69),
        silent_at=(9, 19, 71),
    ),
    AlertCase(
        "VgpuctlVgpuRestricted",
        "a guest is restricted 20 minutes after it lost its licence",
        _LOST,
        (FaultId.VGPU_RESTRICTED,),
        {**SHARE, "state": "unlicensed-restricted"},
        fires_at=(31, 69),
        silent_at=(9, 29, 71),
    ),
    AlertCase(
        "VgpuctlVgpuUnlicensedForADay",
        "a guest has no licence for more than a day",
        {
            series("vgpuctl_vgpu_license_state", SHARE, state="unlicensed-unrestricted"): steps((1, 20), (0, 1500)),
            series("vgpuctl_vgpu_license_state", SHARE, state="unlicensed-restricted"): steps(
                (0, 20), (1, 1430), (0, 70)
            ),
            series("vgpuctl_vgpu_license_state", SHARE, state="licensed"): steps((0, 1450), (1, 70)),
        },
        (FaultId.VGPU_UNLICENSED_DAY,),
        SHARE,
        fires_at=(1440, 1449),
        silent_at=(30, 1439, 1451),
    ),
    AlertCase(
        "VgpuctlVgpuUnlicensed",
        "a guest whose driver has not started yet asks for no licence",
        {series("vgpuctl_vgpu_license_state", SHARE, state="uninitialized"): "1x60"},
        silent_at=(30,),
    ),
    AlertCase(
        "VgpuctlLicenceExpires",
        "a licence is not renewed until an hour before its end",
        {
            series("vgpuctl_vgpu_license_expiry_timestamp_seconds", SHARE): steps((18000, 240), (90000, 60)),
            series("vgpuctl_vgpu_license_state", SHARE, state="licensed"): "1x300",
        },
        (FaultId.LICENCE_EXPIRES,),
        SHARE,
        fires_at=(200,),
        silent_at=(180, 240),
        value="1h 40m 0s",
    ),
    AlertCase(
        "VgpuctlPromiseBroken",
        "the port of a VM is down, until its host's ovn-controller runs again",
        {series("vgpuctl_promise_broken", {**_PROMISED, "row": "ports"}): steps(("_", 10), (1, 20)) + " stale"},
        (FaultId.PROMISE_BROKEN,),
        {**_PROMISED, "row": "ports"},
        fires_at=(15, 29),
        silent_at=(10, 45),
    ),
    AlertCase(
        "VgpuctlComputeShort",
        "a neighbour takes the time that a VM was promised, then is stopped",
        {
            series("vgpuctl_vgpu_share_utilization_ratio", SHARE): steps((1, 10), (0.5, 50), (1, 40)),
            series("vgpuctl_vgpu_steal_ratio", SHARE): steps((0, 10), (0.25, 50), (0, 40)),
            series("vgpuctl_vgpu_promised_ratio", SHARE): "0.5x100",
        },
        (FaultId.COMPUTE_SHORT,),
        SHARE,
        fires_at=(35, 59),
        silent_at=(20, 70),
        value="50%",
    ),
    AlertCase(
        "VgpuctlComputeShort",
        "a VM that idles on an idle GPU misses nothing",
        {
            series("vgpuctl_vgpu_share_utilization_ratio", SHARE): "0.1x100",
            series("vgpuctl_vgpu_steal_ratio", SHARE): "0x100",
        },
        silent_at=(60,),
    ),
    AlertCase(
        "VgpuctlShareStolen",
        "a VM takes a quarter of the GPU from its neighbours, until it is moved",
        {series("vgpuctl_gpu_contention_ratio", SHARE): steps(("_", 10), (0.25, 50)) + " stale"},
        (FaultId.SHARE_STOLEN,),
        SHARE,
        fires_at=(15, 59, 64),
        silent_at=(14, 66),
        value="25%",
    ),
    AlertCase(
        "VgpuctlTenantOverShare",
        "a tenant uses one and a half times its promise for hours",
        {
            series("vgpuctl_vgpu_utilization_ratio", SHARE): steps((0.4, 10), (0.75, 200), (0.4, 120)),
            series("vgpuctl_vgpu_promised_ratio", SHARE): "0.25x400",
            series("vgpuctl_vgpu_utilization_ratio", OTHER): "0x400",
            series("vgpuctl_vgpu_promised_ratio", OTHER): "0.25x400",
        },
        (FaultId.SHARE_EXCEEDED,),
        {"tenant": "acme"},
        fires_at=(180,),
        silent_at=(9, 300),
        value="150%",
    ),
    AlertCase(
        "VgpuctlFramebufferRunsOut",
        "a leak that fills the framebuffer in six hours, ended by a restart of the program",
        {
            series("vgpuctl_vgpu_framebuffer_exhaustion_seconds", SHARE, bound="expected"): "21600-60x300 stale",
            series("vgpuctl_vgpu_framebuffer_exhaustion_seconds", SHARE, bound="earliest"): "3600x300",
        },
        (FaultId.FRAMEBUFFER_RUNS_OUT,),
        {**SHARE, "bound": "expected"},
        fires_at=(180,),
        silent_at=(120, 320),
        value="3h 0m 0s",
    ),
    AlertCase(
        "VgpuctlFramebufferRunsOut",
        "a leak that has filled the framebuffer fires until there is room again",
        {
            series("vgpuctl_vgpu_framebuffer_exhaustion_seconds", SHARE, bound="expected"): "3600-60x60 0x120 stale",
            series("vgpuctl_vgpu_framebuffer_exhaustion_seconds", SHARE, bound="earliest"): "0x180 stale",
        },
        (FaultId.FRAMEBUFFER_RUNS_OUT,),
        {**SHARE, "bound": "expected"},
        fires_at=(100, 180),
        silent_at=(4, 200),
        value="0s",
    ),
    AlertCase(
        "VgpuctlFramebufferRunsOut",
        "a framebuffer that is full and stays so is the tenant's own business",
        {
            series("vgpuctl_vgpu_framebuffer_used_bytes", SHARE): f"{8000 * MIB}x200",
            series("vgpuctl_vgpu_framebuffer_size_bytes", SHARE): f"{8192 * MIB}x200",
            # All framebuffer of the GPU is handed out: on a vGPU host that says nothing.
            series("vgpuctl_gpu_framebuffer_used_bytes", GPU): f"{48 * 1024 * MIB}x200",
            series("vgpuctl_gpu_framebuffer_total_bytes", GPU): f"{48 * 1024 * MIB}x200",
        },
        silent_at=(100, 180),
    ),
)
CASES: tuple[AlertCase, ...] = (
    *_OF_MONITORING,
    *_OF_CERTIFICATES,
    *_OF_HOSTS,
    *GPU_CASES,
    *CAPACITY_CASES,
    *_OF_SHARES,
)
