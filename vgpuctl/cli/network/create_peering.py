# SPDX-License-Identifier: Apache-2.0
"""create-peering: two tenants' networks joined."""

import click

from vgpuctl.cli.network.vpc_objects import changing, create


@click.command("create-peering")
@click.argument("neighbour", metavar="TENANT")
@changing
def command(neighbour: str, tenant: str, dry_run: bool, database: str | None, as_json: bool) -> None:
    """Join a tenant's networks with those of TENANT; it counts when both want it.

    Refused when networks of the two share addresses. Security groups go on to decide who is let in.
    """
    from vgpuctl.model.vpc import PeeringSpec

    wanted = PeeringSpec(neighbour, -1)
    create(tenant, wanted, dry_run=dry_run, database=database, as_json=as_json)
