# SPDX-License-Identifier: Apache-2.0
"""create-floating-address: an outside address that is one VM's alone."""

import click

from vgpuctl.cli.network.vpc_objects import changing, create


@click.command("create-floating-address")
@click.argument("vm")
@changing
def command(vm: str, tenant: str, dry_run: bool, database: str | None, as_json: bool) -> None:
    """Give VM an outside address of its own, the lowest free one of the tenant's gateway.

    What its security groups do not allow does not come in by it either.
    """
    from vgpuctl.model.vpc import FloatingAddress

    wanted = FloatingAddress(vm, "")
    create(tenant, wanted, dry_run=dry_run, database=database, as_json=as_json)
