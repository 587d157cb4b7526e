# SPDX-License-Identifier: Apache-2.0
"""Rules of a GPU's driver for its vGPUs, as NVML tells them. Python 3.9, standard library only."""

from typing import Optional, Tuple

from vgpuctl.agent.wire.values import dataclass


@dataclass(frozen=True)
class VgpuAbilities:
    """Rules of one GPU for its vGPUs; None for each that the driver does not tell.

    fractional: several vGPUs that are parts of this GPU's model may be in one VM. mixed_types, mixed_sizes: time-sliced
    vGPUs of several types, and of several framebuffer sizes, may run on it at once. alone_in_vm: ids of the types that
    no other type may be beside in a VM; alone_by_type, alone_by_size: of those that no other type, and no other size,
    may be beside on the GPU. problems: what did not answer, as sentences; it keeps no VM away, for the driver refuses
    by itself.
    Source: nvml.h 13.3, nvmlDeviceVgpuCapability_t and nvmlVgpuCapability_t.
    """

    fractional: Optional[bool] = None
    mixed_types: Optional[bool] = None
    mixed_sizes: Optional[bool] = None
    alone_in_vm: Optional[Tuple[str, ...]] = None
    alone_by_type: Optional[Tuple[str, ...]] = None
    alone_by_size: Optional[Tuple[str, ...]] = None
    problems: Tuple[str, ...] = ()
