# SPDX-License-Identifier: Apache-2.0
"""list-vpc-objects: what belongs to tenants' networks; no host is contacted."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_table

_KINDS = (
    *("gateway", "security-group", "floating-ip", "port-forward", "load-balancer"),
    *("direct-connect", "peering"),
)


@click.command("list-vpc-objects")
@options.tenant_filter
@click.option("--kind", type=click.Choice(_KINDS), help="Only objects of this kind.")
@options.database
@options.as_json
def command(tenant: str | None, kind: str | None, database: str | None, as_json: bool) -> None:
    """List what tenants' networks have: gateways, security groups with their rules, floating IPs,
    port forwards, load balancers, direct connects and peerings.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.model.vpc import VpcKind
    from vgpuctl.usecases.network.vpc_commands import describe, list_objects

    with services(database=database) as opened:
        objects = list_objects(opened, tenant=tenant, kind=VpcKind(kind) if kind else None)
    if as_json:
        print_json(objects)
        return
    print_table(
        ["TENANT", "KIND", "NAME", "WHAT"],
        [(one.tenant, one.kind, one.name, describe(one.spec)) for one in objects],
        empty="nothing yet: see `vgpuctl create-gateway` and its like, or `vgpuctl onboard`",
    )
