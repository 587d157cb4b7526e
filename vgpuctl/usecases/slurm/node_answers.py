# SPDX-License-Identifier: Apache-2.0
"""What a power-saving program did with each node that slurmctld named."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from vgpuctl.errors import UsageError, VgpuctlError
from vgpuctl.model.node_pool import NodePool
from vgpuctl.usecases.slurm.slurm_pools import pool_of
from vgpuctl.usecases.support.services import Services


@dataclass(frozen=True)
class NodeAnswer:
    """One node. error: None where all went well."""

    name: str
    outcome: str
    error: VgpuctlError | None = None


def answer(
    services: Services, pools: Sequence[NodePool], names: Iterable[str], do: Callable[[NodePool, str], str]
) -> list[NodeAnswer]:
    """Do something with each node; a name that is none of ours, or an error, keeps no other node waiting.

    Each is told as it is done, for the log: slurmctld throws away what its programs print.
    """
    answers = []
    for name in names:
        pool = pool_of(pools, name)
        try:
            if pool is None:
                raise _stranger(pools, name)
            answers.append(NodeAnswer(name, do(pool, name)))
        except VgpuctlError as error:
            answers.append(NodeAnswer(name, "refused", error))
        told = answers[-1]
        services.say(f"{name}: {told.outcome}{'' if told.error is None else f': {told.error.message}'}")
    return answers


def _stranger(pools: Sequence[NodePool], name: str) -> UsageError:
    known = ", ".join(f"{pool.node_name(1)} to {pool.node_name(pool.maximum)}" for pool in pools)
    return UsageError(
        f"{name} is no node of a pool of cluster {pools[0].cluster}",
        hint=f"its nodes are {known}; `vgpuctl export-slurm {pools[0].tenant} {pools[0].cluster}` writes their lines",
    )
