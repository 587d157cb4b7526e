# SPDX-License-Identifier: Apache-2.0
"""create-, list- and delete-external-network: networks outside."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from vgpuctl.cli.forms.stored_kind import StoredKind
from vgpuctl.cli.lists.listing import Column, Listing

if TYPE_CHECKING:
    from vgpuctl.model.vpc import ExternalNetwork
    from vgpuctl.usecases.found.deletion import Deletion
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


@EXTERNAL_NETWORKS.deletes()
def delete_external_network() -> "Deletion[ExternalNetwork]":
    """Delete external networks. Refused while tenants hold addresses of one."""
    from vgpuctl.usecases.network.external_networks import DELETION

    return DELETION
