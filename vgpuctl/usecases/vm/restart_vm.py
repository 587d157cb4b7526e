# SPDX-License-Identifier: Apache-2.0
"""restart-vm: stop a VM and start it again with the shares it has, so that everything that waits for a start applies.

A restart within the guest keeps QEMU and its devices as they are; that is what the guest's own reboot and --reset are
for. A run that is killed leaves a VM that is on its way, and `repair` starts it.
"""

from dataclasses import replace

from vgpuctl.errors import VgpuctlError
from vgpuctl.model.lease import without_leaving
from vgpuctl.model.vm import RESTARTING, Hold, Vm, VmState
from vgpuctl.scheduler.guest_place import footprint_of_vm
from vgpuctl.scheduler.relieve import with_guests_off
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.found.find_vm import refuse_suspended, refuse_unfinished
from vgpuctl.usecases.observed.capacities import rules_of
from vgpuctl.usecases.running.operations import move_subject, operation, refuse_unsettled, refuse_while_busy
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.share.health_gate import refuse_sick
from vgpuctl.usecases.share.shares import plan_leases, refuse_unsuitable
from vgpuctl.usecases.vm.final_preemptions import refuse_while_preempted
from vgpuctl.usecases.vm.move_vm import runs_on
from vgpuctl.usecases.vm.start_vm import refuse_closed, start_vm
from vgpuctl.usecases.vm.stop_vm import Stop, stop_vm


def restart_vm(services: Services, vm: Vm, *, timeout_s: float, drain_s: float | None = None) -> Vm:
    """Restart `vm`, a stopped one too. Returns it as it is now.

    timeout_s: for its guest to shut down. drain_s: the longest wait for the work on a node of a cluster, by default its
    pool's. Raises, with nothing changed, what start-vm would raise for its host and its shares, as far as that is known
    while it runs, and while it is being preempted. When it does not start again it stays stopped with its shares.
    """
    refuse_unfinished(vm)
    refuse_suspended(vm, "restart")
    refuse_unsettled(services, vm)
    refuse_while_busy(services, vm)
    refuse_closed(services, vm)
    refuse_while_preempted(services, vm)
    guest.check_parts_now(services, vm)
    if vm.state is VmState.RUNNING:
        _refuse_without_return(services, vm)
    with operation(services, "restart-vm", replace(vm, uuid=move_subject(vm))):
        if vm.state is VmState.RUNNING:
            try:
                vm, _ = stop_vm(services, vm, Stop(Hold.KEEP, timeout_s, RESTARTING, drain_s=drain_s))
            except BaseException:
                runs_on(services, vm)
                raise
        try:
            ((started, _),) = start_vm(services, [vm])
        except VgpuctlError as error:
            _leave_stopped(services, vm, f"did not start again: {error.message}")
            raise
    return started


def _refuse_without_return(services: Services, vm: Vm) -> None:
    """Raise, before a VM is stopped, what would keep it from starting again with the shares that it keeps."""
    with services.store.reading() as session:
        leases = without_leaving(session.leases(vm_uuid=vm.uuid))
    host, rules = services.host(vm.host), rules_of(services, vm.host)
    facts, health = host.agent.facts_and_health()
    facts = with_guests_off(facts, {vm.uuid}, [footprint_of_vm(vm, leases)])
    if leases and len(leases) == sum(gpu.count for gpu in vm.request.gpus):
        refuse_unsuitable(vm, leases, facts, rules)
    refuse_sick(services, host, leases, health)
    guest.check_nodes(vm, facts)
    guest.check_display(vm, leases, facts)
    plan_leases(vm, leases, facts, rules)


def _leave_stopped(services: Services, vm: Vm, problem: str) -> None:
    """Note that a VM which could not start is stopped for good, so that `repair` does not try again."""
    with services.store.transaction() as session:
        now = session.vm(vm.request.tenant, vm.request.name)
        if now is not None and now.uuid == vm.uuid and now.is_on_its_way:
            session.set_vm_state(vm.uuid, VmState.STOPPED, problem)
