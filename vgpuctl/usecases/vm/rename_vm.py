# SPDX-License-Identifier: Apache-2.0
"""rename-vm: another name for a VM that is off, in the store, in OVN and of its libvirt domain.

The store has the new name first. Its domain is found by its UUID whatever it is called, and the next start, or `repair`
after a killed run, gives it its name.
"""

from dataclasses import replace
from functools import partial

from vgpuctl.errors import StateError
from vgpuctl.model.vm import Firmware, Vm, VmState, check_name, host_name_of
from vgpuctl.specs.vm import check_name_length
from vgpuctl.store.store import Session
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.domain.definition import define_again
from vgpuctl.usecases.found.find_vm import find_vm, refuse_suspended, refuse_unfinished
from vgpuctl.usecases.network.ports import attachments_of, connect
from vgpuctl.usecases.running.operations import operation
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.running.undo import Undo

RENAME = "rename-vm"


def rename_vm(services: Services, vm: Vm, name: str) -> tuple[Vm, bool]:
    """Rename `vm`. Returns it as it is now, and whether anything changed. When it fails, it has its old name.

    Raises UsageError for a name that no VM can have, StateError for a VM that runs or a name that another VM has, and
    DomainRejected when the host has a domain of the new name.
    """
    check_name(name, what="the VM's new name")
    check_name_length(vm.request.tenant, name)
    if vm.request.name == name:
        return vm, False
    with operation(services, RENAME, vm):
        vm, _ = find_vm(services, vm.request.tenant, vm.request.name)
        _refuse(vm)
        with services.store.reading() as session:
            _refuse_node(session, vm)
            session.refuse_taken_name(vm.request.tenant, name)
        host = services.host(vm.host)
        new = renamed(vm, name)
        guest.refuse_other_domain(host, new)
        with Undo(services.say, subject=vm.printed_name) as undoing:
            _store(services, vm, new)
            undoing.push("name in the store", partial(_store, services, new, vm))
            undoing.push("name of the domain", partial(_name_domain, services, host, vm))
            _name_domain(services, host, new)
            undoing.keep()
        services.say(f"{vm.printed_name}: renamed to {new.printed_name}")
    return new, True


def renamed(vm: Vm, name: str) -> Vm:
    """The VM with another name. Its domain keeps its name where libvirt named the file of its UEFI variables by it."""
    request = replace(vm.request, name=name)
    keeps_domain = request.firmware is Firmware.UEFI and request.secure_boot is None
    domain = vm.domain_name if keeps_domain else host_name_of(request.tenant, name)
    return replace(vm, request=request, domain=domain)


def _refuse(vm: Vm) -> None:
    if vm.state is VmState.RUNNING:
        raise StateError(
            f"cannot rename {vm.printed_name}: it runs, and libvirt renames only a domain that is off",
            hint="stop it first",
        )
    refuse_unfinished(vm, "rename")
    refuse_suspended(vm, "rename")
    if vm.is_on_its_way:
        raise StateError(f"cannot rename {vm.printed_name}: it {vm.problem}", hint="run `vgpuctl repair`")


def _refuse_node(session: Session, vm: Vm) -> None:
    node = session.node_of_vm(vm.uuid)
    if node is not None:
        raise StateError(
            f"cannot rename {vm.printed_name}: it is a node of pool {node.pool}, and its cluster knows it by this name",
            hint=f"nodes come and go by `vgpuctl scale-node-pool {node.tenant}/{node.pool} SIZE`",
        )


def _store(services: Services, vm: Vm, new: Vm) -> None:
    with services.store.transaction() as session:
        session.rename_vm(vm, new.request.name, domain=new.domain_name)


def _name_domain(services: Services, host: HostSession, vm: Vm) -> None:
    """Give the domain, and what the networks' backends know of the VM, the name that the store has."""
    connect(services, [one.network for one in attachments_of(services, vm)])
    if not vm.is_adopted and host.hypervisor.take_name(vm.domain_name, uuid=vm.uuid):
        define_again(services, host, vm)
