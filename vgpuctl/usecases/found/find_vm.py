# SPDX-License-Identifier: Apache-2.0
"""Finding one VM of the store by its name."""

import difflib

from vgpuctl.errors import NotFound
from vgpuctl.model.lease import Lease
from vgpuctl.model.times import format_time
from vgpuctl.model.vm import Vm
from vgpuctl.usecases.running.services import Services


def find_vm(services: Services, tenant: str, name: str) -> tuple[Vm, tuple[Lease, ...]]:
    """One VM and its live leases. Raises NotFound with near names."""
    with services.store.reading() as session:
        session.tenant(tenant)
        vm = session.vm(tenant, name)
        if vm is None:
            names = [other.request.name for other in session.vms(tenant=tenant)]
            kept = session.kept_vm(tenant, name)
            if kept is not None:
                raise NotFound(
                    f"VM {tenant}/{name} was deleted; its disks are kept on {kept.host} until"
                    f" {format_time(kept.until)} UTC",
                    hint=f"`vgpuctl restore-vm {tenant}/{name}` makes it again, `delete-disk` deletes its disks",
                )
            near = difflib.get_close_matches(name, names, n=3)
            raise NotFound(
                f"tenant {tenant} has no VM {name!r}",
                hint=f"did you mean {', '.join(near)}?" if near else f"see `vgpuctl list-vms --tenant {tenant}`",
            )
        return vm, tuple(session.leases(vm_uuid=vm.uuid))
