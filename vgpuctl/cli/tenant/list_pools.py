# SPDX-License-Identifier: Apache-2.0
"""list-pools: the pools of hosts and who may use them."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_table


@click.command("list-pools")
@options.database
@options.as_json
def command(database: str | None, as_json: bool) -> None:
    """List the pools with their hosts and the tenants that may use them."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.tenant.list_pools import list_pools

    with services(database=database) as opened:
        pools = list_pools(opened)
    if as_json:
        print_json(pools)
    else:
        print_table(
            ["POOL", "HOSTS", "TENANTS"],
            [(pool.name, ", ".join(pool.hosts), ", ".join(pool.tenants) or "-") for pool in pools],
            empty="no pool: every host serves every tenant",
        )
