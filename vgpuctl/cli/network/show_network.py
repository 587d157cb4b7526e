# SPDX-License-Identifier: Apache-2.0
"""show-network: one network of the store; no host is contacted."""

from typing import TYPE_CHECKING

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.json_output import JsonOutput
from vgpuctl.cli.support.output import print_line, print_table

if TYPE_CHECKING:
    from vgpuctl.model.promise import LastFinding
    from vgpuctl.usecases.network.list_networks import ShownNetwork


_JSON: "JsonOutput[ShownNetwork]" = JsonOutput()


@click.command("show-network")
@click.argument("name")
@options.network_tenant
@options.database
@options.as_json
def command(name: str, tenant: str, database: str | None, as_json: bool) -> None:
    """Show one network: its addresses, who has them, and what was last seen of their interfaces.

    No host is contacted. `vgpuctl controller` and `check-vm` look at the interfaces of VMs that run.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.network.show_network import show_network

    with services(database=database) as opened:
        shown = show_network(opened, tenant, name)
    if as_json:
        _JSON.print(shown)
        return
    network = shown.network
    request = network.request
    print_line(f"network   {request.name} of tenant {request.tenant}, {network.state}")
    print_line(
        f"carried   by {request.backend}" + (f" on {request.host}, bridge {shown.bridge}" if request.host else "")
    )
    print_line(f"addresses {request.cidr}, gateway {shown.gateway}, {shown.free} free")
    print_line(f"resolver  {', '.join(request.dns) or ('the gateway' if request.host else 'none')}")
    way_out = "none" if request.isolated else "the tenant's gateway" if request.host is None else "NAT"
    print_line(f"way out   {way_out}")
    print_table(
        ["ADDRESS", "MAC", "VM", "INTERFACE"],
        [(one.port.address, one.port.mac_address, one.vm, _interface(one.finding)) for one in shown.ports],
        empty="no VM has an address of it",
    )


def _interface(found: "LastFinding | None") -> str:
    """What was last seen of an interface, in words."""
    from vgpuctl.model.times import format_time_to_second

    if found is None:
        return "-"
    finding = found.finding
    said = f", seen {finding.seen}" if finding.is_broken else f": {finding.why}" if finding.why else ""
    return f"{str(finding.verdict).replace('-', ' ')}{said}, {format_time_to_second(found.at)}"
