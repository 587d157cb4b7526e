# SPDX-License-Identifier: Apache-2.0
"""create-, list- and delete-external-network: networks outside."""

from typing import TYPE_CHECKING, TypedDict

import click

from vgpuctl.cli.forms.deletion import deletion_command
from vgpuctl.cli.lists.listing import Column, Listing, ListOutput
from vgpuctl.cli.options import options

if TYPE_CHECKING:
    from vgpuctl.model.vpc import ExternalNetwork
    from vgpuctl.usecases.found.deletion import Deletion

    Row = tuple[ExternalNetwork, dict[str, str]]


class JsonExternalNetwork(TypedDict):
    """held: tenants by their address."""

    external_network: "ExternalNetwork"
    held: dict[str, str]


_LISTING: "Listing[Row, JsonExternalNetwork]" = Listing(
    columns=(
        Column("EXTERNAL NETWORK", lambda one: one[0].name),
        Column("CIDR", lambda one: one[0].cidr),
        Column("POOL", lambda one: f"{one[0].first}-{one[0].last}", drops=2),
        Column("PHYSICAL NETWORK", lambda one: one[0].physical_network, drops=4),
        Column("VLAN", lambda one: one[0].vlan, drops=3),
        Column("HELD", lambda one: f"{len(one[1])} of {len(one[0].pool())}", key=lambda one: len(one[1]), drops=1),
    ),
    name=lambda one: one[0].name,
    json=lambda one: {"external_network": one[0], "held": one[1]},
    empty="no external network: declare one with `vgpuctl create-external-network`",
)


@click.command("list-external-networks")
@options.database
@_LISTING.options
def list_external_networks(database: str | None, output: ListOutput) -> None:
    """List the external networks and the tenants with addresses of them."""
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.network.list_external_networks import list_external_networks

    with services(database=database) as opened:
        _LISTING.show(output, lambda: list_external_networks(opened))


def _deletion() -> "Deletion[ExternalNetwork]":
    from vgpuctl.usecases.network.delete_external_network import DELETION

    return DELETION


delete_external_network = deletion_command(
    "delete-external-network",
    "Delete external networks. Refused while tenants hold addresses of one.",
    _deletion,
    word="external network",
    listed_by="list-external-networks",
)
