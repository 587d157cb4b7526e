# SPDX-License-Identifier: Apache-2.0
"""create-external-network: the network that tenants' gateways lead to."""

from typing import Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.field_options import field_options
from vgpuctl.cli.support.output import print_json, say
from vgpuctl.specs.network import EXTERNAL_NETWORK, read_external_network_flags


@click.command("create-external-network")
@click.argument("name")
@field_options(EXTERNAL_NETWORK, are_required=True)
@options.database
@options.as_json
def command(
    name: str,
    database: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Declare an external network for the tenants' gateways, or change it.

    Gateways of tenants lead to it (`create-gateway`).
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.network.create_external_network import create_external_network

    network = read_external_network_flags(name, given)
    with services(database=database) as opened:
        outcome = create_external_network(opened, network)
    if as_json:
        print_json({"changed": outcome != "unchanged", "external_network": network})
    else:
        say(f"{name}: {outcome}")
