# SPDX-License-Identifier: Apache-2.0
"""list-outsides: the networks behind tenants' gateways, as the store knows them."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_table


@click.command("list-outsides")
@options.database
@options.as_json
def command(database: str | None, as_json: bool) -> None:
    """List the networks behind the tenants' gateways and who holds addresses of them."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.network.outsides import list_outsides

    with services(database=database) as opened:
        outsides = list_outsides(opened)
    if as_json:
        print_json([{"outside": outside, "held": held} for outside, held in outsides])
        return
    print_table(
        ["OUTSIDE", "CIDR", "POOL", "PHYSICAL NETWORK", "VLAN", "HELD"],
        [
            (
                outside.name,
                outside.cidr,
                f"{outside.first}-{outside.last}",
                outside.physical_network,
                outside.vlan,
                f"{len(held)} of {len(outside.pool())}",
            )
            for outside, held in outsides
        ],
        empty="no outside network: declare one with `vgpuctl create-outside`",
    )
