# SPDX-License-Identifier: Apache-2.0
"""delete-outside: take a network behind tenants' gateways away."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, say


@click.command("delete-outside")
@click.argument("name")
@options.database
@options.as_json
def command(name: str, database: str | None, as_json: bool) -> None:
    """Delete a network behind the tenants' gateways. Refused while tenants hold addresses of it."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.network.outsides import delete_outside

    with services(database=database) as opened:
        deleted = delete_outside(opened, name)
    if as_json:
        print_json({"deleted": deleted})
    else:
        say(f"{name}: {'deleted' if deleted else 'no such network, nothing to delete'}")
