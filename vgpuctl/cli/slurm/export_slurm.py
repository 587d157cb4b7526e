# SPDX-License-Identifier: Apache-2.0
"""export slurm: the lines of slurm.conf and gres.conf for node pools, and the script that slurmctld runs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.options.numbers import WholeRange
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_document

if TYPE_CHECKING:
    from vgpuctl.usecases.slurm.export_slurm import SlurmExport

_FILES = ("slurm.conf", "gres.conf", "program")


_JSON: "JsonOutput[SlurmExport]" = JsonOutput()


@click.command("export slurm")
@click.argument("tenant")
@click.argument("cluster", required=False)
@click.option("--file", "file", type=click.Choice(_FILES), default=_FILES[0], show_default=True, help="Text to print.")
@click.option(
    "--programs",
    metavar="FOLDER",
    default="/usr/local/sbin",
    show_default=True,
    help="Folder on slurmctld's machine where the program lies under its three names.",
)
@click.option("--partition", metavar="NAME", default="vgpu", show_default=True, help="Partition that has the nodes.")
@click.option(
    "--suspend-time",
    "suspend_s",
    type=WholeRange(1, 86400),
    default=600,
    show_default=True,
    help="Seconds that a node stays without a job (SuspendTime).",
)
@click.option(
    "--suspend-timeout",
    "suspend_timeout_s",
    type=WholeRange(1, 3600),
    default=120,
    show_default=True,
    help="Seconds from suspending a node until Slurm may resume it (SuspendTimeout).",
)
@options.database
@options.as_json
def command(
    tenant: str,
    cluster: str | None,
    file: str,
    programs: str,
    partition: str,
    suspend_s: int,
    suspend_timeout_s: int,
    database: str | None,
    as_json: bool,
) -> None:
    """Write Slurm's configuration for the node pools of a tenant. The pools are those with the role slurm.

    slurm.conf has a NodeName line for each pool, with its GPUs as Gres and their profiles and the pool's labels as
    features, the power-saving settings and a partition. CLUSTER is needed where the tenant has several. docs/slurm.md
    shows the way from an empty fleet to a running job.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.slurm.export_slurm import export_slurm, read_settings

    settings = read_settings(programs, partition, suspend_s, suspend_timeout_s)
    with services(database=database) as opened:
        found = export_slurm(opened, tenant, cluster, settings, vgpuctl=_this_program())
    if as_json:
        _JSON.print(found)
        return
    print_document({"slurm.conf": found.slurm_conf, "gres.conf": found.gres_conf}.get(file, found.program), nl=False)


def _this_program() -> list[str]:
    """The installed `vgpuctl` beside this Python, else this Python with the module."""
    program = Path(sys.executable).parent / "vgpuctl"
    return [str(program)] if program.exists() else [sys.executable, "-I", "-m", "vgpuctl"]
