# SPDX-License-Identifier: Apache-2.0
"""list-networks: the store's networks; no host is contacted."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_table


@click.command("list-networks")
@options.tenant_filter
@options.database
@options.as_json
def command(tenant: str | None, database: str | None, as_json: bool) -> None:
    """List the tenants' networks with the number of VMs and free addresses."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.network.list_networks import list_networks

    with services(database=database) as opened:
        networks = list_networks(opened, tenant=tenant)
    if as_json:
        print_json(networks)
        return
    print_table(
        ["TENANT", "NETWORK", "STATE", "CIDR", "BACKEND", "HOST", "VMS", "FREE"],
        [
            (
                shown.network.request.tenant,
                shown.network.request.name,
                shown.network.state,
                shown.network.request.cidr + (" isolated" if shown.network.request.isolated else ""),
                shown.network.request.backend,
                shown.network.request.host,
                len(shown.ports),
                shown.free,
            )
            for shown in networks
        ],
        empty="no network yet: create one with `vgpuctl create-network`",
    )
