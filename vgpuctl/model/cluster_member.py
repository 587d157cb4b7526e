# SPDX-License-Identifier: Apache-2.0
"""A node as its cluster tells of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ClusterMember:
    """A node of a Kubernetes or Slurm cluster, as it was just read.

    provider_id: what its kubelet registered with; "" in Slurm, and where it has none. is_ready: Kubernetes says Ready;
    in Slurm slurmd is registered and answers. is_cordoned: it takes no new work (unschedulable; draining or drained).
    has_our_cordon: vgpuctl made it so.
    is_off: Slurm has it powered down or powering down. reason: why Slurm has it down or drained. allocatable: what pods
    may use, by resource, as Kubernetes writes quantities. labels: those of its place alone
    (place_labels.py).
    """

    name: str
    provider_id: str = ""
    is_ready: bool = False
    is_cordoned: bool = False
    has_our_cordon: bool = False
    is_off: bool = False
    reason: str = ""
    allocatable: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
