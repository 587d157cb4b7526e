# SPDX-License-Identifier: Apache-2.0
"""slurm-resume: Slurm's ResumeProgram. The nodes are wanted in the store; no host is asked while slurmctld waits."""

from collections.abc import Mapping, Sequence

from vgpuctl.clusters.slurm.resume_file import jobs_of_nodes, read_resume_file
from vgpuctl.errors import ClusterRefused
from vgpuctl.model.hostlist import expand
from vgpuctl.model.node_pool import NodePool
from vgpuctl.usecases.node.wanted_nodes import want_nodes
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.slurm.node_answers import NodeAnswer, answer
from vgpuctl.usecases.slurm.slurm_node_pools import pools_of_cluster


def slurm_resume(
    services: Services, tenant: str, cluster: str, expression: str, *, resume_file: str | None = None
) -> list[NodeAnswer]:
    """Want the nodes of a hostlist, each with the jobs that it is for. One that is wanted already stays as it is.

    resume_file: the path in SLURM_RESUME_FILE. It is read first, since slurmctld keeps it for seconds only; one that
    cannot be read costs the ids of the jobs alone. Raises UsageError for a text that cannot be expanded, NotFound.
    """
    jobs = _jobs(services, resume_file)
    names = expand(expression)
    with services.store.reading() as session:
        pools = pools_of_cluster(session, tenant, cluster)

    def want(pool: NodePool, ours: Sequence[str]) -> Mapping[str, str]:
        new = want_nodes(services, pool, ours, jobs=jobs, reason="Slurm resumes it").new
        return {name: "wanted" if name in new else "already wanted" for name in ours}

    return answer(services, pools, names, want)


def _jobs(services: Services, resume_file: str | None) -> Mapping[str, Sequence[str]]:
    if not resume_file:
        return {}
    try:
        return jobs_of_nodes(read_resume_file(resume_file))
    except ClusterRefused as error:
        services.say(f"warning: the jobs of the nodes are not known: {error.message}")
        return {}
