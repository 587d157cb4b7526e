# SPDX-License-Identifier: Apache-2.0
"""Making the shares of a VM that is off, from its leases: on a host that was booted, or on one that it has moved to."""

from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.usecases.share.shares import plan_leases, refuse_kept, refuse_other_card, take_steps
from vgpuctl.usecases.support.capacities import rules_of
from vgpuctl.usecases.support.observations import note_facts
from vgpuctl.usecases.support.operations import operation
from vgpuctl.usecases.support.services import Services


def restore_shares(services: Services, vm: Vm) -> bool:
    """Make the shares that a VM which is off keeps, and read them back. Returns whether any was missing.

    Raises ConcurrentChange while a command works on the VM, StateError for a share that must not serve it now, and the
    host's errors.
    """
    host = services.host(vm.host)
    with operation(services, "restore-shares", vm):
        with services.store.reading() as session:
            leases = [one for one in session.leases(vm_uuid=vm.uuid) if _is_kept(vm, one)]
        state = host.hypervisor.state(vm.domain_name, uuid=vm.uuid)
        if not leases or (state is not None and state.is_active()):
            return False
        facts = host.agent.facts()
        refuse_other_card(vm, leases, facts)
        rules = rules_of(services, vm.host)
        steps, _undo = plan_leases(vm, leases, facts, rules)
        promised = [one for one in leases if one.state is LeaseState.RESERVED]
        if not steps and not promised:
            return False
        refuse_kept(leases, facts, rules)
        take_steps(host, steps)
        facts = host.agent.facts()
        with services.store.transaction() as session:
            for lease in promised:
                session.set_lease_state(lease.id, LeaseState.BUILT)
            note_facts(session, vm.host, facts)
    return True


def _is_kept(vm: Vm, lease: Lease) -> bool:
    """True if the VM keeps the share while it is off; one that is only promised was to be made on its new host."""
    return lease.state.is_attached() or (vm.state is VmState.STOPPED and lease.state is LeaseState.RESERVED)
