# SPDX-License-Identifier: Apache-2.0
"""create-tenant and list-tenants."""

from collections.abc import Sequence

from vgpuctl.model.vm import check_name
from vgpuctl.usecases.services import Services


def create_tenant(services: Services, name: str) -> bool:
    """Add a tenant. Returns False when it is there already. Raises UsageError for a name that cannot be used."""
    check_name(name, what="tenant")
    with services.store.transaction() as session:
        is_new = session.add_tenant(name)
        if is_new:
            session.add_event("tenant-created", name)
    return is_new


def list_tenants(services: Services) -> Sequence[tuple[str, int]]:
    """Every tenant in name order with the number of its VMs."""
    with services.store.reading() as session:
        vms = session.vms()
        return [(one.name, sum(vm.request.tenant == one.name for vm in vms)) for one in session.tenants()]
