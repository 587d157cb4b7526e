# SPDX-License-Identifier: Apache-2.0
"""Making the shares of a VM that is off, from its leases: on a host that was booted, or on one that it has moved to.

A lease is the promise of a share, whether or not its device is there: a reboot of the host takes the device and leaves
the promise, which nobody else gets. Only a command that gives up the shares ends it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.sharing import SetVfParams
from vgpuctl.errors import AgentProblem
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.sharing.share_on_host import is_lost
from vgpuctl.usecases.observed.capacities import rules_of
from vgpuctl.usecases.observed.observations import note_facts
from vgpuctl.usecases.running.operations import operation
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.share.shares import (
    describe_share,
    plan_leases,
    refuse_kept,
    refuse_other_card,
    rehearse_steps,
    take_steps,
)


def lost_shares(vm: Vm, leases: Sequence[Lease], facts: HostFacts) -> tuple[Lease, ...]:
    """The leases of a VM whose devices its host does not have, although they were made."""
    return tuple(one for one in leases if one.state.is_attached() and is_lost(vm, one, facts))


@contextmanager
def noting_refusals(services: Services, lost: Sequence[Lease]) -> Iterator[None]:
    """Keep with the leases of lost shares what the agent refused to make again, and why, for whoever looks later."""
    try:
        yield
    except AgentProblem as problem:
        with services.store.transaction() as session:
            for lease in lost:
                session.set_lease_state(lease.id, lease.state, problem.message)
        raise


def say_made_again(services: Services, vm: Vm, lost: Sequence[Lease]) -> None:
    """Say which shares of a VM its host had lost, and has again."""
    for lease in lost:
        services.say(f"{vm.printed_name}: {describe_share(lease)} was lost on {vm.host}, and is made again")


def restore_shares(services: Services, vm: Vm, *, dry_run: bool = False) -> None:
    """Make the shares that a VM which is off keeps, and read them back. dry_run: only look what speaks against it.

    Raises ConcurrentChange while a command works on the VM, StateError for a share that must not serve it now, and the
    host's errors.
    """
    host = services.host(vm.host)
    with operation(services, "restore-shares", vm):
        with services.store.reading() as session:
            leases = [one for one in session.leases(vm_uuid=vm.uuid) if _is_kept(vm, one)]
        state = host.hypervisor.state(vm.domain_name, uuid=vm.uuid)
        if not leases or (state is not None and state.is_active()):
            return
        facts = host.agent.facts()
        refuse_other_card(vm, leases, facts)
        rules = rules_of(services, vm.host)
        steps, _undo = plan_leases(vm, leases, facts, rules)
        promised = [one for one in leases if one.state is LeaseState.RESERVED]
        if not steps and not promised:
            return
        refuse_kept(leases, facts, rules)
        if dry_run:
            return
        with noting_refusals(services, lost_shares(vm, leases, facts)):
            take_steps(host, steps)
        facts = host.agent.facts()
        with services.store.transaction() as session:
            for lease in leases:
                if lease.state.is_attached() and lease.problem is not None:
                    session.set_lease_state(lease.id, lease.state)
            for lease in promised:
                session.set_lease_state(lease.id, LeaseState.BUILT)
            note_facts(session, vm.host, facts)


def set_params(services: Services, vm: Vm, leases: Sequence[Lease]) -> bool:
    """Have the VFs of a running VM as its request says; whether they were otherwise."""
    host = services.host(vm.host)
    steps, _undo = plan_leases(vm, leases, host.agent.facts(), rules_of(services, vm.host))
    wrong = [step for step in steps if isinstance(step, SetVfParams)]
    if services.rehearsal is not None:
        rehearse_steps(services, host, wrong)
    else:
        take_steps(host, wrong)
    return bool(wrong)


def _is_kept(vm: Vm, lease: Lease) -> bool:
    """True if the VM keeps the share while it is off; one that is only promised was to be made on its new host."""
    return lease.state.is_attached() or (vm.state is VmState.STOPPED and lease.state is LeaseState.RESERVED)
