# SPDX-License-Identifier: Apache-2.0
"""The tables of the inventory variable `vgpu_placing`: what placing must know of a host (docs/placement.md)."""

from vgpuctl.model.constraints import LABEL_PART
from vgpuctl.model.host_constraints import GpuConstraints, HostConstraints
from vgpuctl.specs.field import Field, Named, Number, Section, Table, Text, Whole, text_like
from vgpuctl.specs.layout_match import MATCH_FIELD
from vgpuctl.specs.vm import VM

PLACING_VARIABLE = "vgpu_placing"

_LABEL_PART = text_like(LABEL_PART, "a part of a label", hint="1 to 63 letters, digits, '.', '_', '/' or '-'")
_LABELS = Named(_LABEL_PART, _LABEL_PART, keep=frozenset)
_REASON = Text(hint="write the reason, or true")
_VCPUS = Whole(1, 64)

GPU_PLACING = Table(
    "vgpu_placing.gpus",
    GpuConstraints,
    (
        MATCH_FIELD,
        Field("labels", _LABELS, "Labels of these GPUs, beside those of the host", metavar="key to value"),
        Field(
            "quarantine",
            _REASON,
            "Take no new VM on these GPUs, for this reason (or true)",
            words={True: "it is in quarantine", False: None},
        ),
        Field("speed", Number(0.001, 1), "Speed of the GPUs against the fastest of the fleet"),
    ),
)
PLACING = Table(
    "vgpu_placing",
    HostConstraints,
    (
        Field("labels", _LABELS, "Labels of the host and of each of its GPUs", metavar="key to value"),
        Field("policy", VM.field("policy").type, "Policy of VMs that name none", metavar="POLICY"),
        Field(
            "maintenance",
            _REASON,
            "Take no new VM on the host, for this reason (or true)",
            words={True: "it is in maintenance", False: None},
        ),
        Field(
            "cpus.pinned",
            _VCPUS,
            "vCPUs for each CPU, of VMs that are pinned; false for no pinning",
            "cpu_ratio.pinned",
            words={False: None},
        ),
        Field("cpus.shared", _VCPUS, "vCPUs for each CPU, of all other VMs", "cpu_ratio.shared"),
        Field("gpus", GPU_PLACING, "Labels, quarantine and speed of single GPUs", is_list=True),
    ),
    (Section("cpus", "vCPUs promised for each CPU", "cpu_ratio"),),
)
