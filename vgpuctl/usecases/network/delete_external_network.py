# SPDX-License-Identifier: Apache-2.0
"""delete-external-network: refused while tenants hold addresses of it."""

from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vpc import ExternalNetwork
from vgpuctl.ovn.topology import external_owner
from vgpuctl.usecases.found.deletion import Deletion
from vgpuctl.usecases.network.create_external_network import values_of
from vgpuctl.usecases.network.network_backends import OVN_SUBJECT, locked
from vgpuctl.usecases.running.services import Services


def delete_external_network(services: Services, network: ExternalNetwork) -> None:
    """Delete an external network. Raises StateError while tenants hold addresses.

    OVN is connected before anything is deleted: UsageError where it was not named, OvnError where it does not answer.
    Where the connection is lost after that, the rows of OVN stay, and `gc` removes them.
    """
    northbound = services.require_northbound()
    with services.store.transaction() as session:
        if session.delete_external_network(network.name):
            session.add_event(EventKind.EXTERNAL_NETWORK_DELETED, network.name, before=values_of(network))
    with locked(services, OVN_SUBJECT):
        northbound.apply({external_owner(network.name): []})


DELETION = Deletion(
    find=lambda session, _tenant, name: session.external_network(name),
    names=lambda session, _tenant: [one.name for one in session.external_networks()],
    printed=lambda one: one.name,
    describe=lambda network: f"external network {network.name}: {network.cidr}",
    delete=delete_external_network,
)
