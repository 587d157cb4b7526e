# SPDX-License-Identifier: Apache-2.0
"""export slurm: what slurm.conf and gres.conf need so that Slurm resumes and suspends the nodes of pools."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.errors import UsageError
from vgpuctl.model.printable import printable
from vgpuctl.node_config.slurm_conf import SlurmSettings, gres_conf, program, slurm_conf
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.slurm.slurm_node_pools import pools_of_cluster

_PATH = re.compile(r"/[A-Za-z0-9._/-]{0,255}")
_PARTITION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


@dataclass(frozen=True)
class SlurmExport:
    """The texts. program: the script that slurmctld runs, under three names."""

    cluster: str
    pools: tuple[str, ...]
    slurm_conf: str
    gres_conf: str
    program: str


def read_settings(programs: str, partition: str, suspend_s: int, suspend_timeout_s: int) -> SlurmSettings:
    """Accept what an operator chooses. Raises UsageError for a text that slurm.conf would read as something else."""
    if _PATH.fullmatch(programs) is None:
        raise UsageError(
            f"--programs: '{printable(programs[:80])}' is no absolute path for slurm.conf",
            hint="write a folder with letters, digits and . _ / - alone: /usr/local/sbin",
        )
    if _PARTITION.fullmatch(partition) is None:
        raise UsageError(
            f"--partition: '{printable(partition[:80])}' is no name of a partition",
            hint="write 1 to 63 letters, digits, '_' and '-'",
        )
    return SlurmSettings(programs, partition, suspend_s, suspend_timeout_s)


def export_slurm(
    services: Services, tenant: str, cluster: str | None, settings: SlurmSettings, *, vgpuctl: Sequence[str]
) -> SlurmExport:
    """Write the lines for all Slurm pools of a cluster. vgpuctl: this program, by its absolute path.

    Raises NotFound for a cluster without such pools, UsageError where it has to be named.
    """
    with services.store.reading() as session:
        pools = pools_of_cluster(session, tenant, cluster)
        for pool in pools:
            above = [one.name for one in session.nodes(tenant, pool.name) if pool.number_of(one.name) is None]
            if above:
                services.say(
                    f"warning: {', '.join(above[:5])} of pool {pool.name} are above its maximum and not in these "
                    "lines; install them when these nodes are gone"
                )
    name = pools[0].cluster
    return SlurmExport(
        name,
        tuple(pool.name for pool in pools),
        slurm_conf(tenant, name, pools, settings),
        gres_conf(pools),
        program(tenant, name, vgpuctl),
    )
