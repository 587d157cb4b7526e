# SPDX-License-Identifier: Apache-2.0
"""Restoring the shares of a VM on a host that was booted: they are made again from its leases."""

from vgpuctl.guests.domain_facts import DomainState
from vgpuctl.model.vm import Vm
from vgpuctl.usecases.support.capacities import rules_of
from vgpuctl.usecases.support.observations import note_facts
from vgpuctl.usecases.support.operations import operation
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.vm.shares import plan_leases, refuse_kept, refuse_other_card, take_steps


def restore_shares(services: Services, vm: Vm) -> bool:
    """Make the shares of a VM that is off again, and read them back. Returns whether any was missing.

    Raises ConcurrentChange while a command works on the VM, StateError for a share that must not serve it now, and the
    host's errors.
    """
    host = services.host(vm.host)
    with operation(services, "restore-shares", vm):
        with services.store.reading() as session:
            leases = [one for one in session.leases(vm_uuid=vm.uuid) if one.state.is_attached()]
        if not leases or host.hypervisor.state(vm.domain_name, uuid=vm.uuid) is DomainState.RUNNING:
            return False
        facts = host.agent.facts()
        refuse_other_card(vm, leases, facts)
        steps, _undo = plan_leases(leases, facts)
        if not steps:
            return False
        refuse_kept(leases, facts, rules_of(services, vm.host))
        take_steps(host, steps)
        facts = host.agent.facts()
        with services.store.transaction() as session:
            note_facts(session, vm.host, facts)
    return True
