# SPDX-License-Identifier: Apache-2.0
"""slurm-fail: Slurm's ResumeFailProgram. Nodes that did not register in ResumeTimeout are let go and counted."""

from collections.abc import Mapping, Sequence

from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.hostlist import expand
from vgpuctl.model.node_pool import NodePool
from vgpuctl.usecases.node.wanted_nodes import let_go_in
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.slurm.node_answers import NodeAnswer, answer
from vgpuctl.usecases.slurm.slurm_node_pools import pools_of_cluster

_REASON = "it did not register with slurmctld within ResumeTimeout"


def slurm_fail(services: Services, tenant: str, cluster: str, expression: str) -> list[NodeAnswer]:
    """Let the nodes of a hostlist go. One that had a VM is counted as never joined, with an event.

    Raises UsageError for a text that cannot be expanded, NotFound.
    """
    names = expand(expression)
    with services.store.reading() as session:
        pools = pools_of_cluster(session, tenant, cluster)

    def give_up(pool: NodePool, ours: Sequence[str]) -> Mapping[str, str]:
        outcomes = dict.fromkeys(ours, "nothing to do")
        with services.store.transaction() as session:
            for node in let_go_in(session, pool, ours, reason=_REASON, is_drained=True):
                outcomes[node.name] = "let go"
                if node.joined_at is not None or session.vm(tenant, node.name) is None:
                    continue
                outcomes[node.name] = "let go, never joined"
                count = session.never_joined(pool)[0] + 1
                session.note_never_joined(pool, count)
                session.add_event(
                    EventKind.NODE_NEVER_JOINED, node.printed_name, _REASON, tenant=tenant, after={"count": count}
                )
        return outcomes

    return answer(services, pools, names, give_up)
