# SPDX-License-Identifier: Apache-2.0
"""list-tenants: the tenants of the store."""

import click

from vgpuctl.cli import options
from vgpuctl.cli.output import print_json, print_table


@click.command("list-tenants")
@options.database
@options.as_json
def command(database: str | None, as_json: bool) -> None:
    """List the tenants and how many VMs each has."""
    from vgpuctl.cli.services import services
    from vgpuctl.usecases.tenants import list_tenants

    with services(database=database) as opened:
        tenants = list_tenants(opened)
    if as_json:
        print_json([{"tenant": name, "vms": vms} for name, vms in tenants])
    else:
        print_table(["TENANT", "VMS"], tenants, empty="no tenant yet: add one with `vgpuctl create-tenant NAME`")
