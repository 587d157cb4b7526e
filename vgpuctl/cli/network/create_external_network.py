# SPDX-License-Identifier: Apache-2.0
"""create-external-network: the network that tenants' gateways lead to."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.numbers import WholeRange
from vgpuctl.cli.support.output import print_json, say
from vgpuctl.errors import UsageError


@click.command("create-external-network")
@click.argument("name")
@click.option("--cidr", required=True, metavar="CIDR", help="The provider's network, for example 203.0.113.0/24.")
@click.option("--gateway", required=True, metavar="ADDRESS", help="The provider's router in it.")
@click.option("--pool", required=True, metavar="FIRST-LAST", help="Addresses that tenants may get.")
@click.option("--physical-network", required=True, metavar="NAME", help="Its name in the hosts' ovn-bridge-mappings.")
@click.option("--vlan", type=WholeRange(1, 4094), help="Its VLAN; default: untagged.")
@click.option("--chassis", multiple=True, metavar="ID", help="system-id of a host that may be gateway, best first.")
@click.option("--management", multiple=True, metavar="CIDR", help="What tenants must never reach; several times.")
@options.database
@options.as_json
def command(
    name: str,
    cidr: str,
    gateway: str,
    pool: str,
    physical_network: str,
    vlan: int | None,
    chassis: tuple[str, ...],
    management: tuple[str, ...],
    database: str | None,
    as_json: bool,
) -> None:
    """Declare an external network for the tenants' gateways, or change it. `create-gateway` names it."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.model.vpc import ExternalNetwork
    from vgpuctl.usecases.network.create_external_network import create_external_network

    first, dash, last = pool.partition("-")
    if not dash:
        raise UsageError(f"--pool {pool!a} is not FIRST-LAST", hint="for example 203.0.113.10-203.0.113.99")
    network = ExternalNetwork(name, cidr, gateway, first, last, physical_network, vlan, chassis, management)
    with services(database=database) as opened:
        outcome = create_external_network(opened, network)
    if as_json:
        print_json({"changed": outcome != "unchanged", "external_network": network})
    else:
        say(f"{name}: {outcome}")
