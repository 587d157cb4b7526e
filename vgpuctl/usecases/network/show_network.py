# SPDX-License-Identifier: Apache-2.0
"""show-network: one network of the store; no host is contacted."""

from vgpuctl.usecases.network.list_networks import ShownNetwork, VmsOfNetworks, shown_with_ports
from vgpuctl.usecases.support.services import Services


def show_network(services: Services, tenant: str, name: str) -> ShownNetwork:
    """One network. Raises NotFound with similar names."""
    with services.store.reading() as session:
        network = session.network(tenant, name)
        vms = VmsOfNetworks.of(session, tenant)
        return shown_with_ports(network, session.ports(network_id=network.id), vms, len(session.addresses(network.id)))
