# SPDX-License-Identifier: Apache-2.0
"""delete-licence-pool: no longer count these licences."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import confirm, print_json, say


@click.command("delete-licence-pool")
@click.argument("name")
@options.yes
@options.database
@options.as_json
def command(name: str, yes: bool, database: str | None, as_json: bool) -> None:
    """Delete a pool of vGPU licences with its token. Refused while seats of it are taken."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.licence.delete_licence_pool import delete_licence_pool

    if not yes:
        confirm(f"Delete licence pool {name} with its token?")
    with services(database=database) as opened:
        pool = delete_licence_pool(opened, name)
    if as_json:
        print_json({"deleted": pool})
    else:
        say(f"licence pool {name}: deleted")
