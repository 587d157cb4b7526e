# SPDX-License-Identifier: Apache-2.0
"""vGPU types by their names: a share promises a type by name. Ids are the driver's, and an update may change them.

Source: reference 3.5 (ids are data read from the host), 4.1 (what names a type that is in use).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.model.lease import Lease, Share
from vgpuctl.sharing.occupancy import ExistingVgpu, gpu_at


def names_on(gpu: Gpu) -> dict[str, str]:
    """{type id: short name} of the types that the driver of a GPU names now."""
    return {one.type_id: catalog.short_name(one.name) for one in gpu.types if one.is_named}


def likely_name(gpu: Gpu, type_id: str) -> str | None:
    """The short name of an id: of the driver, else of its package, else of the catalogue. None where none has one.

    The catalogue is not asked where the driver numbers any type in another way: it has the ids of some driver.
    """
    offered = next((one for one in gpu.types if one.type_id == type_id), None)
    if offered is not None and (offered.is_named or offered.is_guessed):
        return catalog.short_name(offered.name)
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    known = catalog.type_by_id(board, type_id) if board is not None else None
    if board is None or known is None:
        return None
    for number, name in names_on(gpu).items():
        other = catalog.type_by_id(board, number)
        if name == known.name or (other is not None and other.name != name):
            return None
    return known.name


def has_type_of(vgpu: ExistingVgpu, share: Share) -> bool:
    """True if a vGPU that exists is of the type that a share promises. Without a name the id decides."""
    if vgpu.profile is None or share.type_id is None or _is_unnamed(share):
        return vgpu.type_id == share.type_id
    return vgpu.profile == share.profile


def numbered_now(share: Share, gpu: Gpu) -> Share:
    """The share with the id that the driver gives its type now, as it is where the driver does not tell."""
    if share.type_id is None or _is_unnamed(share):
        return share
    now = next((number for number, name in names_on(gpu).items() if name == share.profile), share.type_id)
    return share if now == share.type_id else replace(share, type_id=now)


def renumbered(leases: Sequence[Lease], facts: HostFacts) -> Iterator[tuple[Lease, Share]]:
    """The leases of a host whose types have another id by its driver now, each with the share of that id."""
    named: dict[str, dict[str, str]] = {}
    for lease in leases:
        gpu, share = gpu_at(facts, lease.share.gpu), lease.share
        if gpu is None or share.type_id is None:
            continue
        if gpu.address not in named:
            named[gpu.address] = names_on(gpu)
        if named[gpu.address].get(share.type_id) != share.profile:
            now = numbered_now(share, gpu)
            if now != share:
                yield lease, now


def other_type(share: Share, vgpu: ExistingVgpu) -> str | None:
    """Say that a vGPU with the name of a share's device is of another type than was promised; None if it is not."""
    if vgpu.type_id is None or has_type_of(vgpu, share):
        return None
    return f"{vgpu.vfio_device} carries {describe_type(vgpu)} now, not {share.profile}"


def refuse_type_gone(share: Share, gpu: Gpu) -> str | None:
    """Say that the driver of a GPU has no type of a share's name now; None where it has, or does not tell."""
    names = names_on(gpu)
    if share.type_id is None or _is_unnamed(share) or not names or share.profile in names.values():
        return None
    if any(one.is_guessed and catalog.short_name(one.name) == share.profile for one in gpu.types):
        return None
    former = names.get(share.type_id)
    its_id = f"its id {share.type_id} is {former} now" if former is not None else f"it was type {share.type_id}"
    return f"the driver of GPU {gpu.address} has no type {share.profile} now; {its_id}"


def describe_type(vgpu: ExistingVgpu) -> str:
    """The type of a vGPU in words: `A40-8Q (type 562)`."""
    number = vgpu.type_id or "unknown"
    return f"a vGPU of type {number}" if vgpu.profile is None else f"{vgpu.profile} (type {number})"


def _is_unnamed(share: Share) -> bool:
    """True of a device that was taken for a share by the number of its type, since nothing named it."""
    return share.type_id is not None and share.profile in (share.type_id, f"type {share.type_id}")
