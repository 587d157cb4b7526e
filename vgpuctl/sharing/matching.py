# SPDX-License-Identifier: Apache-2.0
"""Match of GPUs and entries of a layout: the narrowest that fits (address or UUID, then board, then all)."""

from collections.abc import Sequence

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.catalog.lookup import has_words, words_of
from vgpuctl.model.layout import GpuLayout, GpuMatch
from vgpuctl.model.lease import Share


def entries_for(gpu: Gpu, entries: Sequence[GpuLayout]) -> list[GpuLayout]:
    """The narrowest entries that fit the GPU: none, one, or several that contradict each other."""
    fitting = [entry for entry in entries if fits(entry.match, gpu)]
    narrowest = max((entry.match.rank for entry in fitting), default=0)
    return [entry for entry in fitting if entry.match.rank == narrowest]


def fits(match: GpuMatch, gpu: Gpu) -> bool:
    """True if a match means this GPU. A GPU that its vendor's driver does not have has no UUID to match."""
    if match.address is not None:
        return match.address == gpu.address
    if match.uuid is not None:
        return gpu.uuid is not None and match.uuid.lower() == gpu.uuid.lower()
    return match.board is None or _is_board(match.board, gpu)


def can_be_of(share: Share, gpu: Gpu, board: str | None) -> bool:
    """True unless the card at the share's address is certainly of another model than the one that the share was of.

    board: the model that was asked for. A vGPU's profile is a model's own; a card that the catalogue does not know
    counts as the right one.
    """
    if board is not None and not _is_board(board, gpu):
        return False
    known = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    return share.type_id is None or known is None or catalog.type_by_name(known, share.profile) is not None


def _is_board(text: str, gpu: Gpu) -> bool:
    if text.lower() == f"{gpu.vendor_id}:{gpu.device_id}":
        return True
    known = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    if known is not None:
        return known in catalog.boards_named(text)
    return gpu.name is not None and has_words(words_of(gpu.name), words_of(text))
