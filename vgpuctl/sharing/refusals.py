# SPDX-License-Identifier: Apache-2.0
"""Refusals and figures of a GPU that several sharing kinds use."""

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.catalog.lookup import has_words, words_of
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.gpu_state import GpuState
from vgpuctl.sharing.occupancy import describe_holders
from vgpuctl.sharing.offer import Refusal, ShareRequest


def refuse_board(share_request: ShareRequest, state: GpuState) -> Refusal | None:
    """Refuse a GPU of another model than the one asked for."""
    name = share_request.request.board
    if share_request.boards is None or name is None:
        return None
    if state.board is not None and state.board.key in share_request.boards:
        return None
    beyond_catalog = state.board is None or not share_request.boards
    if beyond_catalog and state.gpu.name is not None and has_words(words_of(state.gpu.name), words_of(name)):
        return None
    return Refusal(Code.WRONG_BOARD, f"it is {state.title}, not {name}")


def refuse_labels(share_request: ShareRequest, state: GpuState) -> Refusal | None:
    """Refuse a GPU without the labels that the VM requires."""
    missing = [label for label in share_request.labels if label not in state.constraints.labels]
    if not missing:
        return None
    return Refusal(
        Code.GPU_LABELS,
        f"it has no label {', '.join(f'{key}={value}' for key, value in missing)}",
        "ask for other labels, or give it this one in the inventory's vgpu_placing",
    )


def declared_otherwise(reason: str, state: GpuState) -> Refusal:
    """The refusal of the layout, with the way to change it."""
    return Refusal(Code.DECLARED_OTHERWISE, reason, state.declared.remedy(state.host))


def refuse_unusable(state: GpuState) -> Refusal | None:
    """Refuse a GPU that has a problem, is in quarantine or cordoned, or is given away as a whole."""
    if state.closed is not None:
        return state.closed
    if state.gpu.problems:
        return Refusal(
            Code.GPU_PROBLEM,
            "; ".join(state.gpu.problems),
            f"solve it, then run `vgpuctl inspect-host {state.host}`",
        )
    if state.whole is not None:
        return Refusal(
            Code.RESERVED_BY_LEASE,
            f"the whole card is promised to {state.whole}",
            f"delete {state.whole}",
        )
    if state.gpu.holders:
        return Refusal(
            Code.CARD_IN_USE,
            f"the whole card is held by {describe_holders(state.gpu.holders)}, which vgpuctl did not start",
            "stop what holds it",
        )
    return None


def numa_node(gpu: Gpu) -> int | None:
    """The GPU's NUMA node; the kernel's -1 (unknown) counts as none."""
    return None if gpu.numa_node is None or gpu.numa_node < 0 else gpu.numa_node


def memory_of(state: GpuState) -> int:
    """The GPU's memory in MiB, 0 when neither host nor catalogue knows it."""
    return memory_mib(state.gpu, state.board)


def memory_mib(gpu: Gpu, board: catalog.Board | None) -> int:
    """The same of facts."""
    return gpu.memory_mib or (board.memory_mib if board else 0)


def can_do_vgpu(board: catalog.Board | None) -> bool:
    """True if the model has vGPU types at all."""
    return board is not None and bool(catalog.types_of(board))
