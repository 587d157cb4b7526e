# SPDX-License-Identifier: Apache-2.0
"""The dashboard of one tenant or several."""

from vgpuctl.telemetry.dashboards.dashboard import TENANT as CHOICE
from vgpuctl.telemetry.dashboards.dashboard import Dashboard, PanelRow, Query, Unit, bars, lines, stat, states, table

_OF = '{tenant=~"$tenant"}'
_NODES = "{{tenant}}/{{node_pool}}"
_VM = "{{tenant}}/{{vm}}"
TENANT = Dashboard(
    "tenant",
    "vgpuctl / Tenant",
    "What a tenant was promised, what it gets, and what its VMs do.",
    (
        PanelRow(
            "Promise",
            (
                stat("GPUs promised", "Sum of the shares.", f"sum(tenant:vgpuctl_vgpu_promised:sum{_OF})"),
                stat("GPUs used", "Sum of the shares.", f"sum(tenant:vgpuctl_vgpu_utilization:sum{_OF})"),
                stat("Steal", "GPUs that neighbours cost at most.", f"sum(tenant:vgpuctl_vgpu_steal:sum{_OF})"),
                stat("vGPUs", "That run.", f"sum(tenant:vgpuctl_vgpu_promised:count{_OF})"),
                stat(
                    "Framebuffer used",
                    "Of what is promised.",
                    f"sum(tenant:vgpuctl_vgpu_framebuffer_used_bytes:sum{_OF})"
                    f" / sum(tenant:vgpuctl_vgpu_framebuffer_size_bytes:sum{_OF})",
                    Unit.RATIO,
                ),
                stat("VMs in the queue", "That wait.", f"sum(vgpuctl_queue_entries{_OF}) or vector(0)"),
                lines(
                    "Use of the promise by VM",
                    "1 is what is promised; more is idle time of others.",
                    Query(f"vgpuctl_vgpu_share_utilization_ratio{_OF}", f"{_VM} {{{{share}}}}"),
                    unit=Unit.RATIO,
                ),
                lines(
                    "Steal by VM",
                    "Upper bound of what neighbours took.",
                    Query(f"vgpuctl_vgpu_steal_ratio{_OF}", f"{_VM} {{{{share}}}}"),
                    unit=Unit.RATIO,
                ),
                lines(
                    "Framebuffer by VM",
                    "Part of the profile's framebuffer that is used.",
                    Query(
                        f"vgpuctl_vgpu_framebuffer_used_bytes{_OF} / vgpuctl_vgpu_framebuffer_size_bytes{_OF}",
                        f"{_VM} {{{{share}}}}",
                    ),
                    unit=Unit.RATIO,
                    most=1,
                ),
            ),
        ),
        PanelRow(
            "Quota",
            (
                bars(
                    "Use of the quota",
                    "By resource.",
                    Query(f"tenant:vgpuctl_tenant_quota_used:ratio{_OF}", "{{tenant}} {{resource}}"),
                    Unit.RATIO,
                    most=1,
                    warn=0.8,
                    fail=0.9,
                ),
                table(
                    "Quota",
                    "Used of each resource.",
                    Query(f"vgpuctl_tenant_quota_used{_OF}"),
                    width=16,
                ),
            ),
        ),
        PanelRow(
            "Node pools",
            (
                states(
                    "Nodes by state",
                    "Of each pool.",
                    Query(f"vgpuctl_node_pool_nodes{_OF} > 0", f"{_NODES} {{{{state}}}}"),
                ),
                lines(
                    "Available nodes",
                    "With the minimum and the maximum of the pool.",
                    Query(f"vgpuctl_node_pool_available_nodes{_OF}", f"{_NODES} available"),
                    Query(f"vgpuctl_node_pool_minimum{_OF}", f"{_NODES} minimum"),
                    Query(f"vgpuctl_node_pool_maximum{_OF}", f"{_NODES} maximum"),
                ),
                lines(
                    "Longest wait of a node",
                    "For its VM or its cluster.",
                    Query(f"vgpuctl_node_pool_oldest_wait_seconds{_OF}", _NODES),
                    unit=Unit.SECONDS,
                ),
            ),
        ),
        PanelRow(
            "VMs",
            (
                states(
                    "States",
                    "Of VMs in the store.",
                    Query(f"vgpuctl_vm_declared_state{_OF} == 1", f"{_VM} {{{{state}}}}"),
                ),
                lines(
                    "CPUs used",
                    "By each VM.",
                    Query(f"rate(vgpuctl_vm_cpu_seconds_total{_OF}[$__rate_interval])", _VM),
                ),
                lines(
                    "CPU steal",
                    "CPUs that virtual CPUs waited for.",
                    Query(f"rate(vgpuctl_vm_vcpu_steal_seconds_total{_OF}[$__rate_interval])", _VM),
                ),
                lines(
                    "Memory",
                    "That each VM has.",
                    Query(f"vgpuctl_vm_memory_current_bytes{_OF}", _VM),
                    unit=Unit.BYTES,
                ),
                lines(
                    "Network",
                    "Received and sent by each VM.",
                    Query(
                        f"sum by (tenant, vm) (rate(vgpuctl_vm_network_received_bytes_total{_OF}[$__rate_interval]))",
                        f"{_VM} received",
                    ),
                    Query(
                        f"sum by (tenant, vm) (rate(vgpuctl_vm_network_sent_bytes_total{_OF}[$__rate_interval]))",
                        f"{_VM} sent",
                    ),
                    unit=Unit.BYTES_RATE,
                ),
                lines(
                    "Disk",
                    "Read and written by each VM.",
                    Query(
                        f"sum by (tenant, vm) (rate(vgpuctl_vm_block_read_bytes_total{_OF}[$__rate_interval]))",
                        f"{_VM} read",
                    ),
                    Query(
                        f"sum by (tenant, vm) (rate(vgpuctl_vm_block_written_bytes_total{_OF}[$__rate_interval]))",
                        f"{_VM} written",
                    ),
                    unit=Unit.BYTES_RATE,
                ),
            ),
        ),
        PanelRow(
            "Licences and drivers",
            (
                table(
                    "Licences",
                    "The state that each vGPU is in.",
                    Query(f"vgpuctl_vgpu_license_state{_OF} == 1"),
                    width=12,
                ),
                table(
                    "Seats of licences",
                    "That its VMs hold, and that come back when the server's lease ends.",
                    Query(f"vgpuctl_tenant_licence_seats{_OF}"),
                    width=12,
                ),
                table("Guest drivers", "By version.", Query(f"vgpuctl_vgpu_guest_driver_info{_OF}"), width=12),
            ),
        ),
    ),
    (CHOICE,),
)
