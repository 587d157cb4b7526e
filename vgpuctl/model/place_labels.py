# SPDX-License-Identifier: Apache-2.0
"""The labels of a node that its host and GPUs decide: they change when its VM moves to another host."""

HOST = "vgpuctl.io/host"
RACK = "vgpuctl.io/rack"
NUMA_NODE = "vgpuctl.io/numa-node"
NVLINK_DOMAIN = "vgpuctl.io/nvlink-domain"
GPU_SHARING = "vgpuctl.io/gpu-sharing"
GPU_MEMORY = "vgpuctl.io/gpu-memory-mib"
GPU_MULTIPROCESSORS = "vgpuctl.io/gpu-multiprocessors"
GPU_PERCENT = "vgpuctl.io/gpu-percent"

PLACE_LABELS = (HOST, RACK, NUMA_NODE, NVLINK_DOMAIN, GPU_SHARING, GPU_MEMORY, GPU_MULTIPROCESSORS, GPU_PERCENT)
