# SPDX-License-Identifier: Apache-2.0
"""vGPUs that exist before any VM asks for them: mdevs, or types on VFs, of which there are at least as many."""

import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from vgpuctl.agent.wire.facts import VgpuType
from vgpuctl.agent.wire.steps import CreateMdev, DeleteMdev, SetVgpuType, Step
from vgpuctl.agent.wire.vf_health import is_usable
from vgpuctl.catalog import short_name
from vgpuctl.model.occupancy import ExistingVgpu, existing_vgpus, has_type
from vgpuctl.model.sharing import Sharing
from vgpuctl.planner.layout.result import Phase
from vgpuctl.planner.layout.work import GpuWork

_NAMESPACE = uuid.UUID("3b6b2d5f-5c1f-5f0e-9c55-0b7f1d1f7a10")


def ensure(work: GpuWork, shares: Sequence[tuple[str, int]]) -> None:
    """Make what is missing of each type. One that exists counts, whoever uses it.

    The UUID of an mdev follows from host, GPU, type and number, so that the same layout makes the same device again.
    Types and VFs are known only once the GPU stands otherwise as declared: until then they come later.
    """
    existing = existing_vgpus(work.gpu)
    counts = Counter(vgpu.type_id for vgpu in existing)
    gone = _take_away_excess(work, dict(shares), counts)
    offered = {short_name(one.name): one for one in work.gpu.types}
    uuids = {vgpu.mdev_uuid for vgpu in existing}
    free = _free_functions(work)
    for name, wanted in shares:
        offer = offered.get(name)
        found = counts[offer.type_id] if offer else 0
        if found >= wanted and not work.is_rebuilt:
            continue
        if found < wanted:
            work.differ("shares", f"{wanted} x {name}", found)
        if work.is_rebuilt or not work.gpu.types:
            work.later.append(f"{work.address}: {wanted} x {name}, once the steps before are done")
            continue
        if offer is None:
            work.block("type-not-offered", f"{work.name} at {work.address} does not offer {name}")
            continue
        missing = wanted - found
        if offer.creatable < missing and gone:
            work.later.append(f"{work.address}: {wanted} x {name}, once the others are gone")
            continue
        if offer.creatable < missing:
            work.block(
                "no-room",
                f"{work.address} can create {offer.creatable} more {name}, the layout needs {missing}",
                disturbs=work.users,
            )
            continue
        for number in range(missing):
            if not _make(work, offer, name, found + number, free, uuids):
                break


def tear_down(work: GpuWork) -> None:
    """Take away every share that a layout made and nobody uses, because what carries it changes."""
    for vgpu in work.idle_shares:
        _take_away(work, vgpu, Phase.TEAR_DOWN)
        work.is_rebuilt = True
    work.idle_shares = []


def share_uuid(hostname: str, address: str, name: str, number: int, taken: Collection[str | None]) -> str:
    """The UUID of the mdev that is share `number` of a type on a GPU, or of the next one that is not taken."""
    while True:
        identity = str(uuid.uuid5(_NAMESPACE, f"{hostname}/{address}/{name}/{number}"))
        if identity not in taken:
            return identity
        number += 1


def _take_away_excess(work: GpuWork, wanted: dict[str, int], counts: Counter[str | None]) -> int:
    gone = 0
    names = {one.type_id: short_name(one.name) for one in work.gpu.types}
    for vgpu in reversed(work.idle_shares):
        name = names.get(vgpu.type_id or "", vgpu.type_id or "unknown")
        if counts[vgpu.type_id] > wanted.get(name, 0):
            work.differ("shares", f"{wanted.get(name, 0)} x {name}", counts[vgpu.type_id])
            _take_away(work, vgpu, Phase.SHARES)
            counts[vgpu.type_id] -= 1
            gone += 1
    return gone


def _take_away(work: GpuWork, vgpu: ExistingVgpu, phase: Phase) -> None:
    step: Step
    undo: tuple[Step, ...] = ()
    if vgpu.mdev_uuid is not None:
        step = DeleteMdev(vgpu.mdev_uuid)
        if vgpu.type_id is not None:
            undo = (CreateMdev(vgpu.function, vgpu.type_id, vgpu.mdev_uuid),)
    else:
        step = SetVgpuType(vgpu.function, "0")
        if vgpu.type_id is not None:
            undo = (SetVgpuType(vgpu.function, vgpu.type_id),)
    work.add(phase, step, f"delete the idle share {vgpu.mdev_uuid or vgpu.function}", undo=undo)


def _make(work: GpuWork, offer: VgpuType, name: str, number: int, free: Iterator[str], uuids: set[str | None]) -> bool:
    step: Step
    undo: Step
    on_pf = Sharing.MDEV in work.gpu.sharing
    function = work.address if on_pf else next(free, None)
    if function is None:
        work.block("no-free-vf", f"{work.address} has no free VF for {name}", disturbs=work.users)
        return False
    if Sharing.VF_PROFILE in work.gpu.sharing:
        step, undo = SetVgpuType(function, offer.type_id), SetVgpuType(function, "0")
        summary = f"set vGPU type {offer.type_id} ({name}) on VF {function}"
    else:
        identity = share_uuid(work.hostname, work.address, name, number, uuids)
        uuids.add(identity)
        step, undo = CreateMdev(function, offer.type_id, identity), DeleteMdev(identity)
        summary = f"create mdev {identity} of {name} on {function}"
    work.add(Phase.SHARES, step, summary, undo=(undo,))
    return True


def _free_functions(work: GpuWork) -> Iterator[str]:
    taken = {user.device for user in work.users}
    for function in work.gpu.vfs:
        is_free = not (has_type(function) or function.mdev_uuid or function.holders or function.problem)
        can_carry = not work.is_nvidia or is_usable(function)
        if is_free and can_carry and function.address not in taken:
            yield function.address
