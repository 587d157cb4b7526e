# SPDX-License-Identifier: Apache-2.0
"""create-external-network: the network that tenants' gateways lead to."""

from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.options.field_options import field_options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say
from vgpuctl.specs.network import EXTERNAL_NETWORK, read_external_network_flags

if TYPE_CHECKING:
    from vgpuctl.model.vpc import ExternalNetwork


class JsonExternalNetworkChange(TypedDict):
    """changed: false if it was there already."""

    changed: bool
    external_network: "ExternalNetwork"


_JSON: "JsonOutput[JsonExternalNetworkChange]" = JsonOutput()


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
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.network.create_external_network import create_external_network

    network = read_external_network_flags(name, given)
    with services(database=database) as opened:
        outcome = create_external_network(opened, network)
    if as_json:
        _JSON.print({"changed": outcome != "unchanged", "external_network": network})
    else:
        say(f"{name}: {outcome}")
