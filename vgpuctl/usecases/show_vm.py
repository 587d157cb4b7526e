# SPDX-License-Identifier: Apache-2.0
"""show-vm: what the store, libvirt, QEMU and the kernel say about one VM, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.facts import Holder
from vgpuctl.errors import AgentProblem, VgpuctlError
from vgpuctl.guests.domain_facts import DomainState, GuestPciDevice
from vgpuctl.model.lease import Lease
from vgpuctl.model.vm import Vm
from vgpuctl.usecases.preemption import PreemptionTerms, preemption_terms
from vgpuctl.usecases.services import HostSession, Services


@dataclass(frozen=True)
class ShownVm:
    """Three witnesses (design, section 7). holders: per lease, the processes that hold its device, by the kernel;
    None where the host has no such device (it was rebooted, or somebody took the device away).

    guest_devices: what QEMU says is on the guest's PCI buses. host_problem: why the host could not be asked.
    preemption: terms on which it may be preempted; None if it never is.
    """

    vm: Vm
    leases: tuple[Lease, ...]
    domain_state: str | None
    xml: str | None
    holders: tuple[tuple[Holder, ...] | None, ...]
    guest_devices: tuple[GuestPciDevice, ...]
    host_problem: str | None
    preemption: PreemptionTerms | None = None


def show_vm(services: Services, vm: Vm, leases: Sequence[Lease]) -> ShownVm:
    """Ask the VM's host about it; a host that does not answer is a line, not a failure."""
    leases = tuple(leases)
    terms = preemption_terms(services, vm, leases)
    try:
        host = services.host(vm.host)
        state = host.hypervisor.state(vm.domain_name, uuid=vm.uuid)
        running = state is DomainState.RUNNING
        return ShownVm(
            vm=vm,
            leases=leases,
            domain_state=state.value if state else None,
            xml=host.hypervisor.xml(vm.domain_name) if state else None,
            holders=tuple(_holders(host, lease) for lease in leases),
            guest_devices=tuple(host.hypervisor.pci_devices(vm.domain_name)) if running else (),
            host_problem=None,
            preemption=terms,
        )
    except VgpuctlError as error:
        return ShownVm(vm, leases, None, None, (), (), error.message, terms)


def _holders(host: HostSession, lease: Lease) -> tuple[Holder, ...] | None:
    try:
        return tuple(host.agent.holders(lease.slice.mdev_uuid or lease.slice.function))
    except AgentProblem as problem:
        if problem.code != "not-found":
            raise
        return None
