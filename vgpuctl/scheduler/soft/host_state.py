# SPDX-License-Identifier: Apache-2.0
"""Soft sharing: GPUs as divisible amounts. The amounts of a request, and the free amounts of a host."""

from typing import NamedTuple

WHOLE = 1000
"""A whole GPU's compute, in thousandths."""

GpuFree = tuple[int, int]
"""What is free of one GPU: compute in thousandths, memory in MiB."""

GpusFree = tuple[GpuFree, ...]
"""Of all GPUs of a host, the one with most compute first."""


class Demand(NamedTuple):
    """The amounts that one VM takes of a host.

    cpu: thousandths of a CPU. share: compute of each of `gpus` different GPUs, in thousandths (1000: the whole GPU).
    gpu_memory_mib: memory of each GPU. boards: models that will do, empty for any.
    """

    cpu: int
    memory_mib: int
    gpus: int = 0
    share: int = 0
    gpu_memory_mib: int = 0
    boards: frozenset[str] = frozenset()


class HostState(NamedTuple):
    """The free amounts of a host, without its name, so that equal hosts are equal.

    utilisation_percent: as measured, for the policy `least-utilised`.
    """

    board: str
    cpu: int
    memory_mib: int
    gpus: GpusFree
    utilisation_percent: int = 0


def fits(demand: Demand, state: HostState) -> bool:
    """True if the host can take the demand, by the rules of soft sharing."""
    return bool(choices(demand, state))


def choices(demand: Demand, state: HostState) -> list[tuple[int, ...]]:
    """Every different way to take the demand from the host, as positions in `state.gpus`; empty when it does not fit.

    A demand of several GPUs takes those with the least left that can give it.
    """
    count, share, memory_mib = demand.gpus, demand.share, demand.gpu_memory_mib
    if demand.cpu > state.cpu or demand.memory_mib > state.memory_mib:
        return []
    if not count:
        return [()]
    gpus = state.gpus
    if len(gpus) < count or gpus[count - 1][0] < share or (demand.boards and state.board not in demand.boards):
        return []
    first: dict[GpuFree, int] = {}
    able: list[int] = []
    for position, free in enumerate(gpus):
        if free[0] < share:
            break
        if free[1] >= memory_mib:
            first.setdefault(free, position)
            able.append(position)
    if count == 1:
        return [(position,) for position in first.values()]
    return [tuple(able[-count:])] if len(able) >= count else []


def after(demand: Demand, state: HostState, positions: tuple[int, ...]) -> HostState:
    """The state with the demand taken from the GPUs at these positions."""
    gpus = state.gpus
    if positions:
        left = list(gpus)
        for position in positions:
            share, memory = left[position]
            left[position] = (share - demand.share, memory - demand.gpu_memory_mib)
        left.sort(reverse=True)
        gpus = tuple(left)
    cpu, memory_mib = state.cpu - demand.cpu, state.memory_mib - demand.memory_mib
    return HostState(state.board, cpu, memory_mib, gpus, state.utilisation_percent)
