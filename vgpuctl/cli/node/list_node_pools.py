# SPDX-License-Identifier: Apache-2.0
"""list-node-pools: node pools and their nodes."""

from typing import TYPE_CHECKING

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_table

if TYPE_CHECKING:
    from vgpuctl.usecases.node.list_node_pools import PoolStatus


@click.command("list-node-pools")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@options.tenant_filter_of("Only the pools of this tenant; needed with names.")
@options.database
@options.as_json
def command(names: tuple[str, ...], tenant: str | None, database: str | None, as_json: bool) -> None:
    """List node pools: size, bounds, states of the nodes. With names, also each node and why it is not ready."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.errors import UsageError
    from vgpuctl.usecases.node.list_node_pools import list_node_pools

    if names and tenant is None:
        raise UsageError("names of pools need their tenant", hint="give --tenant NAME")
    with services(database=database) as opened:
        pools = list_node_pools(opened, tenant, names)
    if as_json:
        print_json([_show(one) for one in pools])
        return
    print_table(
        ["TENANT", "POOL", "CLUSTER", "ROLE", "GPU", "NODES", "MIN", "MAX", "STATES", "NEVER JOINED"],
        [
            (
                one.pool.tenant,
                one.pool.name,
                one.pool.cluster,
                one.pool.role,
                ", ".join(gpu.text for gpu in one.pool.request.gpus) or "none",
                one.size,
                one.pool.minimum,
                one.pool.maximum,
                ", ".join(f"{count} {state}" for state, count in one.counts.items()),
                one.never_joined,
            )
            for one in pools
        ],
        empty="no node pool",
    )
    for one in pools if names else ():
        print_table(
            ["NODE", "STATE", "HOST", "JOBS", "REASON"],
            [
                (
                    status.node.name,
                    status.state,
                    None if status.vm is None else status.vm.host,
                    ", ".join(status.node.jobs),
                    status.reason,
                )
                for status in one.nodes
            ],
            empty=f"{one.pool.label}: no node",
        )


def _show(one: "PoolStatus") -> dict[str, object]:
    return {
        "pool": one.pool,
        "group": one.pool.group_id,
        "size": one.size,
        "never_joined": one.never_joined,
        "nodes": [
            {
                "node": status.node,
                "state": status.state,
                "host": None if status.vm is None else status.vm.host,
                "provider_id": one.pool.provider_id(status.node.vm_uuid),
                "reason": status.reason,
                "refusal": status.refusal,
            }
            for status in one.nodes
        ],
    }
