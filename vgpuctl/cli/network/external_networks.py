# SPDX-License-Identifier: Apache-2.0
"""create-, list-, show- and delete-external-network: networks outside."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from vgpuctl.cli.forms.stored_kind import StoredKind
from vgpuctl.cli.lists.listing import Column, Listing
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.output import print_line, print_table

if TYPE_CHECKING:
    from vgpuctl.model.vpc import ExternalNetwork
    from vgpuctl.usecases.found.deletion import Deletion
    from vgpuctl.usecases.network.show_external_network import ShownChassis, ShownExternalNetwork
    from vgpuctl.usecases.running.services import Services

    Row = tuple[ExternalNetwork, dict[str, str]]


class JsonExternalNetwork(TypedDict):
    """held: tenants by their address."""

    external_network: "ExternalNetwork"
    held: dict[str, str]


EXTERNAL_NETWORKS: "StoredKind[ExternalNetwork]" = StoredKind(
    "external network", "list-external-networks", "external_network"
)


def _held(row: "Row") -> int:
    """How many IPv4 addresses tenants hold."""
    return sum(":" not in address for address in row[1])


_LISTING: "Listing[Row, JsonExternalNetwork]" = Listing(
    columns=(
        Column("EXTERNAL NETWORK", lambda one: one[0].name),
        Column("CIDR", lambda one: ", ".join(filter(None, (one[0].cidr, one[0].cidr6)))),
        Column("POOL", lambda one: f"{one[0].first}-{one[0].last}", drops=2),
        Column("PHYSICAL NETWORK", lambda one: one[0].physical_network, drops=4),
        Column("VLAN", lambda one: one[0].vlan, drops=3),
        Column("HELD", lambda one: f"{_held(one)} of {len(one[0].pool())}", key=_held, drops=1),
        Column(
            "IPV6 POOL", lambda one: one[0].first6 and f"{one[0].first6}-{one[0].last6}", is_wide=True, is_rare=True
        ),
        Column("ROUTED", lambda one: ", ".join(one[0].routed6) or None, is_wide=True, is_rare=True),
    ),
    name=lambda one: one[0].name,
    json=lambda one: {"external_network": one[0], "held": one[1]},
    empty="no external network: declare one with `vgpuctl create-external-network`",
)


@EXTERNAL_NETWORKS.lists(_LISTING)
def list_external_networks(opened: "Services") -> "Sequence[Row]":
    """List the external networks and the tenants with addresses of them."""
    from vgpuctl.usecases.network.external_networks import list_external_networks

    return list_external_networks(opened)


def _print(shown: "ShownExternalNetwork") -> None:
    network = shown.external_network
    wire = network.physical_network + ("" if network.vlan is None else f", VLAN {network.vlan}")
    print_line(f"network   {network.name}: {network.cidr}, gateway {network.gateway}, on {wire}")
    print_line(f"addresses {network.first}-{network.last}, {len(shown.held)} of {len(network.pool())} held")
    if network.management:
        print_line(f"closed    {', '.join(network.management)}")
    if shown.not_looked_at is not None:
        print_line(f"carriers  not looked at: {shown.not_looked_at}")
    print_table(
        ["CHASSIS", "HOST", "STATE", "FIRST OF", "CARRIES"],
        [(one.name, one.host, _state(one), one.first_of, one.carries) for one in shown.chassis],
        empty="no chassis",
    )
    print_table(
        ["TENANT", "ADDRESS", "CARRIED BY", "CHASSIS IN THEIR ORDER"],
        [(one.tenant, one.address, one.carrier, ", ".join(one.chassis)) for one in shown.gateways],
        empty="no tenant has a gateway to it",
    )
    bgp = network.bgp
    if bgp is not None:
        print_line(f"BGP       AS {bgp.as_number}, {len(shown.announcements)} routes: {', '.join(bgp.announces)}")
        print_table(
            ["CHASSIS", "ADDRESS", "NEIGHBOUR", "STATE", "SENT"],
            [
                (one.chassis, one.address, session.neighbour, session.state, session.sent)
                for one in shown.speakers
                for session in one.sessions
            ],
            empty="no session is known",
        )
    for finding in shown.findings:
        print_line(f"finding   {finding}")


def _state(one: "ShownChassis") -> str:
    known = {True: "known to OVN", False: "not in OVN", None: "not looked at"}[one.in_ovn]
    return f"set aside, {known}" if one.is_aside else known


@EXTERNAL_NETWORKS.shows(_print, where=options.one_host)
def show_external_network(opened: "Services", name: str) -> "ShownExternalNetwork":
    """Show one external network and the chassis that carry tenants' gateways.

    OVN's southbound database is asked where VGPUCTL_OVN_SOUTHBOUND names it. Hosts are contacted only where the
    network has BGP.
    """
    from vgpuctl.usecases.network.show_external_network import show_external_network

    return show_external_network(opened, name)


@EXTERNAL_NETWORKS.deletes()
def delete_external_network() -> "Deletion[ExternalNetwork]":
    """Delete external networks. Refused while tenants hold addresses of one."""
    from vgpuctl.usecases.network.external_networks import DELETION

    return DELETION
