# SPDX-License-Identifier: Apache-2.0
"""The dashboard of one GPU or several, with the shares on it."""

from vgpuctl.telemetry.dashboards.dashboard import GPU as GPU_CHOICE
from vgpuctl.telemetry.dashboards.dashboard import HOST as HOST_CHOICE
from vgpuctl.telemetry.dashboards.dashboard import Dashboard, PanelRow, Query, Unit, lines, states, table

_ON = '{host=~"$host",gpu=~"$gpu"}'
_NAME = "{{host}} {{gpu}}"
_SHARE = "{{tenant}}/{{vm}} {{share}}"
_DCGM = 'label_replace(DCGM_FI_PROF_PIPE_TENSOR_ACTIVE, "uuid", "$1", "UUID", "(.*)")'
# A card that NVML does not show has no UUID, and each of two controllers exports every card: a join takes neither.
_BY_UUID = 'max by (uuid, host, gpu) (vgpuctl_gpu_info{uuid!="",host=~"$host",gpu=~"$gpu"})'
GPU = Dashboard(
    "gpu",
    "vgpuctl / GPU",
    "Engines, health and shares of a GPU.",
    (
        PanelRow(
            "Shares",
            (
                lines(
                    "Use of the GPU by share",
                    "Part of the whole GPU.",
                    Query(f"vgpuctl_vgpu_utilization_ratio{_ON}", _SHARE),
                    unit=Unit.RATIO,
                    is_stacked=True,
                ),
                lines(
                    "Use of the promise",
                    "1 is what is promised; more is idle time of others.",
                    Query(f"vgpuctl_vgpu_share_utilization_ratio{_ON}", _SHARE),
                    unit=Unit.RATIO,
                ),
                lines(
                    "Steal",
                    "Upper bound of what neighbours took from a share.",
                    Query(f"vgpuctl_vgpu_steal_ratio{_ON}", _SHARE),
                    unit=Unit.RATIO,
                ),
                lines(
                    "Framebuffer of shares",
                    "Part of the profile's framebuffer that the guest uses.",
                    Query(
                        f"vgpuctl_vgpu_framebuffer_used_bytes{_ON} / vgpuctl_vgpu_framebuffer_size_bytes{_ON}", _SHARE
                    ),
                    unit=Unit.RATIO,
                    most=1,
                ),
                table("Shares", "With tenant and VM.", Query(f"vgpuctl_vgpu_info{_ON}"), width=16),
            ),
        ),
        PanelRow(
            "Engines",
            (
                lines(
                    "Utilization",
                    "Parts of the last sample period.",
                    Query(f"vgpuctl_gpu_utilization_ratio{_ON}", f"{_NAME} compute"),
                    Query(f"vgpuctl_gpu_memory_activity_ratio{_ON}", f"{_NAME} memory"),
                    unit=Unit.RATIO,
                    most=1,
                ),
                lines(
                    "Video",
                    "Encoders and decoders.",
                    Query(f"vgpuctl_gpu_encoder_utilization_ratio{_ON}", f"{_NAME} encoder"),
                    Query(f"vgpuctl_gpu_decoder_utilization_ratio{_ON}", f"{_NAME} decoder"),
                    unit=Unit.RATIO,
                    most=1,
                ),
                lines(
                    "Clocks",
                    "Of multiprocessors and memory.",
                    Query(f"vgpuctl_gpu_sm_clock_hertz{_ON}", f"{_NAME} SM"),
                    Query(f"vgpuctl_gpu_memory_clock_hertz{_ON}", f"{_NAME} memory"),
                    unit=Unit.HERTZ,
                ),
                lines(
                    "Power",
                    "With the limit that is enforced.",
                    Query(f"vgpuctl_gpu_power_watts{_ON}", _NAME),
                    Query(f"vgpuctl_gpu_power_limit_watts{_ON}", f"{_NAME} limit"),
                    unit=Unit.WATTS,
                ),
                lines(
                    "Temperature",
                    "With the card's own slowdown temperature.",
                    Query(f"vgpuctl_gpu_temperature_celsius{_ON}", _NAME),
                    Query(f"vgpuctl_gpu_slowdown_temperature_celsius{_ON}", f"{_NAME} slowdown"),
                    unit=Unit.CELSIUS,
                ),
                states(
                    "Reasons of low clocks",
                    "1 while the reason keeps the clocks from their maximum.",
                    Query(f"vgpuctl_gpu_clock_event{_ON}", f"{_NAME} {{{{reason}}}}"),
                ),
                lines(
                    "Tensor cores, by dcgm-exporter",
                    "Optional: joined by UUID with a dcgm-exporter on the hosts.",
                    Query(f"{_DCGM} * on (uuid) group_left (host, gpu) {_BY_UUID}", _NAME, is_optional=True),
                    unit=Unit.RATIO,
                ),
            ),
        ),
        PanelRow(
            "Health",
            (
                lines(
                    "Xids",
                    "In the last hour.",
                    Query(f"increase(vgpuctl_gpu_xid_total{_ON}[1h])", f"{_NAME} Xid {{{{xid}}}} {{{{class}}}}"),
                ),
                lines(
                    "ECC errors",
                    "In the last hour.",
                    Query(f"increase(vgpuctl_gpu_ecc_errors_total{_ON}[1h])", f"{_NAME} {{{{severity}}}}"),
                ),
                lines(
                    "Remapped rows",
                    "In the card's life.",
                    Query(f"vgpuctl_gpu_remapped_rows_total{_ON}", f"{_NAME} {{{{cause}}}}"),
                ),
                states(
                    "Action that the driver asks for",
                    "1 for the action.",
                    Query(f"vgpuctl_gpu_recovery_action{_ON} == 1", f"{_NAME} {{{{action}}}}"),
                ),
                lines(
                    "PCIe replays",
                    "Packets per second that had to be sent again.",
                    Query(f"rate(vgpuctl_gpu_pcie_replays_total{_ON}[$__rate_interval])", _NAME),
                ),
                states(
                    "State at the host",
                    "1 for the state.",
                    Query(f"vgpuctl_gpu_state{_ON} == 1", f"{_NAME} {{{{state}}}}"),
                ),
            ),
        ),
    ),
    (HOST_CHOICE, GPU_CHOICE),
)
