# SPDX-License-Identifier: Apache-2.0
"""The dashboard of the queue and of fairness between tenants."""

from vgpuctl.telemetry.dashboards.dashboard import Dashboard, PanelRow, Query, Unit, bars, lines, stat, states, table

_SHARE = "tenant:vgpuctl_vgpu_share_utilization:ratio"
QUEUE = Dashboard(
    "queue",
    "vgpuctl / Queue and fairness",
    "Who waits for GPUs, and how they are divided between tenants.",
    (
        PanelRow(
            "Queue",
            (
                stat("VMs that wait", "Of all tenants.", "sum(vgpuctl_queue_entries) or vector(0)"),
                stat(
                    "Oldest entry",
                    "Its age.",
                    "max(vgpuctl_queue_oldest_age_seconds) or vector(0)",
                    Unit.SECONDS,
                    warn=3600,
                    fail=14400,
                ),
                stat(
                    "Fairness",
                    "Jain's index of the use of promises: 1 is even, 1/n is one tenant alone.",
                    f"sum({_SHARE}) ^ 2 / (count({_SHARE}) * sum({_SHARE} ^ 2))",
                    Unit.RATIO,
                ),
                stat(
                    "Broken leases",
                    "That repair finishes.",
                    'sum(vgpuctl_lease_state{state="broken"}) or vector(0)',
                    fail=1,
                ),
                stat(
                    "Reservations",
                    "That are open or used.",
                    'sum(vgpuctl_reservation_state{state=~"open|used"}) or vector(0)',
                ),
                stat("Commands at work", "That change something.", "sum(vgpuctl_operations) or vector(0)"),
                lines(
                    "Entries by tenant",
                    "New VMs, preempted VMs and gangs.",
                    Query("sum by (tenant, kind) (vgpuctl_queue_entries)", "{{tenant}} {{kind}}"),
                    is_stacked=True,
                ),
                lines(
                    "Age of the oldest entry",
                    "By tenant.",
                    Query("vgpuctl_queue_oldest_age_seconds", "{{tenant}}"),
                    unit=Unit.SECONDS,
                ),
                states("Leases", "Of shares, by state.", Query("sum by (state) (vgpuctl_lease_state)", "{{state}}")),
            ),
        ),
        PanelRow(
            "Fairness",
            (
                lines(
                    "GPUs promised by tenant",
                    "Sum of the shares.",
                    Query("tenant:vgpuctl_vgpu_promised:sum", "{{tenant}}"),
                    is_stacked=True,
                ),
                lines(
                    "GPUs used by tenant",
                    "Sum of what the vGPUs use.",
                    Query("tenant:vgpuctl_vgpu_utilization:sum", "{{tenant}}"),
                    is_stacked=True,
                ),
                lines(
                    "Use of the promise by tenant",
                    "1 is what is promised; more is idle time of others.",
                    Query(_SHARE, "{{tenant}}"),
                    unit=Unit.RATIO,
                ),
                lines(
                    "Steal by tenant",
                    "GPUs that neighbours cost a tenant at most.",
                    Query("tenant:vgpuctl_vgpu_steal:sum", "{{tenant}}"),
                ),
                bars(
                    "Use of quotas",
                    "By tenant and resource.",
                    Query("tenant:vgpuctl_tenant_quota_used:ratio", "{{tenant}} {{resource}}"),
                    Unit.RATIO,
                    most=1,
                    warn=0.8,
                    fail=0.9,
                ),
                table(
                    "VMs",
                    "By state in the store.",
                    Query("sum by (tenant, state) (vgpuctl_vm_declared_state)"),
                    width=8,
                ),
            ),
        ),
    ),
)
