# SPDX-License-Identifier: Apache-2.0
"""delete-node-pool: drain and delete all nodes of a pool, and the pool."""

from typing import Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.deletion import JsonDeletion
from vgpuctl.cli.support.json_output import JsonOutput
from vgpuctl.cli.support.output import confirm, say

_JSON: "JsonOutput[JsonDeletion[str]]" = JsonOutput()


@click.command("delete-node-pool")
@click.argument("name")
@options.tenant
@options.yes
@click.option(
    "--drained", is_flag=True, help="Wait neither for the work on the nodes nor for a cluster that does not answer."
)
@options.shutdown_timeout("Seconds for a guest to shut down before it is forced off.", name="timeout", default_s=30.0)
@options.one_host
@options.as_json
def command(name: str, tenant: str, yes: bool, drained: bool, timeout_s: float, as_json: bool, **where: Any) -> None:
    """Delete a node pool with its nodes: they are drained, their VMs deleted, and their cluster forgets them."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.model.plural import counted
    from vgpuctl.usecases.node.delete_node_pool import delete_node_pool
    from vgpuctl.usecases.node.list_node_pools import list_node_pools

    with services(**where) as opened:
        (there,) = list_node_pools(opened, tenant, [name])
        if not yes:
            confirm(f"Delete node pool {name} with {counted(len(there.nodes), 'node')}?")
        pool = delete_node_pool(opened, tenant, name, shutdown_timeout_s=timeout_s, is_drained=drained)
    if as_json:
        _JSON.print({"deleted": pool.printed_name})
    else:
        say(f"node pool {pool.printed_name}: deleted")
