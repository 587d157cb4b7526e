# SPDX-License-Identifier: Apache-2.0
"""delete-network: refused while VMs are in it; then the network itself, its addresses and its row."""

from vgpuctl.errors import NetworkInUse
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.network import Network, NetworkState
from vgpuctl.model.plural import counted
from vgpuctl.model.vpc import DirectConnect, LoadBalancer
from vgpuctl.usecases.found.deletion import Deletion
from vgpuctl.usecases.network.create_network import note_network, values_of
from vgpuctl.usecases.network.list_networks import shown_network
from vgpuctl.usecases.network.network_backends import locked, remove_network, subject_of
from vgpuctl.usecases.running.services import Services


def delete_network(services: Services, network: Network) -> None:
    """Delete a tenant's network. After an error, the same command continues.

    Raises NetworkInUse while VMs have ports in it.
    """
    tenant = network.request.tenant
    with services.store.transaction() as session:
        names = {vm.uuid: vm.request.name for vm in session.vms(tenant=tenant)}
        ports = session.ports(network_id=network.id)
        if ports:
            raise NetworkInUse(
                f"network {network.printed_name} still has {counted(len(ports), 'VM')}",
                context=[f"{names.get(port.vm_uuid, port.vm_uuid)} has {port.address}" for port in ports],
                hint="delete these VMs first",
            )
        balancers, connects = session.vpc_objects(tenant, LoadBalancer), session.vpc_objects(tenant, DirectConnect)
        users = [f"load balancer {one.name}" for one in balancers if one.network == network.request.name]
        users += ["its direct connect" for one in connects if one.network == network.request.name]
        if users:
            raise NetworkInUse(f"network {network.printed_name} is in use", context=users, hint="delete these first")
        session.set_network_state(network.id, NetworkState.DELETING)
    finish_deletion(services, network)


def finish_deletion(services: Services, network: Network) -> None:
    """Delete a network whose row says `deleting`. It may run again after an interruption."""
    with locked(services, subject_of(network)):
        remove_network(services, network)
        with services.store.transaction() as session:
            if session.delete_network(network.id):
                note_network(session, EventKind.NETWORK_DELETED, network, before=values_of(network))
    services.say_done(network.printed_name, "deleted")


DELETION = Deletion(
    find=shown_network,
    names=lambda session, tenant: [one.request.name for one in session.networks(tenant=tenant)],
    printed=lambda shown: shown.network.printed_name,
    describe=lambda shown: (
        f"{shown.network.printed_name}: {shown.network.request.cidr}, {counted(len(shown.ports), 'VM')}"
    ),
    delete=lambda services, shown: delete_network(services, shown.network),
    tells=True,
)
