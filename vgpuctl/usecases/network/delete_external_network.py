# SPDX-License-Identifier: Apache-2.0
"""delete-external-network: refused while tenants hold addresses of it."""

from vgpuctl.model.event_kind import EventKind
from vgpuctl.ovn.topology import external_owner
from vgpuctl.usecases.network.create_external_network import values_of
from vgpuctl.usecases.network.network_backends import OVN_SUBJECT, locked
from vgpuctl.usecases.support.services import Services


def delete_external_network(services: Services, name: str) -> bool:
    """Delete an external network. Returns False if there is none. Raises StateError while tenants hold addresses."""
    with services.store.transaction() as session:
        there = next((one for one in session.external_networks() if one.name == name), None)
        deleted = session.delete_external_network(name)
        if there is not None:
            session.add_event(EventKind.EXTERNAL_NETWORK_DELETED, name, before=values_of(there))
    if services.has_northbound:
        with locked(services, OVN_SUBJECT):
            services.northbound.apply({external_owner(name): []})
    return deleted
