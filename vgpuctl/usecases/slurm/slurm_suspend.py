# SPDX-License-Identifier: Apache-2.0
"""slurm-suspend: Slurm's SuspendProgram. The nodes are let go in the store; the controller deletes their VMs."""

from collections.abc import Mapping, Sequence

from vgpuctl.model.hostlist import expand
from vgpuctl.model.node_pool import NodePool
from vgpuctl.usecases.node.wanted_nodes import let_go
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.slurm.node_answers import NodeAnswer, answer
from vgpuctl.usecases.slurm.slurm_node_pools import pools_of_cluster


def slurm_suspend(services: Services, tenant: str, cluster: str, expression: str) -> list[NodeAnswer]:
    """Let the nodes of a hostlist go. Slurm has no job on them any more, so that they are not drained first.

    Raises UsageError for a text that cannot be expanded, NotFound.
    """
    names = expand(expression)
    with services.store.reading() as session:
        pools = pools_of_cluster(session, tenant, cluster)

    def suspend(pool: NodePool, ours: Sequence[str]) -> Mapping[str, str]:
        gone = {one.name for one in let_go(services, pool, ours, reason="Slurm suspends it", is_drained=True)}
        return {name: "let go" if name in gone else "nothing to do" for name in ours}

    return answer(services, pools, names, suspend)
