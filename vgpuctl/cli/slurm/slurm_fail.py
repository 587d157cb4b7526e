# SPDX-License-Identifier: Apache-2.0
"""slurm-fail: Slurm's ResumeFailProgram: gives nodes up that did not come."""

from collections.abc import Sequence

import click

from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.slurm.node_programs import NODES, JsonNodeOutcome, of_cluster, report

_JSON: "JsonOutput[Sequence[JsonNodeOutcome]]" = NODES


@click.command("slurm-fail")
@of_cluster
def command(hostlist: str, tenant: str, cluster: str, database: str | None, as_json: bool) -> None:
    """Give up nodes that did not register in time (ResumeFailProgram). HOSTLIST is written as `gpu-[001-004]`.

    Slurm calls it for nodes that did not register within ResumeTimeout. Their VMs are deleted, and those that had one
    are counted as never joined. It only writes the store and returns.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.slurm.slurm_fail import slurm_fail

    with services(database=database) as opened:
        answers = slurm_fail(opened, tenant, cluster, hostlist)
    report(answers, as_json=as_json)
