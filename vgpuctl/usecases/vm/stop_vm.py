# SPDX-License-Identifier: Apache-2.0
"""stop-vm: shut a VM down; its shares are kept for it, or go back to the pool."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from vgpuctl.errors import StateError
from vgpuctl.guests.facts.domain_facts import DomainState
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.vm import RESTARTING, Hold, Vm, VmState
from vgpuctl.store.store import Session
from vgpuctl.usecases.cluster.leave_cluster import RESTARTED, STOPPED, leave_cluster
from vgpuctl.usecases.found.find_vm import refuse_unfinished
from vgpuctl.usecases.found.vm_values import values_of
from vgpuctl.usecases.image.answers import drop_answers
from vgpuctl.usecases.network.detached_ports import detached_ports
from vgpuctl.usecases.observed.observations import note_state
from vgpuctl.usecases.running.operations import operation
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.share.partitions import end_partitions
from vgpuctl.usecases.share.quarantine import quarantine_killed
from vgpuctl.usecases.share.release import as_off, release_shares
from vgpuctl.usecases.share.shares import describe_share
from vgpuctl.usecases.vm.detach_nic import free_left_ports
from vgpuctl.usecases.vm.pending_gpus import is_pending


@dataclass(frozen=True)
class Stop:
    """How a VM is stopped, and why.

    hold: `release` also undefines the domain's claim on the devices; the next start places it again on its host.
    timeout_s: for its guest to shut down; None to force it off without asking. problem: why it is stopped, when its
    owner did not ask for it. keep_s: how long kept shares are kept, None for ever; for a VM that is stopped already,
    from now on. drain_s: the longest wait for the work on a node of a cluster (leave_cluster), by default its pool's.
    """

    hold: Hold
    timeout_s: float | None
    problem: str | None = None
    keep_s: float | None = None
    drain_s: float | None = None

    @property
    def releases(self) -> bool:
        """True if its shares go back to the pool."""
        return self.hold is Hold.RELEASE


def stop_vm(
    services: Services, vm: Vm, how: Stop, *, first: Callable[[Session], None] | None = None
) -> tuple[Vm, bool]:
    """Stop `vm`. Returns it as it is now, and whether anything changed.

    first: what must be known of it in the store before anything is done to it. The declared end of a VM that is on its
    way to another host stays.
    """
    refuse_unfinished(vm)
    if vm.is_suspended:
        how = replace(how, problem=vm.problem)  # its saved state stays
    if (how.releases or how.keep_s is not None) and vm.is_adopted:
        raise StateError(
            f"{vm.request.name} cannot release its shares: its domain {vm.domain_name} is adopted and names them",
            hint="stop it with its shares kept, or delete it",
        )
    with operation(services, "stop-vm", vm):
        changed, has_shut_down = vm.state is VmState.RUNNING, False
        is_moving = replace(vm, problem=how.problem).is_to_come_back
        with services.store.transaction() as session:
            leases = session.leases(vm_uuid=vm.uuid)
            if first is not None:
                first(session)
            if changed and is_moving:
                # A run that dies right after the guest's end leaves a VM that is known to come back.
                session.set_vm_state(vm.uuid, VmState.RUNNING, how.problem)
        kept_until = vm.ends_at if is_moving else None if how.keep_s is None else services.store.now() + how.keep_s
        if changed:
            has_shut_down = _leave_and_end(services, vm, leases, how, RESTARTED if is_moving else STOPPED)
        problem = vm.problem
        if changed or how.problem is not None or kept_until is not None or vm.is_on_its_way:
            problem = how.problem
            changed = changed or how.keep_s is not None
            _record_stopped(services, vm, leases, how, kept_until, has_shut_down=has_shut_down)
            if vm.state is VmState.RUNNING and not how.releases:
                end_partitions(services, services.host(vm.host), leases)
        if detached_ports(services, vm):
            free_left_ports(services, vm)
        leaving = [one for one in leases if how.releases or one.state is LeaseState.RELEASING]
        if leaving:
            release_shares(services, services.host(vm.host), leaving)
            changed = True
        if changed:
            with services.store.transaction() as session:
                left = [one for one in leases if one not in leaving]
                after = values_of(vm, left, VmState.STOPPED)
                detail = how.problem or ("forced off" if how.timeout_s is None else "")
                session.add_vm_event(EventKind.VM_STOPPED, vm, detail, before=values_of(vm, leases), after=after)
            ended = "suspended" if vm.is_suspended else "stopped"
            services.say(f"{vm.printed_name}: {ended}, shares {'released' if how.releases else 'kept'}")
        ends_at = kept_until if changed else vm.ends_at
        return replace(vm, state=VmState.STOPPED, problem=problem, ends_at=ends_at), changed


def _leave_and_end(services: Services, vm: Vm, leases: Sequence[Lease], how: Stop, why: str) -> bool:
    """Take a running VM out of its cluster and end its guest. Returns True if it has shut down by itself."""
    leave_cluster(services, vm, why, 0 if how.timeout_s is None else how.drain_s, detail=how.problem or "")
    host = services.host(vm.host)
    then = ", then starting it again with its shares" if how.problem == RESTARTING else ""
    if how.releases and leases:
        then = f", then releasing {', '.join(map(describe_share, leases))}"
    has_shut_down = _end_guest(services, host, vm, leases, then, timeout_s=how.timeout_s)
    quarantine_killed(services, host, leases)
    return has_shut_down


def _record_stopped(
    services: Services, vm: Vm, leases: Sequence[Lease], how: Stop, kept_until: float | None, *, has_shut_down: bool
) -> None:
    was_running = vm.state is VmState.RUNNING
    kept = LeaseState.RELEASING if how.releases else LeaseState.BUILT
    with services.store.transaction() as session:
        session.set_vm_state(vm.uuid, VmState.STOPPED, how.problem, kept_until=kept_until, has_shut_down=has_shut_down)
        if was_running:
            note_state(session, vm, DomainState.SHUT_OFF)
        for lease in leases:
            if how.releases or not is_pending(lease, was_running=was_running):
                session.set_lease_state(lease.id, kept)
    if not services.goes_on:
        drop_answers(services, vm)


def _end_guest(
    services: Services, host: HostSession, vm: Vm, leases: Sequence[Lease], then: str, *, timeout_s: float | None
) -> bool:
    """End a guest, by force without timeout_s. Returns True if it has shut down by itself.

    then: what follows, for people: a dry run ends here.
    """
    if services.goes_on:
        as_off(services, vm, leases)
        return False
    if timeout_s is None:
        services.say(f"{vm.printed_name}: forcing off{then}")
        host.hypervisor.destroy(vm.domain_name, uuid=vm.uuid)
        return False
    services.say(f"{vm.printed_name}: shutting down{then}")
    host.hypervisor.shutdown(vm.domain_name, timeout_s=timeout_s, uuid=vm.uuid)
    return host.hypervisor.has_shut_down(vm.domain_name, uuid=vm.uuid)
