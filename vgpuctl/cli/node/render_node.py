# SPDX-License-Identifier: Apache-2.0
"""render-node: print what a node of a pool gets and what its cluster needs, change nothing."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_document, print_table, say

if TYPE_CHECKING:
    from vgpuctl.usecases.node.render_node import RenderedNode


_JSON: "JsonOutput[RenderedNode]" = JsonOutput()


@click.command("render-node")
@click.argument("pool", metavar="TENANT/POOL")
@click.option("--node", metavar="NAME", help="A node that there is; without it one before it is placed.")
@click.option("--to", "folder", type=click.Path(path_type=Path, file_okay=False), help="Write files to this folder.")
@options.inventory
@options.database
@options.as_json
def command(
    pool: str,
    node: str | None,
    folder: Path | None,
    inventories: tuple[str, ...],
    database: str | None,
    as_json: bool,
) -> None:
    """Show labels, taints, join files and device plugin configuration of a node.

    For Kubernetes these are the ConfigMap of NVIDIA's device plugin and values for the charts of the plugin, the GPU
    operator and HAMi; for Slurm the lines of slurm.conf and gres.conf. Secrets are shown as digests alone.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.errors import UsageError
    from vgpuctl.model.plural import counted
    from vgpuctl.usecases.node.render_node import render_node, write_rendered

    tenant, slash, name = pool.partition("/")
    if not (tenant and slash and name):
        raise UsageError(f"{pool[:80]!a} is no node pool", hint="write TENANT/POOL")
    with services(inventories=inventories, database=database) as opened:
        rendered = render_node(opened, tenant, name, node)
    written = [] if folder is None else write_rendered(folder, rendered)
    if as_json:
        _JSON.print(rendered)
    elif folder is not None:
        say(f"{counted(len(written), 'file')} of node {rendered.name} written to {folder}")
    else:
        _print(rendered)


def _print(rendered: "RenderedNode") -> None:
    where = f"on host {rendered.host}" if rendered.is_placed else "before it is placed"
    print_document(f"# node {rendered.name} of {rendered.pool}, {where}")
    print_table(["LABEL", "VALUE"], sorted(rendered.labels.items()), empty="no label")
    if rendered.taints:
        print_table(["TAINT"], [(str(one),) for one in rendered.taints], empty="")
    if rendered.join_problem is not None:
        print_document(f"# no join files: {rendered.join_problem}")
    for one in rendered.files:
        print_document(f"\n# {one.path} (in the guest, mode {one.mode}, {one.owner})")
        print_document(one.content)
    for path, text in rendered.cluster_files.items():
        if path != "node.yaml":
            print_document(f"\n# {path}")
            print_document(text)
