# SPDX-License-Identifier: Apache-2.0
"""vGPUs that exist before any VM asks for them: mdevs, or types on VFs, of which there are at least as many."""

import difflib
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from vgpuctl.agent.wire.facts import Gpu, VgpuType
from vgpuctl.agent.wire.sharing import VGPU_STEPS
from vgpuctl.agent.wire.vf_health import is_usable
from vgpuctl.catalog import is_mig_backed, mixed_size_table, short_name, type_by_name
from vgpuctl.planner.layout.result import Phase
from vgpuctl.planner.layout.work import GpuWork
from vgpuctl.sharing.kinds import existing_vgpus, vgpu_kind_of, vgpu_kind_on
from vgpuctl.sharing.occupancy import ExistingVgpu
from vgpuctl.sharing.type_names import likely_name

_NAMESPACE = uuid.UUID("3b6b2d5f-5c1f-5f0e-9c55-0b7f1d1f7a10")


def ensure(work: GpuWork, shares: Sequence[tuple[str, int]], params: str = "") -> None:
    """Make what is missing of each type. One that exists counts, whoever uses it.

    params: of each vGPU. Idle ones that a layout made get them now; a VM's gets them when it starts.

    The UUID of an mdev follows from host, GPU, type and number, so that the same layout makes the same device again.
    Types and VFs are known only once the GPU stands otherwise as declared: until then they come later.
    """
    existing = existing_vgpus(work.gpu)
    counts = Counter(name_of(vgpu, work.gpu) for vgpu in existing)
    offered = {short_name(one.name): one for one in work.gpu.types}
    if work.heterogeneous:
        shares = sorted(shares, key=lambda one: (-(offered[one[0]].placement_size if one[0] in offered else 0), one[0]))
    is_packed_anew = _needs_packing(work, shares, counts, offered)
    gone = _take_away_excess(work, dict(shares), counts, is_all=is_packed_anew)
    if is_packed_anew and not _has_places(work, shares):
        listed = ", ".join(f"{wanted} x {name}" for name, wanted in shares)
        work.block("no-room", f"{work.address} has no places for {listed} beside the vGPUs that stay")
    uuids = {vgpu.mdev_uuid for vgpu in existing}
    free = _free_functions(work)
    changes_mode = bool(work.heterogeneous) != bool(work.gpu.heterogeneous)
    for name, wanted in shares:
        offer = offered.get(name)
        found = counts[name]
        if found >= wanted and not work.is_rebuilt:
            continue
        if found < wanted:
            work.differ("shares", f"{wanted} x {name}", found)
        if work.is_rebuilt or changes_mode or not work.gpu.types:
            work.later.append(f"{work.address}: {wanted} x {name}, once the steps before are done")
            continue
        if offer is None:
            work.block("type-not-offered", not_offered(work, name))
            continue
        missing = wanted - found
        is_short = offer.creatable < missing and gone and not _is_full(work, offer, missing, counts)
        if is_packed_anew or is_short:
            work.later.append(f"{work.address}: {wanted} x {name}, once the others are gone")
            continue
        if offer.creatable < missing:
            stays = ", ".join(sorted(one for one, count in counts.items() if count and one != name))
            beside = f" beside {stays}" if gone and stays else ""
            reason = f"{work.address} can create {offer.creatable} more {name}{beside}, the layout needs {missing}"
            work.block("no-room", reason)
            continue
        for number in range(missing):
            if not _make(work, offer, name, found + number, free, uuids, params):
                break
    if not work.is_rebuilt:
        _ensure_params(work, params)


def not_offered(work: GpuWork, name: str) -> str:
    """Say that a GPU does not offer a type, with the names near it."""
    near = difflib.get_close_matches(name, {short_name(one.name) for one in work.gpu.types}, n=3)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"{work.name} at {work.address} does not offer {name}{meant}"


def _ensure_params(work: GpuWork, params: str) -> None:
    """Write the parameters of vGPUs that a layout made and nobody uses. The step that makes one changes them too."""
    gone = {planned.step.device for planned in work.steps if isinstance(planned.step, VGPU_STEPS)}
    for vgpu in work.idle_shares:
        found = vgpu.params or ""
        if found == params or vgpu.device in gone or vgpu.vfio_device in gone or vgpu.type_id is None:
            continue
        make = vgpu_kind_of(vgpu).make
        work.differ("vgpu-params", params or "none", f"{found or 'none'} of {vgpu.vfio_device}")
        work.add(
            Phase.SHARES,
            replace(make(vgpu), params=params),
            f"set the parameters of the idle share {vgpu.vfio_device} to {params or 'none'}",
            undo=(replace(make(vgpu), params=found),),
        )


def tear_down(work: GpuWork) -> None:
    """Take away every share that a layout made and nobody uses, because what carries it changes."""
    for vgpu in work.idle_shares:
        _take_away(work, vgpu, Phase.TEAR_DOWN)
        work.is_rebuilt = True
    work.idle_shares = []
    work.free_instances()


def share_uuid(hostname: str, address: str, name: str, number: int, taken: Collection[str | None]) -> str:
    """The UUID of the mdev that is share `number` of a type on a GPU, or of the next one that is not taken."""
    while True:
        identity = str(uuid.uuid5(_NAMESPACE, f"{hostname}/{address}/{name}/{number}"))
        if identity not in taken:
            return identity
        number += 1


def name_of(vgpu: ExistingVgpu, gpu: Gpu) -> str:
    """The name of a vGPU's type, by which a layout means it; the id where nothing tells the name."""
    if vgpu.type_id is None:
        return "unknown"
    return vgpu.profile or likely_name(gpu, vgpu.type_id) or vgpu.type_id


def _take_away_excess(work: GpuWork, wanted: dict[str, int], counts: Counter[str], *, is_all: bool) -> int:
    gone = 0
    for vgpu in reversed(work.idle_shares):
        name = name_of(vgpu, work.gpu)
        is_excess = counts[name] > wanted.get(name, 0)
        if is_excess:
            work.differ("shares", f"{wanted.get(name, 0)} x {name}", counts[name])
        if is_excess or is_all:
            _take_away(work, vgpu, Phase.SHARES)
            counts[name] -= 1
            gone += 1
    return gone


def _needs_packing(
    work: GpuWork, shares: Sequence[tuple[str, int]], counts: Counter[str], offered: Mapping[str, VgpuType]
) -> bool:
    """True if what is missing on a GPU of mixed sizes finds no place beside idle shares, even those that would stay.

    Their places are the driver's choice, and nothing moves: all idle shares go, and the largest come first.
    """
    if not work.heterogeneous or work.is_rebuilt or not work.idle_shares:
        return False
    return any(name in offered and offered[name].creatable < wanted - counts[name] for name, wanted in shares)


def _has_places(work: GpuWork, shares: Sequence[tuple[str, int]]) -> bool:
    """True if a layout's shares find their places beside the VMs' (reference 3.3), the largest first.

    It is taken for true where the places of a type, or of a vGPU that stays, are not known.
    """
    table = None if work.board is None else mixed_size_table(work.board)
    places = {lease.share.device: (lease.share.placement_start, lease.share.profile) for lease in work.leases}
    if table is None or work.board is None or any(one.device not in places for one in work.users):
        return True
    taken: list[tuple[int, int]] = []
    kept: Counter[str] = Counter()
    for start, name in places.values():
        known = type_by_name(work.board, name)
        if start is None or known is None or known.placement_size is None:
            return True
        taken.append((start, start + known.placement_size))
        kept[name] += 1
    for name, wanted in shares:
        known = type_by_name(work.board, name)
        if known is None or known.placement_size not in table.sizes:
            return True
        for _ in range(wanted - kept[name]):
            size = known.placement_size
            starts = table.sizes[size]
            free = [start for start in starts if all(start + size <= low or high <= start for low, high in taken)]
            if not free:
                return False
            taken.append((free[0], free[0] + size))
    return True


def _is_full(work: GpuWork, offer: VgpuType, missing: int, staying: Counter[str]) -> bool:
    """True if what stays leaves no room once the others are gone, as far as that is known before.

    staying: how many of each type. Time-sliced vGPUs of one size only unless sizes may mix (reference 3.3).
    """
    sizes = {short_name(one.name): one.framebuffer_mib for one in work.gpu.types}
    there = {name: count for name, count in staying.items() if count and sizes.get(name) is not None}
    if not work.heterogeneous and not is_mig_backed(offer.name):
        if any(sizes[name] != offer.framebuffer_mib for name in there):
            return True
        return offer.max_instances is not None and sum(there.values()) + missing > offer.max_instances
    return False


def _take_away(work: GpuWork, vgpu: ExistingVgpu, phase: Phase) -> None:
    kind = vgpu_kind_of(vgpu)
    undo = () if vgpu.type_id is None else (kind.make(vgpu),)
    work.add(phase, kind.remove(vgpu), f"delete the idle share {vgpu.vfio_device}", undo=undo)


def _make(
    work: GpuWork,
    offer: VgpuType,
    name: str,
    number: int,
    free: Iterator[str],
    uuids: set[str | None],
    params: str,
) -> bool:
    kind = vgpu_kind_on(work.gpu)
    function = next(free, None) if kind is None or kind.is_on_vf else work.address
    if kind is None or function is None:
        work.block("no-free-vf", f"{work.address} has no free VF for {name}")
        return False
    identity = None
    if kind.has_uuid:
        identity = share_uuid(work.hostname, work.address, name, number, uuids)
        uuids.add(identity)
    vgpu = ExistingVgpu(work.address, kind.sharing, function, offer.type_id, identity, params or None, name)
    work.add(Phase.SHARES, kind.make(vgpu), kind.describe_make(vgpu, name), undo=(kind.remove(vgpu),))
    return True


def _free_functions(work: GpuWork) -> Iterator[str]:
    taken = {*work.promised, *(user.device for user in work.users)} | {
        vgpu.function for vgpu in existing_vgpus(work.gpu)
    }
    for function in work.gpu.vfs:
        is_free = not (function.holders or function.problem)
        can_carry = not work.is_nvidia or is_usable(function)
        if is_free and can_carry and function.address not in taken:
            yield function.address
