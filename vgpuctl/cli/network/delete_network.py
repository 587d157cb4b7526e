# SPDX-License-Identifier: Apache-2.0
"""delete-network: ask, then delete each network."""

from functools import partial
from typing import Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.deletion import DELETIONS, JsonDeletions, delete_each
from vgpuctl.cli.support.json_output import JsonOutput
from vgpuctl.cli.support.named import find_each

_JSON: "JsonOutput[JsonDeletions]" = DELETIONS


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
    from vgpuctl.model.plural import counted
    from vgpuctl.usecases.network.delete_network import delete_network
    from vgpuctl.usecases.network.show_network import show_network

    with services(rehearses=dry_run, **where) as opened:
        found = find_each(tenant, names, partial(show_network, opened, tenant), what="network", if_exists=if_exists)
        delete_each(
            found,
            lambda shown: delete_network(opened, shown.network),
            what="network",
            name=lambda shown: shown.network.request.name,
            describe=lambda shown: (
                f"{shown.network.printed_name}: {shown.network.request.cidr}, {counted(len(shown.ports), 'VM')}"
            ),
            yes=yes,
            dry_run=dry_run,
            as_json=as_json,
        )
