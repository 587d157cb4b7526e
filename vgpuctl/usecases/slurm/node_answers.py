# SPDX-License-Identifier: Apache-2.0
"""The answers of a power-saving program: one for each node that slurmctld named."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.errors import UsageError, VgpuctlError
from vgpuctl.model.node_pool import NodePool
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.slurm.slurm_node_pools import pool_of

_AT_ONCE = 64
"""Nodes in one transaction, so that no other run waits long for the store."""

Deed = Callable[[NodePool, Sequence[str]], Mapping[str, str]]
"""Does something with nodes of one pool, all of them or none. Returns the outcome of each."""


@dataclass(frozen=True)
class NodeAnswer:
    """One node. error: None where all went well."""

    name: str
    outcome: str
    error: VgpuctlError | None = None


def answer(services: Services, pools: Sequence[NodePool], names: Sequence[str], do: Deed) -> list[NodeAnswer]:
    """Do something with each node. An unknown name, or an error with one node, keeps no other node waiting.

    Each answer is told as well, for the log: slurmctld throws away what its programs print.
    """
    answers: dict[str, NodeAnswer] = {}
    by_pool: dict[str, list[str]] = {}
    for name in names:
        pool = pool_of(pools, name)
        if pool is None:
            answers[name] = NodeAnswer(name, "refused", _stranger(pools, name))
        else:
            by_pool.setdefault(pool.name, []).append(name)
    for pool in pools:
        ours = by_pool.get(pool.name, [])
        for first in range(0, len(ours), _AT_ONCE):
            for one in _do(pool, ours[first : first + _AT_ONCE], do):
                answers[one.name] = one
    for name in names:
        told = answers[name]
        services.say(f"{name}: {told.outcome}{'' if told.error is None else f': {told.error.message}'}")
    return [answers[name] for name in names]


def _do(pool: NodePool, names: Sequence[str], do: Deed) -> list[NodeAnswer]:
    """All nodes together; where that fails, each half by itself, down to the nodes that are refused."""
    try:
        outcomes = do(pool, names)
    except VgpuctlError as error:
        if len(names) == 1:
            return [NodeAnswer(names[0], "refused", error)]
        half = len(names) // 2
        return [*_do(pool, names[:half], do), *_do(pool, names[half:], do)]
    return [NodeAnswer(name, outcomes[name]) for name in names]


def _stranger(pools: Sequence[NodePool], name: str) -> UsageError:
    known = ", ".join(f"{pool.node_name(1)} to {pool.node_name(pool.maximum)}" for pool in pools)
    return UsageError(
        f"{name} is no node of a pool of cluster {pools[0].cluster}",
        hint=f"its nodes are {known}; `vgpuctl export slurm {pools[0].tenant} {pools[0].cluster}` writes their lines",
    )
