# SPDX-License-Identifier: Apache-2.0
"""delete-network: ask, then delete each network."""

from functools import partial
from typing import Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.named import find_each
from vgpuctl.cli.support.output import confirm, print_json, say
from vgpuctl.model.plural import counted


@click.command("delete-network")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@options.network_tenant
@options.yes
@click.option("--if-exists", is_flag=True, help="Ignore names that do not exist.")
@options.dry_run
@options.one_host
@options.as_json
def command(
    names: tuple[str, ...], tenant: str, yes: bool, if_exists: bool, dry_run: bool, as_json: bool, **where: Any
) -> None:
    """Delete a tenant's networks. Refused while VMs are in them."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.network.delete_network import delete_network
    from vgpuctl.usecases.network.show_network import show_network

    with services(**where) as opened:
        found = find_each(tenant, names, partial(show_network, opened, tenant), what="network", if_exists=if_exists)
        for shown in found:
            request = shown.network.request
            say(f"{shown.network.label}: {request.cidr}, {len(shown.ports)} VMs" + (" would be deleted" * dry_run))
        if found and not dry_run:
            if not yes:
                confirm(f"Delete {counted(len(found), 'network')}?")
            for shown in found:
                delete_network(opened, shown.network)
    if as_json:
        print_json({"deleted": [] if dry_run else [shown.network.request.name for shown in found], "dry_run": dry_run})
