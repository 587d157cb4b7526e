# SPDX-License-Identifier: Apache-2.0
"""The charge of a VM and its shares, in the units of quotas.

The sharing kinds are imported late: every command reads the store, which is above this file, and few charge anything.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from vgpuctl import catalog
from vgpuctl.catalog.names import gpu_instance_slices
from vgpuctl.model.interfaces import interfaces_of
from vgpuctl.model.lease import Share
from vgpuctl.model.vm import VmRequest
from vgpuctl.quota.resources import RATES, SHARES, WITHOUT_LIMIT, Resource
from vgpuctl.quota.vm_limits import limits_of

if TYPE_CHECKING:
    from vgpuctl.agent.wire.facts import Gpu

Amounts = Mapping[str, int]
"""Amounts by resource; one that is not there is 0."""

MIG_COMPUTE_SLICES = 7
"""Compute slices of a GPU that MIG can divide; catalogue tables name their own number where it differs."""


_WHOLE = 1000
"""Thousandths of a GPU."""


def of_request(request: VmRequest) -> dict[str, int]:
    """The known part of a new VM's charge before it is placed: framebuffer and MIG compute only where named."""
    from vgpuctl.sharing.kinds import asks_for_card

    amounts: Counter[str] = Counter(of_new_guest(request))
    for gpu in request.gpus:
        if asks_for_card(gpu):
            amounts[Resource.CARDS] += gpu.count
            amounts[Resource.COMPUTE] += gpu.count * _WHOLE
        elif gpu.profile is not None:
            for name in _counted_as(gpu.profile, gpu.board):
                amounts[SHARES + name] += gpu.count
    return dict(amounts)


def of_guest(request: VmRequest) -> dict[str, int]:
    """The charge of a VM without its GPUs and disks, for as long as it exists."""
    found: dict[str, int] = {Resource.VMS: 1, Resource.VCPUS: request.vcpus, Resource.MEMORY: request.memory_mib}
    nics = len(interfaces_of(request))
    return {**found, **({Resource.NICS: nics} if nics else {}), **rates_of(request)}


def rates_of(request: VmRequest) -> dict[str, int]:
    """The sums of the limits of a VM's disks and interfaces; one without a limit counts as one with the highest.

    The definition of an adopted VM is somebody else's, who may change it: it counts as one disk and one interface
    without a limit.
    """
    if request.domain is not None:
        return {resource: WITHOUT_LIMIT[name] for resource, name in RATES.items()}
    found = [
        (name, WITHOUT_LIMIT[name] if value is None else value)
        for name, _part, value in limits_of(request)
        if name in WITHOUT_LIMIT
    ]
    sums = {resource: sum(value for name, value in found if name is limited) for resource, limited in RATES.items()}
    return {resource: amount for resource, amount in sums.items() if amount}


def of_new_guest(request: VmRequest) -> dict[str, int]:
    """The charge of a VM that is created, with the disks that are made for it: the store counts them from then on."""
    sizes = [] if request.disk is None else [request.disk.size_mib]
    size_mib = sum(sizes) + sum(one.size_mib or 0 for one in request.data_disks)
    return {**of_guest(request), Resource.DISK: size_mib} if size_mib else of_guest(request)


def of_shares(shares: Iterable[Share]) -> dict[str, int]:
    """The charge of shares, for as long as their leases live."""
    from vgpuctl.sharing.kinds import takes_card

    amounts: Counter[str] = Counter()
    for held in shares:
        if takes_card(held):
            amounts[Resource.CARDS] += 1
        else:
            for name in _counted_as(held.profile, held.board, is_placed=True):
                amounts[SHARES + name] += 1
        amounts[Resource.FRAMEBUFFER] += held.framebuffer_mib or 0
        amounts[Resource.MIG_COMPUTE] += compute_slices(held)
        amounts[Resource.COMPUTE] += milli_gpus(held)
    return {resource: amount for resource, amount in amounts.items() if amount}


def _counted_as(profile: str, board: str | None, *, is_placed: bool = False) -> list[str]:
    """The names that a type counts under: its own, and with its model where several models have it.

    is_placed: a share whose model is not recorded counts for each that it can be of; a request has none yet.
    """
    boards = [board] if board is not None else catalog.boards_beside(profile) if is_placed else ()
    return [profile, *(str(catalog.ProfileName(profile, one)) for one in boards)]


def add(*charges: Amounts) -> dict[str, int]:
    """The sum of charges."""
    total: Counter[str] = Counter()
    for charge in charges:
        total.update(charge)
    return dict(total)


def compute_slices(held: Share) -> int:
    """MIG compute slices of a share's GPU instance; 0 for a share without MIG."""
    return gpu_instance_slices(held.profile) or 0


def milli_gpus(held: Share) -> int:
    """Thousandths of its GPU's compute time that a share stands for.

    Of a MIG-backed one, and one that was placed before this was recorded, as the catalogue knows its type; a whole GPU
    where it does not.
    """
    from vgpuctl.sharing.kind import Takes
    from vgpuctl.sharing.kinds import kind_of

    if held.milli_gpus is not None:
        return held.milli_gpus
    if kind_of(held.sharing).takes is not Takes.VGPU:
        return _WHOLE
    slices = compute_slices(held)
    types = [catalog.type_by_name(board, held.profile) for board in catalog.boards_with_type(held.profile)]
    known = [one for one in types if one is not None]
    if slices:
        beside = min((one.max_per_gi or 1 for one in known), default=1)
        return _WHOLE * min(slices, MIG_COMPUTE_SLICES) // MIG_COMPUTE_SLICES // beside
    counts = [one.max_instances for one in known if one.max_instances]
    return _WHOLE // min(counts) if counts else _WHOLE


def part_of_card(held: Share, gpus: "Sequence[Gpu]") -> float:
    """How much of its GPU a share keeps from others, 0 to 1: what its GPU-hours are counted with.

    The larger of its part of the memory and, with MIG, of the compute slices; for a plain VF one of the VFs.
    gpus: of its host as last read; without the share's GPU among them the catalogue answers, and a whole GPU counts
    where that does not know either.
    """
    from vgpuctl.sharing.kind import Takes
    from vgpuctl.sharing.kinds import kind_of

    takes = kind_of(held.sharing).takes
    if takes is Takes.CARD:
        return 1.0
    gpu = next((one for one in gpus if one.address == held.gpu), None)
    if takes is Takes.FUNCTION:
        return 1.0 / len(gpu.vfs) if gpu is not None and gpu.vfs else 1.0
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id) if gpu is not None else None
    if board is None:
        board = next(iter(catalog.boards_with_type(held.profile)), None)
    nominal_mib = board.memory_mib if board is not None else None
    memory_mib = nominal_mib or (gpu.memory_mib if gpu is not None else None)
    if not memory_mib or not held.framebuffer_mib:
        return 1.0
    table = catalog.mig_table(board) if board is not None else None
    whole = (table.compute_slices if table is not None else None) or MIG_COMPUTE_SLICES
    return min(1.0, max(held.framebuffer_mib / memory_mib, compute_slices(held) / whole))
