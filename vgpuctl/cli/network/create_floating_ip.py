# SPDX-License-Identifier: Apache-2.0
"""create-floating-ip: an external address for one VM."""

import click

from vgpuctl.cli.network.vpc_objects import changing, create


@click.command("create-floating-ip")
@click.argument("vm")
@changing
def command(vm: str, tenant: str, dry_run: bool, database: str | None, as_json: bool) -> None:
    """Assign a floating IP to VM: the lowest free address of the tenant's external network.

    The VM's security groups apply to it.
    """
    from vgpuctl.model.vpc import FloatingIp

    wanted = FloatingIp(vm, "")
    create(tenant, wanted, dry_run=dry_run, database=database, as_json=as_json)
