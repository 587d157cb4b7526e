# SPDX-License-Identifier: Apache-2.0
"""create-gateway: a tenant's way out."""

import click

from vgpuctl.cli.network.vpc_objects import changing, create


@click.command("create-gateway")
@click.argument("outside")
@changing
def command(outside: str, tenant: str, dry_run: bool, database: str | None, as_json: bool) -> None:
    """Let a tenant's networks out through the network OUTSIDE, with an address of its own.

    The operator makes OUTSIDE with `create-outside`. A tenant has one gateway.
    """
    from vgpuctl.model.vpc import Gateway

    wanted = Gateway(outside)
    create(tenant, wanted, dry_run=dry_run, database=database, as_json=as_json)
