# SPDX-License-Identifier: Apache-2.0
"""repair: finish or roll back what a killed run, a lost connection or a reboot left between store, host and libvirt."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from vgpuctl.errors import StateError, VgpuctlError
from vgpuctl.guests.facts.domain_facts import DomainState
from vgpuctl.guests.libvirtd.saved_state import SavedState
from vgpuctl.guests.live.nics import LiveNics
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.plural import counted
from vgpuctl.model.vm import SUSPENDED, Vm, VmState
from vgpuctl.store.records import Operation
from vgpuctl.usecases.disk.tenant_disks import has_let_go, settle_detach, tenant_disks
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.domain.carried_state import CarriedState, look_at_state, note_lost_state
from vgpuctl.usecases.domain.definition import define_again
from vgpuctl.usecases.domain.limits import unfinished_limits
from vgpuctl.usecases.found.vm_values import values_of
from vgpuctl.usecases.image.answers import answers_of
from vgpuctl.usecases.network.detached_ports import detached_ports, unwanted_macs
from vgpuctl.usecases.network.repair_networks import repair_networks
from vgpuctl.usecases.observed.fences import is_host_fenced
from vgpuctl.usecases.running.operations import may_run, move_subject, operation
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.seats.licences import settle_seats
from vgpuctl.usecases.share.partitions import repair_partitions
from vgpuctl.usecases.share.release import release_shares
from vgpuctl.usecases.share.repair_shares import repair_shares
from vgpuctl.usecases.vm.delete_vm import remove_vm
from vgpuctl.usecases.vm.detach_nic import free_left_ports, go_on_detaching, left_in_definition
from vgpuctl.usecases.vm.final_preemptions import finish_preemptions
from vgpuctl.usecases.vm.move_vm import cut_short, finish_move
from vgpuctl.usecases.vm.pending_gpus import AT_START, AT_STOP, detach_now, is_pending, is_with_guest
from vgpuctl.usecases.vm.preemption_consent import SHUTDOWN_TIMEOUT_S
from vgpuctl.usecases.vm.preemption_notice import withdraw_dead_notices
from vgpuctl.usecases.vm.rename_vm import RENAME
from vgpuctl.usecases.vm.unfinished_gangs import give_up_gangs, given_up

DETACH_TIMEOUT_S = 5.0
ASKED_AGAIN_S = 5.0
"""How long repair waits for a guest that is asked again to let go of a GPU."""


@dataclass(frozen=True)
class Repair:
    """One disagreement. outcome: `finished`, `rolled back`, `noted`, `left alone`, `would …` or `failed: why`."""

    subject: str
    host: str
    found: str
    outcome: str


def repair(
    services: Services,
    *,
    dry_run: bool,
    only: Vm | None = None,
    shutdown_timeout_s: float = SHUTDOWN_TIMEOUT_S,
) -> tuple[Repair, ...]:
    """Check every VM of the store (or `only` one) and repair those whose last run is dead.

    VMs of live runs are left alone, which is told unless `only` one is asked for. One VM that cannot be repaired never
    hides the others: its outcome begins with `failed`.
    shutdown_timeout_s: for each VM that a dead run was about to stop.
    """
    if not dry_run:
        with services.store.reading() as session:
            session.require_reconciled()
    repairs = _finish_preemptions(services, shutdown_timeout_s, dry_run=dry_run) if only is None else []
    with services.store.reading() as session:
        operations = session.open_operations()
        lost = {vm.uuid for vm in given_up(operations, session.vms())}
    if lost and not dry_run:
        give_up_gangs(services)
    with services.store.reading() as session:
        vms = session.vms() if only is None else [vm for vm in session.vms() if vm.uuid == only.uuid]
        leases = session.leases(vm_uuid=None if only is None else only.uuid)
    vms = [replace(vm, state=VmState.DELETING) if vm.uuid in lost else vm for vm in vms]
    busy = {intent.subject: intent for intent in operations if may_run(intent)}
    idle = [vm for vm in vms if vm.uuid not in busy and move_subject(vm) not in busy]
    repairs.extend(_left_alone(vm, busy) for vm in vms if only is None and vm not in idle)
    silent = _connect(services, idle)
    for vm in idle:
        own = tuple(lease for lease in leases if lease.vm_uuid == vm.uuid)
        try:
            if vm.host in silent:
                raise silent[vm.host]
            found = _diagnose(services, vm, own)
            if found is None:
                continue
            what, outcome, fix = found
            if not dry_run:
                with operation(services, "repair", vm):
                    fix()
        except VgpuctlError as error:
            services.forget_host(vm.host)
            repairs.append(Repair(vm.printed_name, vm.host, f"VM is {vm.state}", f"failed: {error.message}"))
            continue
        repairs.append(Repair(vm.printed_name, vm.host, what, f"would be {outcome}" if dry_run else outcome))
    repairs.extend(_finish_moves(services, vms, dry_run=dry_run))
    answering = {vm.uuid for vm in idle if vm.host not in silent}
    repairs.extend(Repair(*row) for row in repair_shares(services, answering, dry_run=dry_run))
    repairs.extend(Repair(*row) for row in repair_partitions(services, only, dry_run=dry_run))
    repairs.extend(_free_disks(services, {vm.uuid for vm in vms} - busy.keys(), dry_run=dry_run))
    known = {vm.uuid for vm in vms}
    for lease in (lease for lease in leases if lease.vm_uuid not in known):
        repairs.append(_repair_orphan(services, lease, dry_run=dry_run))
    repairs += [*_fix_ledger(services, dry_run=dry_run), *_fix_licences(services, dry_run=dry_run)]
    for vm in withdraw_dead_notices(services, dry_run=dry_run) if only is None else ():
        outcome = "would be withdrawn" if dry_run else "withdrawn"
        repairs.append(Repair(vm.printed_name, vm.host, "its preemption was announced and did not happen", outcome))
    repairs.extend(Repair(*row) for row in repair_networks(services, busy=busy, dry_run=dry_run))
    if not dry_run:
        with services.store.transaction() as session:
            for intent in operations:
                if not may_run(intent) and (only is None or intent.subject == only.uuid):
                    session.end_operation(intent.id)
    return tuple(repairs)


def _left_alone(vm: Vm, busy: Mapping[str, Operation]) -> Repair:
    at_work = busy.get(move_subject(vm)) or busy[vm.uuid]
    what = f"{at_work.kind} is at work on it (process {at_work.pid} on {at_work.hostname})"
    return Repair(vm.printed_name, vm.host, what, "left alone")


def _connect(services: Services, vms: Sequence[Vm]) -> dict[str, VgpuctlError]:
    """Open the libvirt of all hosts that are not fenced, many at a time. Returns the errors by host."""
    services.open_store()
    hosts = dict.fromkeys(vm.host for vm in vms if not is_host_fenced(services, vm.host))
    results = services.on_hosts(list(hosts), lambda name: services.host(name).hypervisor.is_alive)
    return {one.name: one.error for one in results if one.error is not None}


def _finish_preemptions(services: Services, timeout_s: float, *, dry_run: bool) -> list[Repair]:
    """Stop VMs whose preemption was decided and not finished."""
    repairs = []
    for vm, error in finish_preemptions(services, timeout_s=timeout_s, dry_run=dry_run):
        cause = "" if vm.notice is None else f" by {vm.notice.cause}"
        outcome = "would be finished" if dry_run else "finished"
        if error is not None:
            outcome = f"failed: {error.message}"
        repairs.append(Repair(vm.printed_name, vm.host, f"its preemption{cause} did not end", outcome))
    return repairs


def _finish_moves(services: Services, vms: Sequence[Vm], *, dry_run: bool) -> list[Repair]:
    """Start VMs that a dead run stopped to move or resize them, and give back what it held for them."""
    repairs = []
    for vm in cut_short(services, vms):
        if vm.state is VmState.RUNNING and vm.former_hosts:
            repairs.append(_finish_live_move(services, vm, dry_run=dry_run))
            continue
        what = "shares are held for a move or a resize that ended"
        if vm.is_on_its_way:
            what = f"its move, resize or restart did not end: {vm.problem}"
        elif vm.former_hosts:
            what = f"its move did not end: it {vm.problem}"
        outcome = "started" if vm.is_on_its_way else "finished" if vm.former_hosts else "released"
        try:
            if not dry_run:
                finish_move(services, vm)
            elif vm.is_on_its_way:
                services.require_libvirt(vm.host)
        except VgpuctlError as error:
            services.forget_host(vm.host)
            outcome = f"failed: {error.message}"
        repairs.append(Repair(vm.printed_name, vm.host, what, f"would be {outcome}" if dry_run else outcome))
    return repairs


def _finish_live_move(services: Services, vm: Vm, *, dry_run: bool) -> Repair:
    """End a live move that a dead run began, by where libvirt runs the VM."""
    outcome = "would be finished"
    try:
        for name in (vm.host, *vm.former_hosts) if dry_run else ():
            services.require_libvirt(name)
        if not dry_run:
            outcome = f"finished: {finish_move(services, vm)}"
    except VgpuctlError as error:
        services.forget_host(vm.host)
        outcome = f"failed: {error.message}"
    return Repair(vm.printed_name, vm.host, f"its live move did not end: it {vm.problem}", outcome)


def _free_disks(services: Services, vm_uuids: Collection[str], *, dry_run: bool) -> list[Repair]:
    """Free the disks that were being detached from VMs, whose guests have let go of them, or are off."""
    repairs = []
    with services.store.reading() as session:
        detaching = [one for one in tenant_disks(session) if one.state == "detaching"]
    for disk in detaching:
        if disk.vm is None or disk.vm.uuid not in vm_uuids:
            continue
        outcome = "freed"
        try:
            if not has_let_go(services, disk):
                continue
            if not dry_run:
                with operation(services, "repair", disk.vm):
                    settle_detach(services, disk)
        except VgpuctlError as error:
            services.forget_host(disk.vm.host)
            outcome = f"failed: {error.message}"
        found = f"disk {disk.volume.label} was being detached"
        repairs.append(Repair(disk.vm.printed_name, disk.vm.host, found, f"would be {outcome}" if dry_run else outcome))
    return repairs


def repair_vm(services: Services, vm: Vm) -> str | None:
    """Finish or roll back what a killed run left of one VM. Returns what was found, None when nothing was wrong.

    Raises ConcurrentChange while a living run works on it, and the host's errors.
    """
    give_up_gangs(services)
    with services.store.reading() as session:
        vm = next((one for one in session.vms() if one.uuid == vm.uuid), vm)
        leases = session.leases(vm_uuid=vm.uuid)
    with operation(services, "repair", vm):
        found = _diagnose(services, vm, leases)
        if found is None:
            return None
        what, outcome, fix = found
        fix()
    return f"{what}: {outcome}"


def _fix_ledger(services: Services, *, dry_run: bool) -> list[Repair]:
    """Make the usage ledger agree with the leases. It is a matter of the store alone."""
    with services.store.reading() as session:
        found = session.ledger_faults()
    if found and not dry_run:
        with services.store.transaction() as session:
            found = session.fix_ledger()
            session.add_event(
                EventKind.LEDGER_FIXED, "usage ledger", before={"faults": list(found)}, after={"faults": []}
            )
    outcome = "would be finished" if dry_run else "finished"
    return [Repair("usage ledger", "-", fault, outcome) for fault in found]


def _fix_licences(services: Services, *, dry_run: bool) -> list[Repair]:
    """Make the seats of licence pools agree with the VMs. It is a matter of the store alone."""
    with services.store.reading() as session:
        found = settle_seats(session, dry_run=True)
    if found and not dry_run:
        with services.store.transaction() as session:
            found = settle_seats(session)
    outcome = "would be finished" if dry_run else "finished"
    return [Repair(subject, "-", what, outcome) for subject, what in found]


Finding = tuple[str, str, Callable[[], object]]


def _diagnose(services: Services, vm: Vm, leases: Sequence[Lease]) -> Finding | None:
    remove = partial(remove_vm, services, vm, leases, event=EventKind.VM_REPAIRED, text="rolled back")
    if is_host_fenced(services, vm.host):
        is_over = vm.state in (VmState.CREATING, VmState.BROKEN, VmState.DELETING)
        return (f"it is {vm.state} on a fenced host", "settled in the store", remove) if is_over else None
    if vm.state in (VmState.CREATING, VmState.BROKEN):
        if _runs_with_its_shares(services, vm, leases):
            return (
                f"created and running, but the store says {vm.state}",
                "finished",
                lambda: _finish(services, vm, leases),
            )
        return f"creation did not end (VM is {vm.state})", "rolled back", remove
    if vm.live_target is not None:
        return None  # where it is, the end of its move finds out
    if vm.state is VmState.DELETING:
        return vm.problem or "deletion did not end", "finished", remove
    state = services.host(vm.host).hypervisor.state(vm.domain_name, uuid=vm.uuid)
    is_active = state is not None and state.is_active()
    if vm.state is VmState.RUNNING and not is_active:
        return (
            f"the store says running, libvirt says {state or 'no such domain'}",
            "noted as stopped" if vm.is_to_come_back else "noted as stopped: start it with `vgpuctl start-vm`",
            partial(_note_stopped, services, vm, leases),
        )
    if vm.state is VmState.STOPPED and is_active:
        if vm.request.gpus and not leases:
            raise StateError(
                f"it runs, and gave up its GPU shares: shut it down with `virsh shutdown {vm.domain_name}` on {vm.host}"
            )
        return f"the store says stopped, libvirt says {state}", "finished", lambda: _finish(services, vm, leases)
    releasing = [lease for lease in leases if lease.state in (LeaseState.RELEASING, LeaseState.BROKEN)]
    promised = [lease for lease in leases if lease.state is LeaseState.RESERVED and vm.state is VmState.STOPPED]
    if releasing and vm.state is VmState.RUNNING:
        return _detach(services, vm, releasing)
    if releasing or (promised and len(promised) == len(leases)):
        return (
            f"not released: {counted(len(releasing), 'share')}"
            if releasing
            else f"not made: {counted(len(promised), 'share')}",
            "finished" if releasing else "released: the next start of the VM asks for them again",
            lambda: release_shares(services, services.host(vm.host), [*releasing, *promised]),
        )
    expected = LeaseState.RUNNING if vm.state is VmState.RUNNING else LeaseState.BUILT
    waiting = [lease for lease in leases if lease.state is LeaseState.RESERVED and vm.state is VmState.RUNNING]
    arrived = [lease for lease in waiting if is_with_guest(services.host(vm.host), vm, lease)]
    if arrived:
        have = partial(_note, services, vm, arrived, VmState.RUNNING, LeaseState.RUNNING)
        return f"{counted(len(arrived), 'GPU')} attached to the guest", "finished", have
    unsaid = [lease for lease in waiting if lease not in arrived and lease.problem is None]
    if unsaid:
        wait = partial(_note, services, vm, unsaid, VmState.RUNNING, LeaseState.RESERVED, lease_problem=AT_START)
        return f"{counted(len(unsaid), 'GPU')} not attached to the guest", AT_START, wait
    settled = [lease for lease in leases if lease.state is not LeaseState.RESERVED]
    if any(lease.state is not expected for lease in settled):
        return f"leases are not {expected}", "finished", lambda: _note(services, vm, settled, vm.state, expected)
    if vm.state is VmState.RUNNING and vm.is_to_come_back:
        forget = partial(_note_not_stopped, services, vm, leases)
        return f"it was not stopped yet: {vm.problem}", "finished", forget
    if found := _diagnose_name(services, vm) or _diagnose_interfaces(services, vm) or unfinished_limits(services, vm):
        return found
    hypervisor = services.host(vm.host).hypervisor
    if hypervisor.is_autostarted(vm.domain_name, uuid=vm.uuid):
        clear = partial(hypervisor.clear_autostart, vm.domain_name, uuid=vm.uuid)
        return "libvirt itself starts it with its host", "finished", clear
    if state is not None and state.is_paused():
        outcome = f"left: `vgpuctl start-vm {vm.printed_name}` lets its guest go on"
        return f"the store says running, libvirt says {state}", outcome, lambda: None
    return None


def _diagnose_name(services: Services, vm: Vm) -> Finding | None:
    """A renaming that a dead run did not finish: the store has the VM's name, its domain may have the other one."""
    with services.store.reading() as session:
        was_cut_short = any(one.kind == RENAME and one.subject == vm.uuid for one in session.open_operations())
    if not was_cut_short or vm.is_adopted or vm.state is not VmState.STOPPED:
        return None
    take = partial(services.host(vm.host).hypervisor.take_name, vm.domain_name, uuid=vm.uuid)
    return "its renaming did not end", "finished", take


def _diagnose_interfaces(services: Services, vm: Vm) -> Finding | None:
    """An interface whose detachment a dead run did not finish, or whose port the guest has released since."""
    host = services.host(vm.host)
    with services.store.reading() as session:
        was_cut_short = any(one.kind == "detach-nic" and one.subject == vm.uuid for one in session.open_operations())
    ports = detached_ports(services, vm)
    if not was_cut_short and not ports:
        return None
    live = LiveNics(host.hypervisor, vm.domain_name, uuid=vm.uuid).macs()
    unwanted = unwanted_macs(services, vm, live)
    left = sorted({*unwanted, *left_in_definition(services, vm)}) if was_cut_short else []
    if left:
        finish = partial(go_on_detaching, services, host, vm, left, timeout_s=DETACH_TIMEOUT_S)
        return f"interface {', '.join(left)} was not detached", "asked for again" if unwanted else "finished", finish
    gone = [one.port.mac_address for one in ports if one.port.mac_address not in live]
    if gone:
        free = partial(free_left_ports, services, vm, live)
        return f"its guest has released interface {', '.join(gone)}", "address freed", free
    return None


def _detach(services: Services, vm: Vm, leases: Sequence[Lease]) -> Finding | None:
    """Go on with GPUs that a running guest is to let go of. None when all of them wait for its stop."""
    host = services.host(vm.host)
    there = [one for one in leases if is_with_guest(host, vm, one)]
    waiting = [one for one in there if one.problem == AT_STOP]
    if len(waiting) == len(leases):
        return None
    due = [one for one in leases if one not in waiting]
    if any(one in there for one in due):
        ask = partial(detach_now, services, host, vm, due, ASKED_AGAIN_S)
        return f"{counted(len(due), 'GPU')} to be detached", "pending: the guest was asked again", ask
    return (
        f"{counted(len(due), 'GPU')} detached by the guest",
        "finished",
        lambda: release_shares(services, host, due),
    )


def _runs_with_its_shares(services: Services, vm: Vm, leases: Sequence[Lease]) -> bool:
    host = services.host(vm.host)
    found = host.hypervisor.domain(vm.uuid)
    if found is None or found.state is not DomainState.RUNNING:
        return False
    return all(guest.is_held(host, vm, lease) for lease in leases)


def _finish(services: Services, vm: Vm, leases: Sequence[Lease]) -> None:
    """Record a VM as running. A share that was promised and that its guest does not have stays so."""
    host = services.host(vm.host)
    leases = [one for one in leases if one.state is not LeaseState.RESERVED or is_with_guest(host, vm, one)]
    with services.store.reading() as session:
        is_installed = bool(answers_of(session, vm))
    if is_installed:
        define_again(services, host, vm)  # the run that died may have left the answers in the definition
    problem = None
    if vm.is_suspended and vm.request.gpus:
        seen = look_at_state(host, vm)
        note_lost_state(services, vm, seen.lost)
        problem = None if seen.doubt is None else f"was resumed: {seen.doubt}"
    _note(services, vm, leases, VmState.RUNNING, LeaseState.RUNNING, problem)


def _note(
    services: Services,
    vm: Vm,
    leases: Sequence[Lease],
    state: VmState,
    lease_state: LeaseState,
    problem: str | None = None,
    lease_problem: str | None = None,
) -> None:
    """Set the states of a VM and its leases. problem: kept of a VM that a move or a resize starts again."""
    with services.store.transaction() as session:
        for lease in leases:
            if not is_pending(lease, was_running=state is VmState.STOPPED):
                session.set_lease_state(lease.id, lease_state, lease_problem)
        session.set_vm_state(vm.uuid, state, problem, kept_until=vm.ends_at if problem else None)
        before, after = values_of(vm, leases), values_of(vm, leases, state)
        session.add_vm_event(EventKind.VM_REPAIRED, vm, before=before, after=after)


def _note_not_stopped(services: Services, vm: Vm, leases: Sequence[Lease]) -> None:
    """Forget that a VM was to be stopped. The log of its QEMU tells whether it must be restarted."""
    state = look_at_state(services.host(vm.host), vm) if leases else CarriedState()
    _note(services, vm, leases, VmState.RUNNING, LeaseState.RUNNING, state.doubt_of_stayed)


def _note_stopped(services: Services, vm: Vm, leases: Sequence[Lease]) -> None:
    """Note that the guest of a VM has ended; one that powered off by itself has returned its licence."""
    if services.host(vm.host).hypervisor.has_shut_down(vm.domain_name, uuid=vm.uuid):
        with services.store.transaction() as session:
            session.note_licence_returned(vm.uuid)
    problem = vm.problem if vm.is_to_come_back else None
    if SavedState(services.host(vm.host).hypervisor, vm.domain_name, vm.uuid).xml() is not None:
        problem = SUSPENDED if vm.lost_state is None else f"{SUSPENDED}; {vm.lost_state}"
    _note(services, vm, leases, VmState.STOPPED, LeaseState.BUILT, problem)


def _repair_orphan(services: Services, lease: Lease, *, dry_run: bool) -> Repair:
    subject, found = f"{lease.tenant}/{lease.vm_name}", f"lease of {lease.share.function} without a VM"
    try:
        host = services.host(lease.host)
        if dry_run:
            host.agent.health()
        else:
            release_shares(services, host, [lease])
    except VgpuctlError as error:
        return Repair(subject, lease.host, found, f"failed: {error.message}")
    return Repair(subject, lease.host, found, "would be rolled back" if dry_run else "rolled back")
