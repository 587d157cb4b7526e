# SPDX-License-Identifier: Apache-2.0
"""create-tenant: add a tenant to the store."""

import click

from vgpuctl.cli import options
from vgpuctl.cli.output import print_json, say


@click.command("create-tenant")
@click.argument("name")
@options.database
@options.as_json
def command(name: str, database: str | None, as_json: bool) -> None:
    """Add a tenant. The same command again changes nothing."""
    from vgpuctl.cli.services import services
    from vgpuctl.usecases.tenants import create_tenant

    with services(database=database) as opened:
        changed = create_tenant(opened, name)
    if as_json:
        print_json({"changed": changed, "tenant": name})
    else:
        say(f"tenant {name}: {'created' if changed else 'no change'}")
