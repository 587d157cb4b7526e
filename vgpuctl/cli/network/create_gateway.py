# SPDX-License-Identifier: Apache-2.0
"""create-gateway: a tenant's way out."""

import click

from vgpuctl.cli.network.vpc_objects import changing, create


@click.command("create-gateway")
@click.argument("external_network")
@changing
def command(external_network: str, tenant: str, dry_run: bool, database: str | None, as_json: bool) -> None:
    """Route a tenant's networks to the network EXTERNAL_NETWORK, with an address of its own.

    The operator declares EXTERNAL_NETWORK with `create-external-network`. A tenant has one gateway.
    """
    from vgpuctl.model.vpc import Gateway

    wanted = Gateway(external_network)
    create(tenant, wanted, dry_run=dry_run, database=database, as_json=as_json)
