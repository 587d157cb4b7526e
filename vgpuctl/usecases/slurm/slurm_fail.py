# SPDX-License-Identifier: Apache-2.0
"""slurm-fail: Slurm's ResumeFailProgram. Nodes that did not register in ResumeTimeout are let go and counted."""

from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.hostlist import expand
from vgpuctl.model.node_pool import NodePool
from vgpuctl.usecases.node.wanted_nodes import let_go_in
from vgpuctl.usecases.slurm.node_answers import NodeAnswer, answer
from vgpuctl.usecases.slurm.slurm_pools import pools_of_cluster
from vgpuctl.usecases.support.services import Services

_REASON = "it did not register with slurmctld within ResumeTimeout"


def slurm_fail(services: Services, tenant: str, cluster: str, expression: str) -> list[NodeAnswer]:
    """Let the nodes of a hostlist go. One that had a VM is counted as never joined, and an event says so.

    Raises UsageError for what is no hostlist, NotFound.
    """
    names = expand(expression)
    with services.store.reading() as session:
        pools = pools_of_cluster(session, tenant, cluster)

    def give_up(pool: NodePool, name: str) -> str:
        with services.store.transaction() as session:
            node = session.node(tenant, name)
            gone = let_go_in(session, pool, [name], reason=_REASON, is_drained=True)
            if not gone or node is None or node.joined_at is not None or session.vm(tenant, name) is None:
                return "let go" if gone else "nothing to do"
            count = session.never_joined(pool)[0] + 1
            session.note_never_joined(pool, count)
            session.add_event(EventKind.NODE_NEVER_JOINED, node.label, _REASON, tenant=tenant, after={"count": count})
        return "let go, never joined"

    return answer(services, pools, names, give_up)
