# SPDX-License-Identifier: Apache-2.0
"""list-pools: the pools of hosts and who may use them."""

from typing import TYPE_CHECKING

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.listing import Column, Listing, ListOutput

if TYPE_CHECKING:
    from vgpuctl.quota.pools import Pool

_LISTING: "Listing[Pool, Pool]" = Listing(
    columns=(
        Column("POOL", lambda one: one.name),
        Column("HOSTS", lambda one: one.hosts or None),
        Column("TENANTS", lambda one: one.tenants or None),
    ),
    name=lambda one: one.name,
    json=lambda one: one,
    empty="no pool: every host serves every tenant",
)


@click.command("list-pools")
@options.database
@_LISTING.options
def command(database: str | None, output: ListOutput) -> None:
    """List the pools with their hosts and the tenants that may use them."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.tenant.list_pools import list_pools

    with services(database=database) as opened:
        _LISTING.show(output, lambda: list_pools(opened))
