# SPDX-License-Identifier: Apache-2.0
"""list-vpc-objects: the objects of tenants' VPCs; no host is contacted."""

from typing import TYPE_CHECKING

import click

from vgpuctl.cli.lists.listing import Column, Listing, ListOutput
from vgpuctl.cli.options import options
from vgpuctl.specs.vpc_objects import LISTED, describe

if TYPE_CHECKING:
    from vgpuctl.usecases.network.vpc_objects import ShownObject

_LISTING: "Listing[ShownObject, ShownObject]" = Listing(
    columns=(
        Column("TENANT", lambda one: one.tenant),
        Column("KIND", lambda one: one.kind),
        Column("NAME", lambda one: one.name),
        Column("SPECIFICATION", lambda one: describe(one.spec), drops=1),
    ),
    name=lambda one: f"{one.tenant}/{one.kind}/{one.name}",
    json=lambda one: one,
    empty="no objects: create one, for example with `vgpuctl create-gateway`, or run `vgpuctl onboard`",
)


@click.command("list-vpc-objects")
@options.tenant_filter
@click.option("--kind", type=click.Choice([str(kind) for kind in LISTED]), help="Only objects of this kind.")
@options.database
@_LISTING.options
def command(tenant: str | None, kind: str | None, database: str | None, output: ListOutput) -> None:
    """List gateways, floating IPs, security groups and other VPC objects. They are in the networks of tenants."""
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.vpc import VpcKind
    from vgpuctl.usecases.network.list_vpc_objects import list_vpc_objects

    wanted = VpcKind(kind) if kind else None
    with services(database=database) as opened:
        _LISTING.show(output, lambda: list_vpc_objects(opened, tenant=tenant, kind=wanted))
