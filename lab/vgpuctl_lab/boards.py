# SPDX-License-Identifier: Apache-2.0
"""The lab's view of a board of the catalogue, the same for emulated and simulated hosts."""

import difflib
import re
from functools import cache
from uuid import NAMESPACE_URL, uuid5

from vgpuctl.catalog import Board, CatalogType, MigTable, boards, boards_named, mig_table, types_of
from vgpuctl.errors import UsageError

MDEV, MDEV_VF, VF_PROFILE, VF, PASSTHROUGH = "mdev", "mdev-vf", "vf-profile", "vf", "passthrough"
CLASSES = {"Q": "Quadro", "B": "NVS", "A": "NVS", "C": "Compute"}
# Types for which no public text has an id get one of the lab's own, far from NVIDIA's.
_FIRST_OWN_TYPE_ID = 60000


def find_boards(name: str) -> tuple[Board, ...]:
    """The boards that a name means: one, or all candidates where it is not clear.

    Of the boards that have the name's words, a short name (`h100`, `a100-40`, `rtx-pro-6000`) means the first of the
    catalogue that hands out vGPUs.
    """
    found = boards_named(name) or tuple(board for board in boards().values() if _has_in_order(board.key, name))
    with_shares = [board for board in found if vgpu_types(board) or VF in interfaces(board)]
    return (with_shares[0],) if with_shares and len({board.chip for board in with_shares}) == 1 else found


def one_board(name: str, card: str) -> Board:
    """The board that a name means. card: the whole text it stands in, for the error.

    Raises UsageError with the candidates, or with the nearest names where there is none.
    """
    found = find_boards(name)
    if len(found) == 1:
        return found[0]
    if found:
        candidates = ", ".join(board.key for board in found[:8])
        raise UsageError(f"card {card!r}: {len(found)} boards of the catalogue are called {name!r}: {candidates}")
    names = [key.partition("-")[2] for key in boards()]
    near = difflib.get_close_matches(name.lower(), names, n=5, cutoff=0.5)
    hint = f"near to it: {', '.join(near)}" if near else f"boards: {', '.join(names)}"
    raise UsageError(f"card {card!r}: no board of the catalogue is called {name!r}", hint=hint)


def interfaces(board: Board) -> tuple[str, ...]:
    """How a board can hand out shares; first the way it does on a current host."""
    if board.vendor != "nvidia":
        return (VF, PASSTHROUGH) if board.interface == "sriov-vf" and total_vfs(board) else (PASSTHROUGH,)
    if not vgpu_types(board):
        return (PASSTHROUGH,)
    return (MDEV, PASSTHROUGH) if board.interface == "mdev-pf" else (VF_PROFILE, MDEV_VF, PASSTHROUGH)


def total_vfs(board: Board) -> int:
    """The value of `sriov_totalvfs` where known, else the least that the board's types need; 0 for unknown."""
    known = board.sriov
    return (known.totalvfs or max(known.presets, default=0) or known.min_vfs or 0) if known else 0


def vgpu_types(board: Board) -> list[tuple[CatalogType, int]]:
    """The board's vGPU types with their ids; MIG-backed ones only where the slots of its instances are known."""
    has_mig = mig_profiles(board) is not None
    return [(one, type_id(one)) for one in types_of(board) if has_mig or not one.is_mig_backed]


def type_id(entry: CatalogType) -> int:
    """A type's decimal id: of the catalogue, inferred, or the lab's own where no public text gives it."""
    return entry.type_id or entry.inferred_type_id or _own_type_ids()[entry.full_name or entry.name]


def full_name(entry: CatalogType) -> str:
    """The type's name as hosts write it."""
    return entry.full_name or f"NVIDIA {entry.name}"


def mig_profiles(board: Board) -> MigTable | None:
    """The board's MIG profiles where ids and slots of all are known, else None."""
    table = mig_table(board)
    if table is None or not table.memory_slots or not table.compute_slices:
        return None
    whole = all(one.id is not None and one.placement_starts and one.placement_size for one in table.profiles)
    return table if whole else None


def mig_mode_outlives_reboot(board: Board) -> bool:
    """Ampere keeps the mode in the board and needs a reset to change it; later boards do neither (reference 5.1)."""
    return board.architecture == "Ampere"


def gpu_uuid(host: str, address: str) -> str:
    """The UUID of a card as NVML tells it, the same at every start."""
    return f"GPU-{uuid5(NAMESPACE_URL, f'{host}/{address}')}"


@cache
def _own_type_ids() -> dict[str, int]:
    names = (
        one.full_name or one.name
        for board in boards().values()
        for one in types_of(board)
        if not one.type_id and not one.inferred_type_id
    )
    return {name: _FIRST_OWN_TYPE_ID + index for index, name in enumerate(dict.fromkeys(names))}


def _has_in_order(key: str, name: str) -> bool:
    """True if the words of a name begin words of a key in their order: `a100-40` for `nvidia-a100-pcie-40gb`."""
    words = iter(key.split("-"))
    wanted = re.findall(r"[a-z0-9]+", name.lower())
    return bool(wanted) and all(any(_begins(word, one) for word in words) for one in wanted)


def _begins(word: str, wanted: str) -> bool:
    return word == wanted or (wanted.isdecimal() and word == f"{wanted}gb")
