# SPDX-License-Identifier: Apache-2.0
"""The labels of a node that its host and GPUs decide: they change when its VM moves to another host."""

HOST_LABEL = "vgpuctl.io/host"
PLACE_LABELS = (
    HOST_LABEL,
    "vgpuctl.io/rack",
    "vgpuctl.io/numa-node",
    "vgpuctl.io/nvlink-domain",
    "vgpuctl.io/gpu-sharing",
    "vgpuctl.io/gpu-memory-mib",
    "vgpuctl.io/gpu-multiprocessors",
    "vgpuctl.io/gpu-percent",
)
