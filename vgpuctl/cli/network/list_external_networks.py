# SPDX-License-Identifier: Apache-2.0
"""list-external-networks: the networks that tenants' gateways lead to, from the store."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_table


@click.command("list-external-networks")
@options.database
@options.as_json
def command(database: str | None, as_json: bool) -> None:
    """List the external networks and the tenants that hold addresses of them."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.network.list_external_networks import list_external_networks

    with services(database=database) as opened:
        networks = list_external_networks(opened)
    if as_json:
        print_json([{"external_network": network, "held": held} for network, held in networks])
        return
    print_table(
        ["EXTERNAL NETWORK", "CIDR", "POOL", "PHYSICAL NETWORK", "VLAN", "HELD"],
        [
            (
                network.name,
                network.cidr,
                f"{network.first}-{network.last}",
                network.physical_network,
                network.vlan,
                f"{len(held)} of {len(network.pool())}",
            )
            for network, held in networks
        ],
        empty="no external network: declare one with `vgpuctl create-external-network`",
    )
