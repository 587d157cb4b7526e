# SPDX-License-Identifier: Apache-2.0
"""create-, list-, show- and delete-network: tenants' networks."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vgpuctl.cli.forms.stored_kind import StoredKind
from vgpuctl.cli.lists.listing import Column, Listing
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.output import print_line, print_table
from vgpuctl.cli.shown.state_colours import colour_of_state

if TYPE_CHECKING:
    from vgpuctl.model.network import Network
    from vgpuctl.model.promise import LastFinding
    from vgpuctl.usecases.found.deletion import Deletion
    from vgpuctl.usecases.network.list_networks import ShownNetwork
    from vgpuctl.usecases.running.services import Services

NETWORKS: "StoredKind[Network]" = StoredKind("network", "list-networks", "network", options.network_tenant)


def _cidr(one: "ShownNetwork") -> str:
    return one.network.request.cidrs + (" isolated" if one.network.request.isolated else "")


def _interfaces(one: "ShownNetwork") -> str:
    """How many interfaces were last seen to be as promised, such as `2 kept, 1 broken`."""
    verdicts = Counter(str(port.finding.finding.verdict) for port in one.ports if port.finding is not None)
    return ", ".join(f"{count} {verdict.replace('-', ' ')}" for verdict, count in verdicts.items())


_LISTING: "Listing[ShownNetwork, ShownNetwork]" = Listing(
    columns=(
        Column("TENANT", lambda one: one.network.request.tenant),
        Column("NETWORK", lambda one: one.network.request.name),
        Column("STATE", lambda one: one.network.state, colour=lambda one: colour_of_state(one.network.state)),
        Column("CIDR", _cidr),
        Column("BACKEND", lambda one: one.network.request.backend, drops=4),
        Column("HOST", lambda one: one.network.request.host, drops=3),
        Column("VMS", lambda one: len(one.ports), drops=1),
        Column("INTERFACES", _interfaces, colour=lambda one: colour_of_state(_interfaces(one)), drops=5),
        Column("FREE", lambda one: one.free, drops=2),
        Column("GATEWAY", lambda one: ", ".join(one.gateways), is_wide=True),
        Column("BRIDGE", lambda one: one.bridge, is_wide=True),
    ),
    name=lambda one: f"{one.network.request.tenant}/{one.network.request.name}",
    json=lambda one: one,
    empty="no network yet: create one with `vgpuctl create-network`",
)


@NETWORKS.lists(_LISTING)
def list_networks(opened: "Services", tenant: str | None) -> "Sequence[ShownNetwork]":
    """List the tenants' networks with the number of VMs and free addresses."""
    from vgpuctl.usecases.network.list_networks import list_networks

    return list_networks(opened, tenant=tenant)


def _print(shown: "ShownNetwork") -> None:
    network = shown.network
    request = network.request
    print_line(f"network   {request.name} of tenant {request.tenant}, {network.state}")
    print_line(
        f"carried   by {request.backend}" + (f" on {request.host}, bridge {shown.bridge}" if request.host else "")
    )
    print_line(f"addresses {request.cidrs}, gateway {', '.join(shown.gateways)}, {shown.free} free")
    print_line(f"resolver  {', '.join(request.dns) or 'the gateway'}")
    if request.host is None:
        print_line(f"names     {_names(shown)}")
    way_out = "none" if request.isolated else "the tenant's gateway" if request.host is None else "NAT"
    print_line(f"way out   {way_out}")
    print_table(
        ["ADDRESS", "MAC", "VM", "NAME", "INTERFACE"],
        [
            (", ".join(one.port.addresses), one.port.mac_address, one.vm, one.name, _interface(one.finding))
            for one in shown.ports
        ],
        empty="no VM has an address of it",
        drops={"NAME": 1},
    )


def _names(shown: "ShownNetwork") -> str:
    """The domain, and the VMs that have no name in it."""
    if shown.domain is None:
        return "none: a name has letters, digits and '-', and no other network of the tenant differs in case alone"
    without = [one.vm for one in shown.ports if one.name is None]
    told = f"VM.{shown.domain}"
    return f"{told}; none for {', '.join(dict.fromkeys(without))}" if without else told


def _interface(found: "LastFinding | None") -> str:
    """The last finding about an interface, in words."""
    from vgpuctl.model.times import format_time_to_second

    if found is None:
        return "-"
    finding = found.finding
    said = f", seen {finding.seen}" if finding.is_broken else f": {finding.why}" if finding.why else ""
    return f"{str(finding.verdict).replace('-', ' ')}{said}, {format_time_to_second(found.at)}"


@NETWORKS.shows(_print)
def show_network(opened: "Services", tenant: str, name: str) -> "ShownNetwork":
    """Show one network: its addresses and who has them. Also what was last seen of their interfaces.

    No host is contacted. `vgpuctl controller` and `check-vm` look at the interfaces of VMs that run.
    """
    from vgpuctl.usecases.network.list_networks import show_network

    return show_network(opened, tenant, name)


@NETWORKS.deletes(whose=" of tenant {tenant}", where=options.one_host)
def delete_network() -> "Deletion[ShownNetwork]":
    """Delete a tenant's networks. Refused while VMs are in them."""
    from vgpuctl.usecases.network.networks import DELETION

    return DELETION
