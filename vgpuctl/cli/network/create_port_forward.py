# SPDX-License-Identifier: Apache-2.0
"""create-port-forward: a port of the gateway's address."""

import click

from vgpuctl.cli.network.vpc_objects import changing, create
from vgpuctl.cli.support.numbers import WholeRange


@click.command("create-port-forward")
@click.argument("port", metavar="[PROTOCOL/]PORT")
@click.option("--vm", required=True, metavar="NAME", help="Where it goes.")
@click.option("--vm-port", type=WholeRange(1, 65535), help="The VM's port; default: the same.")
@changing
def command(
    port: str, vm: str, vm_port: int | None, tenant: str, dry_run: bool, database: str | None, as_json: bool
) -> None:
    """Send a port of the gateway's address on to a VM: `8080`, or `udp/53`.

    The address stays, and the VM's security groups must let the connection in.
    """
    from vgpuctl.model.vpc import PortForward
    from vgpuctl.model.vpc_text import parse_forwarded

    protocol, number = parse_forwarded(port)
    wanted = PortForward(protocol, "", number, vm, vm_port or number)
    create(tenant, wanted, dry_run=dry_run, database=database, as_json=as_json)
