# SPDX-License-Identifier: Apache-2.0
"""delete-external-network: delete a network that tenants' gateways lead to."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.deletion import JsonDeletion
from vgpuctl.cli.support.json_output import JsonOutput
from vgpuctl.cli.support.output import say

_JSON: "JsonOutput[JsonDeletion[bool]]" = JsonOutput()


@click.command("delete-external-network")
@click.argument("name")
@options.database
@options.as_json
def command(name: str, database: str | None, as_json: bool) -> None:
    """Delete an external network. Refused while tenants hold addresses of it."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.network.delete_external_network import delete_external_network

    with services(database=database) as opened:
        deleted = delete_external_network(opened, name)
    if as_json:
        _JSON.print({"deleted": deleted})
    else:
        say(f"{name}: {'deleted' if deleted else 'no such network, nothing to delete'}")
