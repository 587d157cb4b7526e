# SPDX-License-Identifier: Apache-2.0
"""create-network: a network for a tenant's VMs."""

from typing import Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, say


@click.command("create-network")
@click.argument("name")
@options.network_tenant
@click.option("--cidr", required=True, metavar="CIDR", help="IPv4 addresses of the network, /8 to /29: 10.0.0.0/24.")
@click.option(
    "--dns",
    multiple=True,
    metavar="ADDRESS",
    help="DNS resolver for the VMs, several times; default: the host's.",
)
@click.option("--isolated", is_flag=True, help="Allow traffic only between VMs of the network.")
@click.option(
    "--backend",
    type=click.Choice(["libvirt", "ovn"]),
    help="libvirt on one host, or OVN on all hosts; default: ovn if VGPUCTL_OVN_NORTHBOUND is set and --host is not.",
)
@click.option("--host", metavar="NAME", help="Host of a libvirt network; default: the only host of the inventory.")
@options.dry_run
@options.inventory
@options.limit
@options.database
@options.ssh
@options.as_json
def command(
    name: str,
    tenant: str,
    cidr: str,
    dns: tuple[str, ...],
    isolated: bool,
    backend: str | None,
    host: str | None,
    dry_run: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Create a network for a tenant's VMs.

    VMs join it with `create-vm --network NAME` and get fixed addresses.

    Run the command again to finish an interrupted run; otherwise it changes nothing.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.model.network import Backend, NetworkRequest
    from vgpuctl.usecases.network.create_network import create_network

    with services(**where) as opened:
        default = Backend.OVN if opened.has_northbound and host is None else Backend.LIBVIRT
        request = NetworkRequest(
            name, tenant, cidr, dns, isolated=isolated, backend=Backend(backend) if backend else default, host=host
        )
        created = create_network(opened, request, dry_run=dry_run)
    if as_json:
        print_json({"changed": created.changed and not dry_run, "network": created.network})
    elif not created.changed:
        say(f"{created.network.label}: no change")
    elif dry_run:
        request = created.network.request
        say(f"{created.network.label}: {request.cidr} by {request.backend} would be created")
