# SPDX-License-Identifier: Apache-2.0
"""Recording rules: figures per tenant, per profile and per host, which dashboards and alerts read."""

from dataclasses import dataclass

_OWN = '{tenant!=""}'
"""A vGPU that nobody leases and whose domain is foreign has no tenant."""


@dataclass(frozen=True)
class Recording:
    """One recording rule. name: as `level:metric:operation`."""

    name: str
    expression: str
    text: str


def _of_level(level: str, noun: str) -> tuple[Recording, ...]:
    by = f"by ({level})"
    used, promised = f"vgpuctl_vgpu_utilization_ratio{_OWN}", f"vgpuctl_vgpu_promised_ratio{_OWN}"
    return (
        Recording(f"{level}:vgpuctl_vgpu_promised:count", f"count {by} ({promised})", f"Running vGPUs of a {noun}."),
        Recording(f"{level}:vgpuctl_vgpu_promised:sum", f"sum {by} ({promised})", f"GPUs promised to a {noun}."),
        Recording(f"{level}:vgpuctl_vgpu_utilization:sum", f"sum {by} ({used})", f"GPUs that a {noun} uses."),
        Recording(
            f"{level}:vgpuctl_vgpu_share_utilization:ratio",
            f"sum {by} ({used}) / sum {by} ({promised})",
            f"Use of what is promised to a {noun}.",
        ),
        Recording(
            f"{level}:vgpuctl_vgpu_steal:sum",
            f"sum {by} (vgpuctl_vgpu_steal_ratio{_OWN})",
            f"GPUs that neighbours cost a {noun} at most.",
        ),
        Recording(
            f"{level}:vgpuctl_vgpu_framebuffer_used_bytes:sum",
            f"sum {by} (vgpuctl_vgpu_framebuffer_used_bytes{_OWN})",
            f"Framebuffer that the guests of a {noun} use.",
        ),
        Recording(
            f"{level}:vgpuctl_vgpu_framebuffer_size_bytes:sum",
            f"sum {by} (vgpuctl_vgpu_framebuffer_size_bytes{_OWN})",
            f"Framebuffer promised to a {noun}.",
        ),
    )


RECORDINGS: tuple[Recording, ...] = (
    *_of_level("tenant", "tenant"),
    *_of_level("profile", "profile"),
    Recording(
        "tenant:vgpuctl_tenant_quota_used:ratio",
        "vgpuctl_tenant_quota_used / (vgpuctl_tenant_quota_limit > 0)",
        "Use of a tenant's quota of a resource.",
    ),
    *(
        Recording(
            f"tenant:vgpuctl_vm_network_{direction}_bytes:rate",
            f"sum by (tenant) (rate(vgpuctl_vm_network_{direction}_bytes_total{_OWN}[5m]))",
            f"Bytes a second that the VMs of a tenant {verb}.",
        )
        for direction, verb in (("received", "receive"), ("sent", "send"))
    ),
    Recording("host:vgpuctl_gpu_power_watts:sum", "sum by (host) (vgpuctl_gpu_power_watts)", "Power of a host's GPUs."),
    Recording(
        "host:vgpuctl_gpu_utilization:avg",
        "avg by (host) (vgpuctl_gpu_utilization_ratio)",
        "Average utilization of a host's GPUs.",
    ),
)
