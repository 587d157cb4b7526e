# SPDX-License-Identifier: Apache-2.0
"""create-network, create-external-network: their options come from the tables of vgpuctl/specs/network.py."""

from typing import TYPE_CHECKING, Any

from vgpuctl.cli.network.external_networks import EXTERNAL_NETWORKS
from vgpuctl.cli.network.networks import NETWORKS
from vgpuctl.cli.options import options
from vgpuctl.cli.options.field_options import field_options
from vgpuctl.specs.network import EXTERNAL_NETWORK, NETWORK, read_external_network_flags, read_network_flags

if TYPE_CHECKING:
    from vgpuctl.model.network import Network
    from vgpuctl.model.vpc import ExternalNetwork
    from vgpuctl.usecases.running.services import Services


@NETWORKS.changes(
    lambda network: f"{network.request.cidrs} by {network.request.backend}", where=options.one_host, is_new=True
)
@field_options(NETWORK, are_required=True)
@options.limit
def create_network(opened: "Services", name: str, tenant: str, **given: Any) -> "tuple[Network, bool]":
    """Create a network for a tenant's VMs.

    VMs join it with `create-vm --network NAME` and get fixed addresses, IPv4 (--cidr), IPv6 (--cidr6), or both.

    Run the command again to finish an interrupted run; otherwise it changes nothing.
    """
    from vgpuctl.model.network import Backend
    from vgpuctl.usecases.network.networks import create_network

    default = Backend.OVN if opened.has_northbound else Backend.LIBVIRT
    return create_network(opened, read_network_flags(name, tenant, given, default_backend=default))


@EXTERNAL_NETWORKS.changes(
    lambda network: ", ".join(
        filter(None, (network.cidr, f"{network.first}-{network.last}", network.cidr6, *network.routed6))
    ),
    where=options.one_host,
    is_new=True,
)
@field_options(EXTERNAL_NETWORK, are_required=True)
def create_external_network(opened: "Services", name: str, **given: Any) -> "tuple[ExternalNetwork, bool]":
    """Declare an external network for the tenants' gateways, or change it.

    Gateways of tenants lead to it (`create-gateway`). IPv6 needs --cidr6, --gateway6 and --pool6 together. With
    --bgp-as, --bgp-neighbour and --bgp-speaker, FRR on these chassis announces what tenants have of it.
    """
    from vgpuctl.usecases.network.external_networks import checked, create_external_network

    network = checked(read_external_network_flags(name, given))
    return network, create_external_network(opened, network) != "unchanged"
