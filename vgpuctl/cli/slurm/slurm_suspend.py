# SPDX-License-Identifier: Apache-2.0
"""slurm-suspend: Slurm's SuspendProgram: lets nodes go."""

from collections.abc import Sequence

import click

from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.slurm.node_programs import NODES, JsonNodeOutcome, of_cluster, report

_JSON: "JsonOutput[Sequence[JsonNodeOutcome]]" = NODES


@click.command("slurm-suspend")
@of_cluster
def command(hostlist: str, tenant: str, cluster: str, database: str | None, as_json: bool) -> None:
    """Give up the nodes that Slurm suspends (SuspendProgram). HOSTLIST is written as `gpu-[001-004]`.

    It only writes the store and returns. `vgpuctl controller` deletes the VMs, so that their shares come back. Slurm
    calls it for nodes without jobs, so that they are not drained first.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.slurm.slurm_suspend import slurm_suspend

    with services(database=database) as opened:
        answers = slurm_suspend(opened, tenant, cluster, hostlist)
    report(answers, as_json=as_json)
