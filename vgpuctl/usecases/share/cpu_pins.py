# SPDX-License-Identifier: Apache-2.0
"""VMs without CPUs of their own keep off the CPUs that others are pinned to, also while they run."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import VgpuctlError
from vgpuctl.guests.domain.numa import CpusByCell, vcpus_on
from vgpuctl.model.lease import Lease
from vgpuctl.model.numa import FLAT
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.scheduler.guest_place import floating_cpus, give_numa
from vgpuctl.scheduler.host_cells import is_pool
from vgpuctl.usecases.observed.capacities import capacity_of, read_promises
from vgpuctl.usecases.running.services import HostSession, Services


def floating_on(services: Services, host: str, facts: HostFacts, *, without: Collection[str] = ()) -> CpusByCell:
    """By NUMA node, the CPUs of a host that no vCPU is pinned to. without: UUIDs of VMs that do not count."""
    if is_pool(facts):
        return {}
    with services.store.reading() as session:
        promises = read_promises(session, host=host, without=without)
    return floating_cpus(capacity_of(host, facts, 0, promises, services.inventory))


def keep_off_pinned_cpus(
    services: Services, host: HostSession, facts: HostFacts, *, without: Collection[str] = ()
) -> None:
    """Have libvirt keep the running VMs whose vCPUs float on the CPUs that nobody is pinned to.

    Raises GuestError when libvirt refuses.
    """
    with services.store.reading() as session:
        vms = [vm for vm in session.vms(host=host.name) if _floats(vm) and vm.uuid not in without]
    floating = floating_on(services, host.name, facts, without=without) if vms else {}
    for vm in vms:
        if vm.numa is not None:
            host.hypervisor.set_cpus(vm.domain_name, vcpus_on(vm.numa, floating), uuid=vm.uuid)


def give_cpus_back(services: Services, host: HostSession, facts: HostFacts, gone: Collection[str]) -> None:
    """The same after VMs gave up their CPUs; the others run on fewer CPUs where that fails, so it is only told."""
    try:
        keep_off_pinned_cpus(services, host, facts, without=gone)
    except VgpuctlError as error:
        services.say(f"{host.name}: VMs without CPUs of their own stay off those that are free now: {error.message}")


def _floats(vm: Vm) -> bool:
    return vm.state is VmState.RUNNING and not vm.is_adopted and vm.numa is not None and not vm.numa.is_pinned


def record_numa(services: Services, vm: Vm, leases: Sequence[Lease], facts: HostFacts) -> Vm:
    """Give a VM that kept its shares its part of the NUMA nodes, where an older vgpuctl recorded none.

    Its guest stays without NUMA nodes and its vCPUs float. Where the host was oversold before, it stays unrecorded.
    """
    with services.store.reading() as session:
        promises = read_promises(session, without=[vm.uuid])
        generation = session.generation(vm.host)
    capacity = capacity_of(vm.host, facts, generation, promises, services.inventory)
    numa, _ = give_numa(vm.request, capacity, [lease.share.numa_node for lease in leases], FLAT)
    if numa is None or vm.is_adopted:
        return vm
    with services.store.transaction() as session:
        session.bump_generation(vm.host, generation)
        session.set_vm_numa(vm.uuid, numa)
    return replace(vm, numa=numa)
