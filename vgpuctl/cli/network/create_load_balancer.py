# SPDX-License-Identifier: Apache-2.0
"""create-load-balancer: one address for several VMs."""

import click

from vgpuctl.cli.network.vpc_objects import changing, create
from vgpuctl.cli.support.numbers import WholeRange


@click.command("create-load-balancer")
@click.argument("name")
@click.option("--network", required=True, metavar="NAME", help="The network whose address it has.")
@click.option("--port", required=True, type=WholeRange(1, 65535), help="Its port.")
@click.option("--protocol", type=click.Choice(["tcp", "udp"]), default="tcp", show_default=True, help="Of its port.")
@click.option("--vm", "vms", required=True, multiple=True, metavar="NAME", help="A VM behind it, several times.")
@click.option("--vm-port", type=WholeRange(1, 65535), help="The port of its VMs; default: the same.")
@click.option(
    "--interval", type=WholeRange(1, 3600), default=5, show_default=True, help="Seconds between health checks."
)
@click.option(
    "--timeout", type=WholeRange(1, 3600), default=20, show_default=True, help="Seconds to wait for an answer."
)
@click.option(
    "--failures",
    type=WholeRange(1, 3600),
    default=3,
    show_default=True,
    help="Checks without answer for a dead VM.",
)
@changing
def command(
    name: str,
    network: str,
    port: int,
    protocol: str,
    vms: tuple[str, ...],
    vm_port: int | None,
    interval: int,
    timeout: int,
    failures: int,
    tenant: str,
    dry_run: bool,
    database: str | None,
    as_json: bool,
) -> None:
    """Share the connections to an address of a tenant's network among VMs that answer its health checks.

    The address is the highest free one of the network.
    """
    from vgpuctl.model.vpc import LoadBalancer, Protocol

    wanted = LoadBalancer(
        name=name,
        address="",
        port=port,
        protocol=Protocol(protocol),
        vms=tuple(dict.fromkeys(vms)),
        vm_port=vm_port or port,
        health_interval_s=interval,
        health_timeout_s=timeout,
        health_failures=failures,
        network=network,
    )
    create(tenant, wanted, dry_run=dry_run, database=database, as_json=as_json)
