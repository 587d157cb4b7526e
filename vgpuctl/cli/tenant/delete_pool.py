# SPDX-License-Identifier: Apache-2.0
"""delete-pool: its hosts serve every tenant again."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import confirm, print_json, say


@click.command("delete-pool")
@click.argument("name")
@options.yes
@options.database
@options.as_json
def command(name: str, yes: bool, database: str | None, as_json: bool) -> None:
    """Delete a pool and its grants; its hosts then serve every tenant, and VMs stay where they are."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.tenant.delete_pool import delete_pool

    if not yes:
        confirm(f"Delete pool {name} and open its hosts to every tenant?")
    with services(database=database) as opened:
        pool = delete_pool(opened, name)
    if as_json:
        print_json({"deleted": pool})
    else:
        say(f"pool {name}: deleted, {', '.join(pool.hosts)} serve every tenant")
