# SPDX-License-Identifier: Apache-2.0
"""The dashboard of the whole fleet."""

from vgpuctl.telemetry.dashboards.dashboard import Dashboard, PanelRow, Query, Unit, bars, lines, stat, table

_FIRING = 'ALERTS{alertname=~"Vgpuctl.*",alertstate="firing"}'
FLEET = Dashboard(
    "fleet",
    "vgpuctl / Fleet",
    "Hosts, GPUs and shares of the fleet, and what is wrong with them.",
    (
        PanelRow(
            "Overview",
            (
                stat(
                    "Hosts that answer",
                    "At the last attempt.",
                    'sum(max by (host) (vgpuctl_collect_success{part="answer"}))',
                ),
                stat("GPUs", "That hosts show.", "count(count by (host, gpu) (vgpuctl_gpu_info))"),
                stat("Running vGPUs", "Of all VMs.", "count(count by (host, gpu, share) (vgpuctl_vgpu_info))"),
                stat("GPUs promised", "Sum of the promised shares.", "sum(tenant:vgpuctl_vgpu_promised:sum)"),
                stat("GPUs used", "Sum of what vGPUs use.", "sum(tenant:vgpuctl_vgpu_utilization:sum)"),
                stat(
                    "Power of the GPUs", "As the boards tell it.", "sum(host:vgpuctl_gpu_power_watts:sum)", Unit.WATTS
                ),
                stat("Alerts", "That fire now.", f"count({_FIRING}) or vector(0)", warn=1),
                stat(
                    "Quarantine",
                    "GPUs and VFs.",
                    'sum(vgpuctl_gpu_restriction{state="quarantine"}) or vector(0)',
                    fail=1,
                ),
                stat(
                    "Disagreements",
                    "Of store, libvirt and devices.",
                    "sum(vgpuctl_truth_mismatch) or vector(0)",
                    fail=1,
                ),
                stat(
                    "Drift",
                    "Hosts not in their layout.",
                    "count(vgpuctl_host_layout_differences > 0) or vector(0)",
                    warn=1,
                ),
                stat(
                    "Age of the oldest reading",
                    "Of a host.",
                    "max(vgpuctl_snapshot_age_seconds)",
                    Unit.SECONDS,
                    warn=60,
                    fail=300,
                ),
                stat("VMs in the queue", "Of all tenants.", "sum(vgpuctl_queue_entries) or vector(0)"),
            ),
        ),
        PanelRow(
            "Alerts",
            (
                table(
                    "Alerts",
                    "That wait or fire; `id` is in docs/monitoring.md.",
                    Query('ALERTS{alertname=~"Vgpuctl.*"}'),
                ),
            ),
        ),
        PanelRow(
            "Promised and used",
            (
                lines(
                    "GPUs promised and used",
                    "Sums over all vGPUs.",
                    Query("sum(tenant:vgpuctl_vgpu_promised:sum)", "promised"),
                    Query("sum(tenant:vgpuctl_vgpu_utilization:sum)", "used"),
                ),
                lines(
                    "Use of the promise by profile",
                    "1 is what is promised; more is idle time of others.",
                    Query("profile:vgpuctl_vgpu_share_utilization:ratio", "{{profile}}"),
                    unit=Unit.RATIO,
                ),
                bars("vGPUs by profile", "That run.", Query("profile:vgpuctl_vgpu_promised:count", "{{profile}}")),
            ),
        ),
        PanelRow(
            "Hosts",
            (
                lines(
                    "GPU utilization by host",
                    "Average of the host's GPUs.",
                    Query("host:vgpuctl_gpu_utilization:avg", "{{host}}"),
                    unit=Unit.RATIO,
                    most=1,
                ),
                lines(
                    "Power by host",
                    "Of the host's GPUs.",
                    Query("host:vgpuctl_gpu_power_watts:sum", "{{host}}"),
                    unit=Unit.WATTS,
                    is_stacked=True,
                ),
                lines(
                    "Margin to the slowdown temperature",
                    "Of the hottest GPU of each host.",
                    Query(
                        "min by (host) (vgpuctl_gpu_slowdown_temperature_celsius - vgpuctl_gpu_temperature_celsius)",
                        "{{host}}",
                    ),
                    unit=Unit.CELSIUS,
                ),
                table(
                    "Hosts",
                    "State of each host; 1 is the state that it is in.",
                    Query("vgpuctl_host_state == 1"),
                ),
            ),
        ),
        PanelRow(
            "Faults",
            (
                lines(
                    "Xids by class",
                    "In the last hour; restart-app is a tenant's own program.",
                    Query("sum by (class) (increase(vgpuctl_gpu_xid_total[1h]))", "{{class}}"),
                    width=12,
                ),
                table(
                    "Quarantine",
                    "GPUs and VFs with the finding and the time of their quarantine.",
                    Query("vgpuctl_gpu_quarantine_timestamp_seconds"),
                    width=12,
                ),
            ),
        ),
    ),
)
