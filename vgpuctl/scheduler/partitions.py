# SPDX-License-Identifier: Apache-2.0
"""Partitions of an NVSwitch fabric for the GPUs of one VM: all of them are exactly one, and large ones stay whole.

Of the partitions that fit, the one is taken that leaves the most large ones to be activated, the lowest number among
equals (`sharing.fabric.loss_of`; tests/bench/partitions.py compares with the exact optimum).
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from vgpuctl import catalog
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.lease import Share
from vgpuctl.scheduler.scarcity import is_untouched
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.fabric import KnownPartition, OnFabric, board_has_nvswitch, loss_of
from vgpuctl.sharing.gpu_state import GpuState
from vgpuctl.sharing.kind import Takes
from vgpuctl.sharing.kinds import kind_of
from vgpuctl.sharing.offer import Refusal, ShareRequest
from vgpuctl.sharing.partition_rules import needs_partition


class Sizes(NamedTuple):
    """How many GPUs of a VM need a partition: at least, and at most, where conditions leave it open."""

    least: int
    most: int

    @property
    def together(self) -> int | None:
        """The number if it is sure: a VM with one GPU has a partition of one, if it needs any."""
        return self.most if self.most in (self.least, 1) else None


def sizes_of(requests: Sequence[GpuRequest]) -> Sizes:
    """Count the single requests that need a partition on a GPU with NVSwitch."""
    needs = [_needs(one) for one in requests]
    return Sizes(sum(one is True for one in needs), sum(one is not False for one in needs))


@lru_cache(maxsize=1024)
def _needs(request: GpuRequest) -> bool | None:
    """Tell whether a share needs a partition on a GPU with NVSwitch; None where only the chosen type tells."""
    profile, boards = request.profile, None if request.board is None else catalog.boards_named(request.board)
    if request.sharing is None and profile is None:
        return None
    if profile is not None:
        if catalog.is_mig_backed(profile):
            return False
        boards = catalog.boards_with_type(profile)
    elif request.sharing is not None and kind_of(request.sharing).takes is not Takes.CARD:
        return False
    return not boards or any(map(board_has_nvswitch, boards))


def has_partitions(states: Iterable[GpuState]) -> bool:
    """True if a GPU of the host is on an NVSwitch fabric."""
    return any(state.fabric is not None for state in states)


def choices(share_requests: Sequence[ShareRequest], states: Sequence[GpuState]) -> Iterator[list[GpuState]]:
    """The GPUs of a host as a VM may choose among them, the best first: in each choice one partition is open."""
    sizes = sizes_of([one.request for one in share_requests])
    partitions, free = _partitions(states), free_modules(states)
    fitting = [one for one in _of_size(sizes, share_requests, partitions) if _works(one)]
    for one in sorted(fitting, key=lambda one: (-len(one.modules), loss_of(one.modules, partitions, free), one.number)):
        yield [_within(state, one.modules) for state in states]
    if not sizes.least:
        yield [_within(state, frozenset()) for state in states]


def _of_size(
    sizes: Sizes, share_requests: Sequence[ShareRequest], partitions: Sequence[KnownPartition]
) -> list[KnownPartition]:
    numbers = {one.partition for one in share_requests}
    return [
        one
        for one in partitions
        if sizes.least <= len(one.modules) <= sizes.most and (None in numbers or one.number in numbers)
    ]


def refuse_taken(
    share_requests: Sequence[ShareRequest], usable: Sequence[GpuState], states: Sequence[GpuState]
) -> Refusal | None:
    """Say which GPUs keep each partition that would do from a VM; None on a host without a fabric.

    usable: the GPUs of the host that would take a part of the VM.
    """
    sizes = sizes_of([one.request for one in share_requests])
    there = {state.fabric.module for state in usable if state.fabric is not None}
    lacking = {
        one.number: sorted(one.failed or one.modules - there)
        for one in _of_size(sizes, share_requests, _partitions(states))
    }
    told = "; ".join(f"{number} without module {', '.join(map(str, gone))}" for number, gone in lacking.items() if gone)
    if not told:
        return None
    return Refusal(
        Code.PARTITION_TAKEN,
        f"no partition of its NVSwitch fabric with {len(share_requests)} GPUs is free: {told}",
        "delete or move the VMs that have these GPUs, or ask for fewer GPUs",
    )


def is_one_partition(shares: Sequence[Share], states: Sequence[GpuState]) -> bool:
    """True if the shares that need a partition are on each GPU of the one that is open, or none needs one."""
    by_address = {state.gpu.address: state.fabric for state in states}
    used = [fabric for one in shares if (fabric := by_address[one.gpu]) is not None and needs_partition(one)]
    return not used or sorted(one.module or 0 for one in used) == sorted(used[0].chosen or ())


def free_modules(states: Iterable[GpuState]) -> frozenset[int]:
    """The GPUs of the fabric that nobody uses, by their numbers."""
    return frozenset(
        state.fabric.module
        for state in states
        if state.fabric is not None
        and state.fabric.module is not None
        and (state.fabric.active is None or state.lease_holders)
        and is_untouched(state)
        and not (state.gpu.mig is not None and state.gpu.mig.current)
    )


def losses(states: Sequence[GpuState]) -> dict[str, float]:
    """What the fabric of a host loses if one GPU is given away alone, by its address."""
    partitions, free = _partitions(states), free_modules(states)
    return {
        state.gpu.address: loss_of(frozenset([state.fabric.module]), partitions, free)
        for state in states
        if state.fabric is not None and state.fabric.module is not None
    }


def loss_of_shares(shares: Sequence[Share], states: Collection[GpuState]) -> float:
    """What the fabric of a host loses by the shares of one VM. states: all its GPUs as they were before."""
    if not has_partitions(states):
        return 0.0
    by_address = {state.gpu.address: state.fabric for state in states}
    modules = {
        fabric.module
        for one in shares
        if (fabric := by_address[one.gpu]) is not None and fabric.module is not None and needs_partition(one)
    }
    return loss_of(frozenset(modules), _partitions(states), free_modules(states)) if modules else 0.0


def _partitions(states: Iterable[GpuState]) -> list[KnownPartition]:
    found = {one.number: one for state in states if state.fabric is not None for one in state.fabric.partitions}
    return [found[number] for number in sorted(found)]


def _works(partition: KnownPartition) -> bool:
    return partition.works or len(partition.modules) == 1


def _within(state: GpuState, chosen: frozenset[int]) -> GpuState:
    if state.fabric is None:
        return state
    fabric: OnFabric = replace(state.fabric, chosen=chosen)
    return replace(state, fabric=fabric)
