# SPDX-License-Identifier: Apache-2.0
"""list-vpc-objects: the objects of tenants' VPCs; no host is contacted."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_table
from vgpuctl.specs.vpc_objects import LISTED, describe


@click.command("list-vpc-objects")
@options.tenant_filter
@click.option("--kind", type=click.Choice([str(kind) for kind in LISTED]), help="Only objects of this kind.")
@options.database
@options.as_json
def command(tenant: str | None, kind: str | None, database: str | None, as_json: bool) -> None:
    """List gateways, floating IPs, security groups and other objects in tenants' networks."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.model.vpc import VpcKind
    from vgpuctl.usecases.network.list_vpc_objects import list_vpc_objects

    with services(database=database) as opened:
        objects = list_vpc_objects(opened, tenant=tenant, kind=VpcKind(kind) if kind else None)
    if as_json:
        print_json(objects)
        return
    print_table(
        ["TENANT", "KIND", "NAME", "SPECIFICATION"],
        [(one.tenant, one.kind, one.name, describe(one.spec)) for one in objects],
        empty="no objects: create one, for example with `vgpuctl create-gateway`, or run `vgpuctl onboard`",
    )
