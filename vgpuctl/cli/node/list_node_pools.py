# SPDX-License-Identifier: Apache-2.0
"""list-node-pools: node pools and their nodes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.listing import Column, Listing, ListOutput
from vgpuctl.cli.support.output import print_line, say
from vgpuctl.cli.support.state_colours import colour_of_state

if TYPE_CHECKING:
    from vgpuctl.model.node_pool import Node, NodePool, NodeState
    from vgpuctl.usecases.node.list_node_pools import PoolStatus
    from vgpuctl.usecases.support.node_states import NodeStatus


class JsonNode(TypedDict):
    """A node. reason: why it is not ready; refusal: the reference of the error that keeps it from starting."""

    node: "Node"
    state: "NodeState"
    host: str | None
    provider_id: str
    reason: str | None
    refusal: str | None


class JsonNodePool(TypedDict):
    """A pool with its nodes. group: its id for the cluster-autoscaler."""

    pool: "NodePool"
    group: str
    size: int
    never_joined: int
    nodes: Sequence[JsonNode]


def _json(one: "PoolStatus") -> JsonNodePool:
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


def _states(one: "PoolStatus") -> str | None:
    return ", ".join(f"{count} {state}" for state, count in one.counts.items()) or None


_LISTING: "Listing[PoolStatus, JsonNodePool]" = Listing(
    columns=(
        Column("TENANT", lambda one: one.pool.tenant),
        Column("POOL", lambda one: one.pool.name),
        Column("CLUSTER", lambda one: one.pool.cluster, drops=4),
        Column("ROLE", lambda one: one.pool.role, drops=5),
        Column("GPU", lambda one: tuple(gpu.text for gpu in one.pool.request.gpus) or None, drops=3),
        Column("NODES", lambda one: one.size),
        Column("MIN", lambda one: one.pool.minimum, drops=1),
        Column("MAX", lambda one: one.pool.maximum, drops=1),
        Column("STATES", _states, is_text=True),
        Column("NEVER JOINED", lambda one: one.never_joined, drops=6),
    ),
    name=lambda one: f"{one.pool.tenant}/{one.pool.name}",
    json=_json,
    empty="no node pool",
)
_NODES: "Listing[NodeStatus, str]" = Listing(
    columns=(
        Column("NODE", lambda one: one.node.name),
        Column("STATE", lambda one: one.state, colour=lambda one: colour_of_state(one.state)),
        Column("HOST", lambda one: None if one.vm is None else one.vm.host),
        Column("JOBS", lambda one: ", ".join(one.node.jobs) or None, is_rare=True, drops=1),
        Column("REASON", lambda one: one.reason or None, is_text=True),
    ),
    name=lambda one: one.node.name,
    json=lambda one: one.node.name,
    empty="no node",
)


@click.command("list-node-pools")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@options.tenant_filter_of("Only the pools of this tenant; needed with names.")
@options.database
@_LISTING.options
def command(names: tuple[str, ...], tenant: str | None, database: str | None, output: ListOutput) -> None:
    """List node pools: size, bounds, states of the nodes. With names, also each node and why it is not ready."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.errors import UsageError
    from vgpuctl.usecases.node.list_node_pools import list_node_pools

    if names and tenant is None:
        raise UsageError("names of pools need their tenant", hint="give --tenant NAME")
    with services(database=database) as opened:
        pools = _LISTING.show(output, lambda: list_node_pools(opened, tenant, names))
    for one in pools if names and output.is_for_people() else ():
        _print_nodes(one, output)


def _print_nodes(pool: "PoolStatus", output: ListOutput) -> None:
    if not pool.nodes:
        say(f"{pool.pool.printed_name}: no node")
        return
    print_line()
    _NODES.show(ListOutput(output.form), lambda: pool.nodes)
