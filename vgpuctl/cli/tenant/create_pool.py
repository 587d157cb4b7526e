# SPDX-License-Identifier: Apache-2.0
"""create-pool: hosts that only some tenants may use."""

from typing import TYPE_CHECKING, TypedDict

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.json_output import JsonOutput
from vgpuctl.cli.support.output import say

if TYPE_CHECKING:
    from vgpuctl.quota.pools import Pool


class JsonPoolChange(TypedDict):
    """A pool of hosts; changed: false if nothing had to change."""

    changed: bool
    pool: "Pool"


_JSON: "JsonOutput[JsonPoolChange]" = JsonOutput()


@click.command("create-pool")
@click.argument("name")
@click.option(
    "--hosts",
    "pattern",
    required=True,
    metavar="PATTERN",
    help="Hosts of the pool, as for --limit: names, groups, globs, !not, &and.",
)
@options.inventory
@options.database
@options.as_json
def command(name: str, pattern: str, inventories: tuple[str, ...], database: str | None, as_json: bool) -> None:
    """Create a pool of hosts that only tenants with a grant may use, or change the hosts of a pool.

    A host outside all pools serves every tenant. Running VMs stay where they are.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.tenant.create_pool import create_pool

    with services(inventories=inventories, database=database) as opened:
        pool, changed = create_pool(opened, name, pattern)
    if as_json:
        _JSON.print({"changed": changed, "pool": pool})
    else:
        say(f"pool {name}: {', '.join(pool.hosts) if changed else 'no change'}")
