# SPDX-License-Identifier: Apache-2.0
"""create-external-network: the network that tenants' gateways lead to."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.numbers import WholeRange
from vgpuctl.cli.support.output import print_json, say
from vgpuctl.errors import UsageError


@click.command("create-external-network")
@click.argument("name")
@click.option("--cidr", required=True, metavar="CIDR", help="Provider's network: 203.0.113.0/24.")
@click.option("--gateway", required=True, metavar="ADDRESS", help="Address of the provider's router.")
@click.option("--pool", required=True, metavar="FIRST-LAST", help="First and last address for tenants.")
@click.option("--physical-network", required=True, metavar="NAME", help="Its name in the hosts' ovn-bridge-mappings.")
@click.option("--vlan", type=WholeRange(1, 4094), help="VLAN of the physical network; default: untagged.")
@click.option(
    "--chassis",
    multiple=True,
    metavar="ID",
    help="system-id of a host for gateways, best first; several times.",
)
@click.option("--management", multiple=True, metavar="CIDR", help="Network that no tenant may reach; several times.")
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
    """Declare an external network for the tenants' gateways, or change it.

    Gateways of tenants lead to it (`create-gateway`).
    """
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
