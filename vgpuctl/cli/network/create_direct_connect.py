# SPDX-License-Identifier: Apache-2.0
"""create-direct-connect: a provider VLAN in a tenant's network."""

import click

from vgpuctl.cli.network.vpc_objects import changing, create
from vgpuctl.cli.support.numbers import WholeRange


@click.command("create-direct-connect")
@click.argument("network")
@click.option("--physical-network", required=True, metavar="NAME", help="Its name in the hosts' ovn-bridge-mappings.")
@click.option("--vlan", type=WholeRange(1, 4094), help="Its VLAN; default: untagged.")
@changing
def command(
    network: str,
    physical_network: str,
    vlan: int | None,
    tenant: str,
    dry_run: bool,
    database: str | None,
    as_json: bool,
) -> None:
    """Connect a tenant's NETWORK to a physical network or VLAN that the tenant brings to the hosts."""
    from vgpuctl.model.vpc import DirectConnect

    wanted = DirectConnect(network, physical_network, vlan)
    create(tenant, wanted, dry_run=dry_run, database=database, as_json=as_json)
