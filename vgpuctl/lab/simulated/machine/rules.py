# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's resource manager: which vGPUs a card can still take (reference 2.2), without MIG, equal sizes."""

import time

from vgpuctl.lab.simulated.machine.shape import MDEV_VF, VF_PROFILE, Card, Shape, VgpuType
from vgpuctl.lab.simulated.machine.state import State, Vgpu

OK = 0
INSUFFICIENT_RESOURCES = 0x1A
INVALID_OPERATION = 0x38
INVALID_STATE = 0x40
NOT_SUPPORTED = 0x56
OBJECT_NOT_FOUND = 0x57
BUSY_RETRY = 0x66
DRIVER = "nvidia"


def status(state: State, card: Card, function: str, wanted: VgpuType | None) -> int:
    """RM's answer to a request for one vGPU of this type on this function."""
    if wanted is None:
        return OBJECT_NOT_FOUND
    # VFs outlive the PF's driver while sriov-manage has the PF on pci-pf-stub.
    if state.drivers.get(card.address) != DRIVER or card.address in state.unbind_locks:
        return INVALID_STATE
    existing = state.vgpus_of(card)
    if _is_on_vfs(card) and any(vgpu.function == function for vgpu in existing):
        return INVALID_OPERATION
    if not existing:
        return OK
    first = card.type_of(existing[0].type_id)
    # Equal size means equal framebuffer, whatever the series.
    if first is None or first.framebuffer_mib != wanted.framebuffer_mib:
        return NOT_SUPPORTED
    return INSUFFICIENT_RESOURCES if len(existing) >= wanted.max_instances else OK


def available(state: State, card: Card, function: str, wanted: VgpuType) -> int:
    """What `available_instances` says on this function; a VF can only say 0 or 1."""
    if status(state, card, function, wanted) != OK:
        return 0
    return 1 if _is_on_vfs(card) else wanted.max_instances - len(state.vgpus_of(card))


def add(state: State, card: Card, function: str, wanted: VgpuType, uuid: str | None = None) -> Vgpu:
    """Put a vGPU on a function that may have it."""
    size = max(wanted.framebuffer_mib // 1024, 1)
    taken = {vgpu.placement for vgpu in state.vgpus_of(card)}
    placement = next(place for place in range(0, size * (len(taken) + 1), size) if place not in taken)
    vgpu = Vgpu(card.address, function, wanted.type_id, placement, uuid=uuid)
    if uuid is not None:
        vgpu.group, state.next_group = state.next_group, state.next_group + 1
    state.vgpus.append(vgpu)
    return vgpu


def still_winds_down(shape: Shape, vgpu: Vgpu) -> bool:
    """Whether the VM ended so short ago that the driver does not let go of its vGPU yet."""
    return vgpu.closed_at is not None and time.time() < vgpu.closed_at + shape.removal_delay_s


def _is_on_vfs(card: Card) -> bool:
    return card.interface in (MDEV_VF, VF_PROFILE)
