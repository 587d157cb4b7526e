# SPDX-License-Identifier: Apache-2.0
"""Starting VMs that were preempted: one VM, or a gang as a whole."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from vgpuctl.errors import NoCapacity
from vgpuctl.model.queue import QueueEntry
from vgpuctl.model.vm import Hold, Vm, VmState
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.gang import place_together
from vgpuctl.usecases.placement.preemption import as_one
from vgpuctl.usecases.placement.reservations import with_promises
from vgpuctl.usecases.support.capacities import cached_capacities
from vgpuctl.usecases.support.operations import refuse_while_busy
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.support.undo import Undo
from vgpuctl.usecases.vm.start_vm import start_vm
from vgpuctl.usecases.vm.stop_vm import stop_vm


def start_again(services: Services, entry: QueueEntry, *, shutdown_timeout_s: float) -> bool:
    """Start the VMs of a queue entry that were preempted; those that run by now need nothing.

    Returns False when none of them exists any more. Of several, all start or none: if one cannot, those that this run
    started are stopped again, within shutdown_timeout_s each.
    Raises ConcurrentChange while one is just being stopped, and what start_vm raises.
    """
    with services.store.reading() as session:
        there = [session.vm(one.tenant, one.name) for one in entry.requests]
    vms = [vm for vm in there if vm is not None]
    for vm in vms:
        refuse_while_busy(services, vm)
    stopped = [vm for vm in vms if vm.state is VmState.STOPPED]
    if len(stopped) > 1:
        _refuse_without_room(services, stopped)
    with Undo(services.say) as undoing:
        for vm in stopped:
            running, _ = start_vm(services, vm)
            undoing.push(
                f"start of {vm.domain_name}", partial(_stop_again, services, running, entry, shutdown_timeout_s)
            )
        undoing.keep()
    return bool(vms)


def _refuse_without_room(services: Services, vms: Sequence[Vm]) -> None:
    """Raise NoCapacity when they do not fit together as far as the store knows. No host is contacted."""
    requests = [replace(vm.request, host=vm.host) for vm in vms]
    with services.store.reading() as session:
        hosts = {vm.host for vm in vms}
        capacities = [one for one in cached_capacities(session, services.inventory) if one.name in hosts]
        leases = with_promises(session, session.leases(), as_one(requests))
    # A host in maintenance takes no new VM, and these are not new.
    open_again = [replace(one, constraints=replace(one.constraints, maintenance=None)) for one in capacities]
    if place_together(Fleet(open_again, leases), requests) is None:
        raise NoCapacity(
            f"the {len(vms)} VMs of the gang do not fit together on their hosts now",
            hint="stop or delete other VMs there, or wait",
        )


def _stop_again(services: Services, vm: Vm, entry: QueueEntry, timeout_s: float) -> None:
    stop_vm(services, vm, hold=Hold.RELEASE, timeout_s=timeout_s, problem=entry.reason or "its gang did not start")
