# SPDX-License-Identifier: Apache-2.0
"""slurm-resume: Slurm's ResumeProgram: wants the nodes that slurmctld names."""

from collections.abc import Sequence

import click

from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.slurm.node_programs import NODES, JsonNodeOutcome, of_cluster, report

_JSON: "JsonOutput[Sequence[JsonNodeOutcome]]" = NODES


@click.command("slurm-resume")
@click.option(
    "--resume-file",
    envvar="SLURM_RESUME_FILE",
    metavar="FILE",
    help="File that tells for which jobs the nodes are; - reads stdin.  [env: SLURM_RESUME_FILE]",
)
@of_cluster
def command(
    hostlist: str, tenant: str, cluster: str, resume_file: str | None, database: str | None, as_json: bool
) -> None:
    """Ask for the nodes that Slurm resumes (ResumeProgram). HOSTLIST is written as `gpu-[001-004]`.

    It only writes the store and returns. `vgpuctl controller` makes the VMs, and tells Slurm of a node that cannot be
    made. Unknown names are refused, the others go on. `vgpuctl export slurm` writes
    the script that slurmctld runs.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.slurm.slurm_resume import slurm_resume

    with services(database=database) as opened:
        answers = slurm_resume(opened, tenant, cluster, hostlist, resume_file=resume_file)
    report(answers, as_json=as_json)
