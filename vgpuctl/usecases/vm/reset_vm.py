# SPDX-License-Identifier: Apache-2.0
"""restart-vm --reset: the reset button of a running VM. QEMU goes on, its devices and leases stay as they are."""

from vgpuctl.errors import StateError
from vgpuctl.guests.facts.domain_facts import DomainState
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.usecases.cluster.leave_cluster import leave_cluster
from vgpuctl.usecases.found.vm_values import values_of
from vgpuctl.usecases.running.operations import operation
from vgpuctl.usecases.running.services import Services


def reset_vm(services: Services, vm: Vm) -> None:
    """Reset `vm` without asking its guest; of a node the cluster is told. Raises StateError when it does not run."""
    with operation(services, "restart-vm", vm):
        host = services.host(vm.host)
        state = host.hypervisor.state(vm.domain_name, uuid=vm.uuid) if vm.state is VmState.RUNNING else None
        if state is not DomainState.RUNNING:
            found = f"libvirt says {state or 'no such domain'}" if vm.state is VmState.RUNNING else f"it is {vm.state}"
            raise StateError(
                f"cannot reset {vm.printed_name}: {found}, and only a running VM can be reset",
                hint="`vgpuctl start-vm` starts a stopped VM, and `vgpuctl repair` notes what the host says",
            )
        leave_cluster(services, vm, "its VM is reset", 0)
        host.hypervisor.reset(vm.domain_name, uuid=vm.uuid)
        with services.store.transaction() as session:
            values = values_of(vm, session.leases(vm_uuid=vm.uuid))
            session.add_vm_event(EventKind.VM_RESET, vm, before=values, after=values)
        services.say(f"{vm.printed_name}: reset")
