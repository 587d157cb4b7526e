# SPDX-License-Identifier: Apache-2.0
"""set-node-pool: other values of a node pool."""

from dataclasses import replace
from typing import Any

import click

from vgpuctl.cli.node.create_node_pool import JsonNodePoolChange
from vgpuctl.cli.options import options
from vgpuctl.cli.options.field_options import field_options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say
from vgpuctl.specs.node_pool import CHANGEABLE, NODE_POOL

_JSON: "JsonOutput[JsonNodePoolChange]" = JsonOutput()


@click.command("set-node-pool")
@click.argument("name")
@options.tenant
@field_options(replace(NODE_POOL, fields=tuple(CHANGEABLE)))
@options.database
@options.as_json
def command(name: str, tenant: str, database: str | None, as_json: bool, **given: Any) -> None:
    """Change the bounds, labels, secrets or timeouts of a node pool. Nodes that are there keep what they were made
    with; new ones get the new values.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.errors import UsageError
    from vgpuctl.usecases.node.node_pools import set_node_pool

    if all(value in (None, ()) for value in given.values()):
        raise UsageError("nothing to change", hint="give an option, for example --max 16; see set-node-pool --help")
    with services(database=database) as opened:
        pool, changed = set_node_pool(opened, tenant, name, given)
    if as_json:
        _JSON.print({"changed": changed, "pool": pool, "group": pool.group_id})
    else:
        said = f"{pool.minimum} to {pool.maximum} nodes" if changed else "no change"
        say(f"node pool {pool.printed_name}: {said}")
