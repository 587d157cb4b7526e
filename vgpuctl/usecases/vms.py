# SPDX-License-Identifier: Apache-2.0
"""Finding VMs of the store by name."""

import difflib
from collections.abc import Sequence

from vgpuctl.errors import NotFound
from vgpuctl.model.lease import Lease
from vgpuctl.model.vm import Vm
from vgpuctl.usecases.services import Services


def find_vm(services: Services, tenant: str, name: str) -> tuple[Vm, tuple[Lease, ...]]:
    """One VM and its live leases. Raises NotFound with near names."""
    with services.store.reading() as session:
        session.tenant(tenant)
        vm = session.vm(tenant, name)
        if vm is None:
            names = [other.request.name for other in session.vms(tenant=tenant)]
            near = difflib.get_close_matches(name, names, n=3)
            raise NotFound(
                f"tenant {tenant} has no VM {name!r}",
                hint=f"did you mean {', '.join(near)}?" if near else f"see `vgpuctl list-vms --tenant {tenant}`",
            )
        return vm, tuple(session.leases(vm_uuid=vm.uuid))


def list_vms(services: Services, *, tenant: str | None, host: str | None) -> Sequence[tuple[Vm, tuple[Lease, ...]]]:
    """All VMs of the store in name order, each with its live leases. No host is contacted."""
    with services.store.reading() as session:
        if tenant is not None:
            session.tenant(tenant)
        vms = session.vms(tenant=tenant, host=host)
        leases = session.leases()
    return [
        (vm, tuple(sorted((lease for lease in leases if lease.vm_uuid == vm.uuid), key=lambda lease: lease.index)))
        for vm in sorted(vms, key=lambda vm: (vm.request.tenant, vm.request.name))
    ]
