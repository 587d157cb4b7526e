# SPDX-License-Identifier: Apache-2.0
"""delete-network: refused while VMs are in it; then the network itself, its addresses and its row."""

from vgpuctl.errors import NetworkInUse
from vgpuctl.model.network import Network, NetworkState
from vgpuctl.usecases.network_backends import locked, remove_network
from vgpuctl.usecases.services import Services


def delete_network(services: Services, network: Network) -> None:
    """Delete a tenant's network. What was done stays done, and the same command goes on from there.

    Raises NetworkInUse while VMs have ports in it.
    """
    with services.store.transaction() as session:
        names = {vm.uuid: vm.request.name for vm in session.vms(tenant=network.request.tenant)}
        ports = session.ports(network_id=network.id)
        if ports:
            raise NetworkInUse(
                f"network {network.label} still has {len(ports)} VM{'s' if len(ports) > 1 else ''}",
                context=[f"{names.get(port.vm_uuid, port.vm_uuid)} has {port.address}" for port in ports],
                hint="delete these VMs first",
            )
        session.set_network_state(network.id, NetworkState.DELETING)
    finish_deletion(services, network)


def finish_deletion(services: Services, network: Network) -> None:
    """Take away a network whose row says `deleting`, as often as needed."""
    with locked(services, network):
        remove_network(services, network)
        with services.store.transaction() as session:
            if session.delete_network(network.id):
                session.add_event("network-deleted", network.label, network.request.cidr)
    services.say(f"{network.label}: deleted")
