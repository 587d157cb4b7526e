# SPDX-License-Identifier: Apache-2.0
"""create-node-pool: a pool of nodes of a tenant's cluster."""

from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.options.field_options import field_options
from vgpuctl.cli.options.vm_options import read_text_file
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say
from vgpuctl.specs.node_pool import NODE_POOL, POOL_VM

if TYPE_CHECKING:
    from vgpuctl.model.node_pool import NodePool


class JsonNodePoolChange(TypedDict):
    """A node pool. changed: false if nothing had to change. group: its id for cluster-autoscaler."""

    changed: bool
    pool: "NodePool"
    group: str


_JSON: "JsonOutput[JsonNodePoolChange]" = JsonOutput()


@click.command("create-node-pool")
@click.argument("name")
@options.tenant
@field_options(NODE_POOL, are_required=True)
@field_options(POOL_VM)
@options.dry_run
@options.database
@options.as_json
def command(name: str, tenant: str, dry_run: bool, database: str | None, as_json: bool, **given: Any) -> None:
    """Create a pool of VMs that are nodes of a tenant's cluster. The cluster is one of Kubernetes or Slurm.

    The flags of create-vm say what each node is. `vgpuctl controller` makes the nodes: the minimum at once, more when
    `scale-node-pool`, the cluster-autoscaler or Slurm asks for them.

    Run again, it changes nothing; with other values it refuses and says what differs.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.specs.node_pool import read_pool_flags
    from vgpuctl.usecases.node.node_pools import create_node_pool

    wanted = read_pool_flags(tenant, {"name": name, **given}, read_text_file)
    with services(rehearses=dry_run, database=database) as opened:
        pool, changed = create_node_pool(opened, wanted)
    if as_json:
        _JSON.print({"changed": changed and not dry_run, "pool": pool, "group": pool.group_id})
    elif not changed:
        say(f"node pool {pool.printed_name}: no change")
    else:
        would = "would be created, " if dry_run else ""
        say(f"node pool {pool.printed_name}: {would}{pool.minimum} to {pool.maximum} nodes of cluster {pool.cluster}")
