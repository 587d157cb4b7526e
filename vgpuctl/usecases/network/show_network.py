# SPDX-License-Identifier: Apache-2.0
"""show-network: one network of the store; no host is contacted."""

from vgpuctl.usecases.network.list_networks import ShownNetwork, shown_with_ports
from vgpuctl.usecases.support.services import Services


def show_network(services: Services, tenant: str, name: str) -> ShownNetwork:
    """One network. Raises NotFound with similar names."""
    with services.store.reading() as session:
        network = session.network(tenant, name)
        names = {vm.uuid: vm.request.name for vm in session.vms(tenant=tenant)}
        return shown_with_ports(
            network, session.ports(network_id=network.id), names, len(session.addresses(network.id))
        )
