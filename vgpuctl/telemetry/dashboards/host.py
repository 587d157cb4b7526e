# SPDX-License-Identifier: Apache-2.0
"""The dashboard of one host or several."""

from vgpuctl.telemetry.dashboards.dashboard import HOST as CHOICE
from vgpuctl.telemetry.dashboards.dashboard import Dashboard, PanelRow, Query, Unit, lines, stat, table

_ON = '{host=~"$host"}'
HOST = Dashboard(
    "host",
    "vgpuctl / Host",
    "GPUs, VMs and readings of a host.",
    (
        PanelRow(
            "Readings",
            (
                stat(
                    "Age",
                    "Of the last reading.",
                    f"max(vgpuctl_snapshot_age_seconds{_ON})",
                    Unit.SECONDS,
                    warn=60,
                    fail=300,
                ),
                stat(
                    "Clock skew",
                    "To the exporter's clock.",
                    f"max(abs(vgpuctl_host_clock_skew_seconds{_ON}))",
                    Unit.SECONDS,
                    warn=2,
                ),
                stat("Duration", "Of the last reading.", f"max(vgpuctl_collect_duration_seconds{_ON})", Unit.SECONDS),
                stat("GPUs", "That the host shows.", f"count(count by (host, gpu) (vgpuctl_gpu_info{_ON}))"),
                stat("VMs", "That run.", f"count(vgpuctl_vm_vcpus{_ON})"),
                stat(
                    "Disagreements",
                    "Of store, libvirt and devices.",
                    f"sum(vgpuctl_truth_mismatch{_ON}) or vector(0)",
                    fail=1,
                ),
                table("GPUs", "Identity.", Query(f"vgpuctl_gpu_info{_ON}"), height=6),
            ),
        ),
        PanelRow(
            "GPUs",
            (
                lines(
                    "Utilization",
                    "Part of the time in which a kernel ran.",
                    Query(f"vgpuctl_gpu_utilization_ratio{_ON}", "{{host}} {{gpu}}"),
                    unit=Unit.RATIO,
                    most=1,
                ),
                lines(
                    "Power",
                    "Of each board.",
                    Query(f"vgpuctl_gpu_power_watts{_ON}", "{{host}} {{gpu}}"),
                    unit=Unit.WATTS,
                    is_stacked=True,
                ),
                lines(
                    "Temperature",
                    "Of the GPU core.",
                    Query(f"vgpuctl_gpu_temperature_celsius{_ON}", "{{host}} {{gpu}}"),
                    unit=Unit.CELSIUS,
                ),
            ),
        ),
        PanelRow(
            "VMs",
            (
                lines(
                    "CPUs used",
                    "By each VM.",
                    Query(f"rate(vgpuctl_vm_cpu_seconds_total{_ON}[$__rate_interval])", "{{tenant}}/{{vm}}"),
                    is_stacked=True,
                ),
                lines(
                    "Memory",
                    "That each VM has.",
                    Query(f"vgpuctl_vm_memory_current_bytes{_ON}", "{{tenant}}/{{vm}}"),
                    unit=Unit.BYTES,
                    is_stacked=True,
                ),
                lines(
                    "vGPU utilization",
                    "Part of the whole GPU.",
                    Query(f"vgpuctl_vgpu_utilization_ratio{_ON}", "{{tenant}}/{{vm}} {{share}}"),
                    unit=Unit.RATIO,
                    is_stacked=True,
                ),
                table("vGPUs", "With tenant and VM.", Query(f"vgpuctl_vgpu_info{_ON}")),
            ),
        ),
        PanelRow(
            "The machine",
            (
                lines(
                    "CPU by mode",
                    "CPUs that worked in a mode.",
                    Query(
                        f"sum by (host, mode) (rate(vgpuctl_host_cpu_seconds_total{_ON}[$__rate_interval]))",
                        "{{host}} {{mode}}",
                    ),
                    is_stacked=True,
                ),
                lines(
                    "Memory",
                    "Available of all.",
                    Query(f"vgpuctl_host_memory_available_bytes{_ON}", "{{host}} available"),
                    Query(f"vgpuctl_host_memory_total_bytes{_ON}", "{{host}} total"),
                    unit=Unit.BYTES,
                ),
                lines(
                    "Storage pools",
                    "Available of all, of pools that are folders.",
                    Query(f"vgpuctl_host_pool_available_bytes{_ON}", "{{host}} {{pool}} available"),
                    Query(f"vgpuctl_host_pool_total_bytes{_ON}", "{{host}} {{pool}} total"),
                    unit=Unit.BYTES,
                ),
                lines(
                    "Cost of the readings",
                    "CPU time of the agent for one reading.",
                    Query(f"vgpuctl_host_reading_cpu_seconds{_ON}", "{{host}}"),
                    unit=Unit.SECONDS,
                ),
                table(
                    "Values that are missing",
                    "Of how many objects; not-measurable is a limit of board, driver or mode.",
                    Query(f"vgpuctl_reading_missing{_ON}"),
                ),
            ),
        ),
    ),
    (CHOICE,),
)
