# SPDX-License-Identifier: Apache-2.0
"""A share's device on its host, as the facts show it."""

from collections.abc import Iterable, Sequence

from vgpuctl.agent.wire.facts import Gpu, Holder, HostFacts
from vgpuctl.model.gpu_positions import placed_gpus
from vgpuctl.model.lease import Lease, Share
from vgpuctl.model.vm import Vm
from vgpuctl.sharing.kinds import existing_vgpus, kind_of, vgpu_kind_of
from vgpuctl.sharing.matching import can_be_of
from vgpuctl.sharing.occupancy import gpu_at, vf_at
from vgpuctl.sharing.type_names import has_type_of


def holders_of(facts: HostFacts, share: Share) -> Sequence[Holder] | None:
    """The processes that hold a share's device; None where there is none, or one of another type or function."""
    for gpu in facts.gpus:
        if share.mdev_uuid is not None:
            for mdev in gpu.mdevs:
                if mdev.uuid == share.mdev_uuid and _is_made(gpu, share):
                    return mdev.holders
        elif share.function == gpu.address:
            return gpu.holders
        else:
            for vf in gpu.vfs:
                if vf.address == share.function and _is_made(gpu, share):
                    return vf.holders
    return None


def missing_card(vm: Vm, lease: Lease, facts: HostFacts) -> str | None:
    """Say that the card of a VM's share is gone from its slot, or that another model is there now; None if neither."""
    gpu = gpu_at(facts, lease.share.gpu)
    if gpu is None:
        return f"the host has no GPU at {lease.share.gpu} any more"
    board = next((one.board for one in placed_gpus(vm.request.gpus) if one.position == lease.index), None)
    if not can_be_of(lease.share, gpu, board):
        return f"another card is at {gpu.address} now: {gpu.name or gpu.device_id}"
    return None


def misplaced(held: Share, facts: HostFacts) -> str | None:
    """Say that the mdev with the UUID of a share is on another function than was promised; None if it is not."""
    for vgpu in (one for gpu in facts.gpus for one in existing_vgpus(gpu)):
        if vgpu.vfio_device == held.mdev_uuid and vgpu.function != held.function:
            remedy = vgpu_kind_of(vgpu).removal_by_hand(vgpu)
            return (
                f"its mdev {held.mdev_uuid} is on {vgpu.function} now, not on {held.function}; to remove it: {remedy}"
            )
    return None


def is_lost(vm: Vm, lease: Lease, facts: HostFacts) -> bool:
    """True if the host does not have the device of a VM's share; False where it could not be read."""
    gpu = gpu_at(facts, lease.share.gpu)
    if is_unread(facts, lease.share) or (gpu is not None and gpu.unread):
        return False
    if holders_of(facts, lease.share) is None:
        return True
    return missing_card(vm, lease, facts) is not None


def is_unread(facts: HostFacts, held: Share) -> bool:
    """True if the facts do not show a device since it could not be read.

    A function without a readable class may be the card or the VF by its address; on the bus of a card that the facts do
    not show, something may be wrong with the bus. An unread function elsewhere is another device.
    """
    gpu, unread = gpu_at(facts, held.gpu), {one.address for one in facts.unread_functions}
    if unread & {held.gpu, held.function} or (gpu is None and _buses(unread) & _buses((held.gpu, held.function))):
        return True
    function = vf_at(gpu, held.function) if gpu is not None else None
    if function is not None:
        return function.problem is not None
    return gpu is not None and bool(gpu.unread) and kind_of(held.sharing).is_on_vf and not gpu.vfs


def _buses(addresses: Iterable[str]) -> set[str]:
    """The buses of PCI addresses: `0000:41` of `0000:41:00.4`."""
    return {address.rpartition(":")[0] for address in addresses}


def _is_made(gpu: Gpu, share: Share) -> bool:
    """True if the GPU has the share's vGPU, on its function and of the type that was promised; a plain VF has none."""
    if share.type_id is None:
        return True
    wanted = (share.vfio_device, share.function)
    return any((one.vfio_device, one.function) == wanted and has_type_of(one, share) for one in existing_vgpus(gpu))
