# SPDX-License-Identifier: Apache-2.0
"""Shares that MPS cannot divide among programs of a guest.

Sources: docs.nvidia.com/deploy/mps, "When to Use MPS" (Linux; limits of threads and memory from Volta on; client
contexts of a device); NVIDIA Multi-Instance GPU user guide, "Application Considerations" (MPS works in a MIG instance,
with fewer clients, in proportion to its compute slices; CUDA uses one instance in a process). No document says if
the driver in a vGPU's guest lets MPS start: the guest shows it (guests/in_guest/probe.py).
"""

from collections.abc import Iterable

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.catalog.names import gpu_instance_slices, series_of
from vgpuctl.catalog.vgpu_versions import parse_driver
from vgpuctl.model.lease import Share
from vgpuctl.model.mps import FIRST_WITH_MOST, MOST_CLIENTS_BEFORE, Mps
from vgpuctl.model.units import format_mib
from vgpuctl.model.vgpu_terms import VgpuTerms
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.offer import Refusal

_NVIDIA = "10de"
_WITH_CUDA = ("C", "Q")
_BEFORE_VOLTA = ("Maxwell", "Pascal")
_SLICES = 7
_REMEDY = "change `guest: {mps: …}`, or leave it out (docs/guest-mps.md)"


def refuse_mps(share: Share, gpu: Gpu, terms: VgpuTerms) -> Refusal | None:
    """Say why MPS cannot divide a share as the VM asks for; None where it may, or where the VM asks for none."""
    if terms.mps is None:
        return None
    if gpu.vendor_id != _NVIDIA:
        return Refusal(Code.GUEST_MPS, "MPS is NVIDIA's, and this GPU is not", _REMEDY)
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    is_vgpu = share.type_id is not None
    found = [catalog.type_by_name(board, share.profile)] if is_vgpu and board is not None else []
    known = [one for one in found if one is not None]
    memory = share.framebuffer_mib or (None if board is None else board.memory_mib)
    boards = () if board is None else (board,)
    reason = _refuse(terms.mps, share.profile if is_vgpu else None, known, boards, memory)
    reason = reason or refuse_clients(terms.mps, terms.guest_driver)
    return None if reason is None else Refusal(Code.GUEST_MPS, reason, _REMEDY)


def refuse_mps_of_type(mps: Mps, profile: str) -> str | None:
    """Say why no share of this type can be divided as asked for, whatever model it is of; None where one may."""
    boards = catalog.boards_with_type(profile)
    found = [catalog.type_by_name(board, profile) for board in boards]
    known = [one for one in found if one is not None]
    sizes = [one.fb_mib for one in known]
    return _refuse(mps, profile, known, boards, max(sizes) if sizes else None)


def refuse_clients(mps: Mps, guest_driver: str | None) -> str | None:
    """Say why the guest's driver takes fewer clients; one that nobody names takes as many as all do."""
    version = None if guest_driver is None else parse_driver(guest_driver)
    if mps.clients <= MOST_CLIENTS_BEFORE or (version is not None and version[0] >= FIRST_WITH_MOST):
        return None
    told = "the guest's driver is not named" if guest_driver is None else f"the guest's driver is {guest_driver}"
    return (
        f"{mps.clients} clients of MPS need a driver from R{FIRST_WITH_MOST} on, and {told}: before, a device takes "
        f"{MOST_CLIENTS_BEFORE}"
    )


def _refuse(
    mps: Mps,
    profile: str | None,
    known: Iterable[catalog.CatalogType],
    boards: Iterable[catalog.Board],
    memory_mib: int | None,
) -> str | None:
    """profile: of a vGPU, None for a whole card. known: the catalogue's entries of it. boards: the models of the card
    that it may be on. memory_mib: the framebuffer."""
    told, models = [one.cuda for one in known], list(boards)
    if profile is not None:
        series = series_of(profile)
        has_none = series not in (None, *_WITH_CUDA) or (told and not any(one is not False for one in told))
        if has_none:
            return f"{profile} has no CUDA, and MPS is a part of it"
        slices = gpu_instance_slices(profile)
        most = MOST_CLIENTS_BEFORE if slices is None else MOST_CLIENTS_BEFORE * slices // _SLICES
        if slices is not None and mps.clients > most:
            return f"{profile} has {slices} of {_SLICES} compute slices, and MPS takes {most} clients there"
    if models and all(one.architecture in _BEFORE_VOLTA for one in models):
        names = ", ".join(one.name for one in models)
        return f"{names} cannot limit the threads and memory of MPS clients: that begins with Volta"
    if memory_mib is not None and mps.memory_mib is not None and mps.memory_mib > memory_mib:
        what = profile or "the card"
        return f"{format_mib(mps.memory_mib)} for each MPS client are more than the {format_mib(memory_mib)} of {what}"
    return None
