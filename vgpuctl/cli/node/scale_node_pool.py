# SPDX-License-Identifier: Apache-2.0
"""scale-node-pool: more or fewer nodes."""

from collections.abc import Sequence
from typing import TypedDict

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.json_output import JsonOutput
from vgpuctl.cli.support.numbers import WholeRange
from vgpuctl.cli.support.output import say
from vgpuctl.model.node_pool import MOST_NODES


class JsonScaled(TypedDict):
    """The size that is wanted. wanted: names of new nodes; let_go: of nodes that are drained and deleted."""

    changed: bool
    size: int
    wanted: "Sequence[str]"
    let_go: "Sequence[str]"


_JSON: "JsonOutput[JsonScaled]" = JsonOutput()


@click.command("scale-node-pool")
@click.argument("name")
@click.argument("size", type=WholeRange(0, MOST_NODES))
@options.tenant
@options.dry_run
@options.database
@options.as_json
def command(name: str, size: int, tenant: str, dry_run: bool, database: str | None, as_json: bool) -> None:
    """Want SIZE nodes in a pool. `vgpuctl controller` makes the new ones, and drains and deletes the others.

    Of the nodes to let go those without work come first, then the newest.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.node.scale_node_pool import scale_node_pool

    with services(rehearses=dry_run, database=database) as opened:
        scaled = scale_node_pool(opened, tenant, name, size)
    if as_json:
        changed = bool(scaled.wanted or scaled.let_go) and not dry_run
        _JSON.print({"changed": changed, "size": scaled.size, "wanted": scaled.wanted, "let_go": scaled.let_go})
        return
    would = "would be " if dry_run else ""
    for node in scaled.wanted:
        say(f"{tenant}/{node}: {would}wanted")
    for node in scaled.let_go:
        say(f"{tenant}/{node}: {would}let go")
    if not scaled.wanted and not scaled.let_go:
        say(f"node pool {tenant}/{name}: no change, {size} nodes")
