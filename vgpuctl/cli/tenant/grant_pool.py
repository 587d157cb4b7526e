# SPDX-License-Identifier: Apache-2.0
"""grant-pool: who may use a pool."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.json_output import JsonOutput
from vgpuctl.cli.support.output import say
from vgpuctl.cli.tenant.create_pool import JsonPoolChange

_JSON: "JsonOutput[JsonPoolChange]" = JsonOutput()


@click.command("grant-pool")
@click.argument("pool")
@click.argument("tenants", nargs=-1, required=True, metavar="TENANT...")
@click.option("--revoke", is_flag=True, help="Revoke the grants; running VMs stay.")
@options.database
@options.as_json
def command(pool: str, tenants: tuple[str, ...], revoke: bool, database: str | None, as_json: bool) -> None:
    """Let tenants use the hosts of a pool, or revoke that."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.tenant.grant_pool import grant_pool

    with services(database=database) as opened:
        there, changed = grant_pool(opened, pool, tenants, revoke=revoke)
    if as_json:
        _JSON.print({"changed": changed, "pool": there})
    else:
        say(f"pool {pool}: {'for ' + (', '.join(there.tenants) or 'no tenant') if changed else 'no change'}")
