# SPDX-License-Identifier: Apache-2.0
"""create-, set-, list-, scale- and delete-node-pool: node pools of tenants' clusters."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

import click

from vgpuctl.cli.forms.stored_kind import StoredKind
from vgpuctl.cli.lists.listing import Column, Listing, ListOutput
from vgpuctl.cli.options import options
from vgpuctl.cli.options.numbers import WholeRange
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_line, say
from vgpuctl.cli.shown.state_colours import colour_of_state
from vgpuctl.model.node_pool import MOST_NODES

if TYPE_CHECKING:
    from vgpuctl.model.node_pool import Node, NodePool, NodeState
    from vgpuctl.usecases.found.deletion import Deletion
    from vgpuctl.usecases.node.list_node_pools import PoolStatus
    from vgpuctl.usecases.observed.node_states import NodeStatus
    from vgpuctl.usecases.running.services import Services

NODE_POOLS: "StoredKind[NodePool]" = StoredKind("node pool", "list-node-pools", "pool", options.tenant)


class JsonScaled(TypedDict):
    """The size that is wanted. wanted: names of new nodes; let_go: of nodes that are drained and deleted."""

    changed: bool
    size: int
    wanted: "Sequence[str]"
    let_go: "Sequence[str]"


_SCALED: "JsonOutput[JsonScaled]" = JsonOutput(("scale-",))


@click.command("scale-node-pool")
@NODE_POOLS.argument("name")
@click.argument("size", type=WholeRange(0, MOST_NODES))
@options.tenant
@options.dry_run
@options.database
@options.as_json
def scale_node_pool(name: str, size: int, tenant: str, dry_run: bool, database: str | None, as_json: bool) -> None:
    """Change the number of nodes in a pool. `vgpuctl controller` makes the new ones, and drains and deletes the others.

    Of the nodes to let go those without work come first, then the newest.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.node.node_pools import scale_node_pool

    with services(rehearses=dry_run, database=database) as opened:
        scaled = scale_node_pool(opened, tenant, name, size)
    if as_json:
        changed = bool(scaled.wanted or scaled.let_go)
        _SCALED.print({"changed": changed, "size": scaled.size, "wanted": scaled.wanted, "let_go": scaled.let_go})
        return
    would = "would be " if dry_run else ""
    for node in scaled.wanted:
        say(f"{tenant}/{node}: {would}wanted")
    for node in scaled.let_go:
        say(f"{tenant}/{node}: {would}let go")
    if not scaled.wanted and not scaled.let_go:
        say(f"node pool {tenant}/{name}: no change, {size} nodes")


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


def _print_nodes(pools: "Sequence[PoolStatus]", output: ListOutput) -> None:
    for one in pools:
        if one.nodes:
            print_line()
            _NODES.show(ListOutput(output.form), functools.partial(tuple, one.nodes))
        else:
            say(f"{one.pool.printed_name}: no node")


@NODE_POOLS.lists(
    _LISTING, _print_nodes, tenant=options.tenant_filter_of("Only the pools of this tenant; needed with names.")
)
@NODE_POOLS.argument("names", metavar="[NAME]...", nargs=-1)
def list_node_pools(opened: "Services", names: tuple[str, ...], tenant: str | None) -> "Sequence[PoolStatus]":
    """List node pools with their sizes, bounds and states of their nodes. With names, also each node and why it is not
    ready.
    """
    from vgpuctl.errors import UsageError
    from vgpuctl.usecases.node.list_node_pools import list_node_pools

    if names and tenant is None:
        raise UsageError("names of pools need their tenant", hint="give --tenant NAME")
    return list_node_pools(opened, tenant, names)


@NODE_POOLS.deletes(whose=" of tenant {tenant} with all nodes", where=options.one_host)
@click.option(
    "--drained",
    "is_drained",
    is_flag=True,
    help="Wait neither for the work on the nodes nor for a cluster that does not answer.",
)
@options.shutdown_timeout("Seconds for a guest to shut down before it is forced off.", name="timeout", default_s=30.0)
def delete_node_pool() -> "Deletion[PoolStatus]":
    """Drain and delete all nodes of pools, and the pools. Their cluster forgets them."""
    from vgpuctl.usecases.node.node_pools import DELETION

    return DELETION
