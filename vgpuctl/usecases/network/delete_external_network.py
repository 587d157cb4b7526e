# SPDX-License-Identifier: Apache-2.0
"""delete-external-network: refused while tenants hold addresses of it."""

from vgpuctl.ovn.topology import external_owner
from vgpuctl.usecases.network.network_backends import OVN_SUBJECT, locked
from vgpuctl.usecases.support.services import Services


def delete_external_network(services: Services, name: str) -> bool:
    """Delete an external network. Returns False if there is none. Raises StateError while tenants hold addresses."""
    with services.store.transaction() as session:
        deleted = session.delete_external_network(name)
        if deleted:
            session.add_event("external-network-deleted", name)
    if services.has_northbound:
        with locked(services, OVN_SUBJECT):
            services.northbound.apply({external_owner(name): []})
    return deleted
