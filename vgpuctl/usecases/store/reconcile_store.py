# SPDX-License-Identifier: Apache-2.0
"""reconcile-store: compare a restored store, which is older than the hosts, with every host; then let it change again.

Hosts are only read. Objects that the store does not know are listed, never deleted; objects that hosts no longer have
leave the store only by name. The mark of the restore stands until every host has answered and nothing is open.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from vgpuctl.errors import NotFound, StateError, VgpuctlError
from vgpuctl.guests.facts.domain_facts import DomainFact, DomainState
from vgpuctl.model.backup import RestoreMark
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.store.store import Session
from vgpuctl.usecases.found.garbage import GarbageKind
from vgpuctl.usecases.maintenance.gc import NOWHERE, find_garbage
from vgpuctl.usecases.network.repair_networks import repair_networks
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.seats.licences import settle_seats
from vgpuctl.usecases.share.release import release_leases

_UNSETTLED = (VmState.CREATING, VmState.DELETING, VmState.BROKEN)
_STATES = {VmState.RUNNING: DomainState.RUNNING, VmState.STOPPED: DomainState.SHUT_OFF}


class DiscrepancyKind(StrEnum):
    """How store and hosts disagree. From `state` on, nothing has to be decided."""

    UNKNOWN_VM = "unknown-vm"
    MISSING_VM = "missing-vm"
    MOVED_VM = "moved-vm"
    SECOND_DOMAIN = "second-domain"
    OTHER_SHARES = "other-shares"
    UNKNOWN_OBJECT = "unknown-object"
    NETWORK = "network"
    STATE = "state"
    UNRECORDED = "unrecorded"
    QUEUED = "queued"


_ACCEPTABLE = (
    DiscrepancyKind.UNKNOWN_VM,
    DiscrepancyKind.SECOND_DOMAIN,
    DiscrepancyKind.UNKNOWN_OBJECT,
    DiscrepancyKind.NETWORK,
)


@dataclass(frozen=True)
class Discrepancy:
    """One difference. name: on a host `HOST/DOMAIN` or `HOST/VOLUME`, in the store `TENANT/VM`.

    todo: the command, or what happens by itself. is_open: whether it keeps the store from being reconciled.
    """

    kind: DiscrepancyKind
    name: str
    found: str
    todo: str
    is_open: bool


@dataclass(frozen=True)
class Reconciliation:
    """The comparison. mark: of the restore; None for a store that is reconciled. failures: hosts without an answer, and
    OVN. answered: how many hosts answered.
    """

    mark: RestoreMark | None
    discrepancies: tuple[Discrepancy, ...]
    failures: tuple[tuple[str, VgpuctlError], ...]
    forgotten: tuple[str, ...] = ()
    is_done: bool = False
    answered: int = 0

    @property
    def open(self) -> tuple[Discrepancy, ...]:
        """The differences that somebody has to decide."""
        return tuple(one for one in self.discrepancies if one.is_open)


def reconcile_store(
    services: Services, *, forget: Sequence[str] = (), accept: Collection[str] = (), done: bool = False
) -> Reconciliation:
    """Compare, and forget VMs of the store that the hosts no longer have as it says.

    forget: `TENANT/VM`. accept: names of differences that need no more decision, and hosts gone for good. done: lift
    the mark of the restore.
    Raises NotFound for a name that is not an open difference, StateError when something is open or a host did not
    answer.
    """
    domains, silent = _read_hosts(services)
    failures = tuple((name, error) for name, error in silent if name not in accept)
    found = _compare(services, domains, failures, accept)
    if forget:
        _forget(services, forget, found)
        found = _compare(services, domains, failures, accept)
    answerless = {name for name, _error in silent}
    unknown = sorted(set(accept) - answerless - {one.name for one in found.discrepancies if one.kind in _ACCEPTABLE})
    if unknown:
        raise NotFound(
            f"there is no {' or '.join(_ACCEPTABLE)} {unknown[0]}", hint="`vgpuctl reconcile-store` lists them"
        )
    if done:
        _lift(services, found, domains)
    return Reconciliation(found.mark, found.discrepancies, found.failures, tuple(forget), done, len(domains))


def begin(services: Services) -> None:
    """Mark a store that is older than the hosts without a restore: an asynchronous standby became the primary.

    Raises StateError when it is marked already.
    """
    with services.store.transaction() as session:
        if session.restore_mark() is not None:
            raise StateError("the store is marked already", hint="run `vgpuctl reconcile-store`")
        now = session.now()
        session.set_restore_mark(RestoreMark(now, now, "reconcile-store --begin"))
        session.add_event(EventKind.STORE_MARKED, "store", before={"marked": False}, after={"marked": True})


_Domains = Mapping[str, Sequence[DomainFact]]
_Failures = tuple[tuple[str, VgpuctlError], ...]


def _read_hosts(services: Services) -> tuple[_Domains, _Failures]:
    """Every domain of every host of the inventory, and the hosts that did not answer."""
    services.open_store()
    names = services.inventory.select(None)
    domains: dict[str, Sequence[DomainFact]] = {}
    failures: list[tuple[str, VgpuctlError]] = []
    for result in services.on_hosts(names, lambda name: services.host(name).hypervisor.domains()):
        if result.error is not None:
            services.forget_host(result.name)
            failures.append((result.name, result.error))
        else:
            domains[result.name] = result.value or []
    with services.store.reading() as session:
        used = {vm.host for vm in session.vms()} | {lease.host for lease in session.leases()}
    for name in sorted(used - set(names)):
        failures.append((name, NotFound(f"{name} has VMs in the store, and is not in the inventory")))
    return domains, tuple(failures)


def _compare(services: Services, domains: _Domains, failures: _Failures, accept: Collection[str]) -> Reconciliation:
    with services.store.reading() as session:
        mark, vms, leases = session.restore_mark(), session.vms(), session.leases()
        tenants = {tenant.name for tenant in session.tenants()}
        queued = [(entry.name, [f"{one.tenant}/{one.name}" for one in entry.requests]) for entry in session.queue()]
    known = {vm.uuid for vm in vms}
    found = _unknown_vms(domains, known, tenants)
    for vm in vms:
        found += compare_vm(vm, [one for one in leases if one.vm_uuid == vm.uuid], domains, failures, known)
    objects, more = _unknown_objects(services, set(services.inventory.select(None)) - set(domains))
    found += objects
    for subject, where, what, _outcome in repair_networks(services, busy=(), dry_run=True):
        todo = f"adopt its VMs; vgpuctl reconcile-store --accept {where}/{subject} lets repair bring it to the store"
        found.append(Discrepancy(DiscrepancyKind.NETWORK, f"{where}/{subject}", what, todo, True))
    for entry_name, names in queued:
        todo = "the controller starts it; `vgpuctl leave-queue` if it was served since the backup"
        found.append(
            Discrepancy(DiscrepancyKind.QUEUED, ", ".join(names), f"{entry_name} is in the queue", todo, False)
        )
    decided = tuple(
        replace(one, todo="accepted", is_open=False) if one.kind in _ACCEPTABLE and one.name in accept else one
        for one in found
    )
    return Reconciliation(mark, decided, failures + more)


def _unknown_vms(domains: _Domains, known: Collection[str], tenants: Collection[str]) -> list[Discrepancy]:
    found = []
    for host, there in sorted(domains.items()):
        for domain in there:
            if domain.metadata is None or domain.uuid in known:
                continue
            owner = domain.metadata
            adopt = f"vgpuctl adopt-host {host} --vm {domain.name}={owner.tenant}/{owner.vm_name}"
            if owner.tenant not in tenants:
                adopt = f"vgpuctl create-tenant {owner.tenant}; {adopt}"
            text = f"{domain.state}, made for {owner.tenant}, and the store has no VM of its UUID {domain.uuid}"
            found.append(Discrepancy(DiscrepancyKind.UNKNOWN_VM, f"{host}/{domain.name}", text, adopt, True))
    return found


def compare_vm(
    vm: Vm, leases: Sequence[Lease], domains: _Domains, failures: _Failures, known: Collection[str]
) -> list[Discrepancy]:
    """The differences of one VM of the store. domains: by host that answered. known: UUIDs of the store's VMs."""
    name = vm.printed_name
    forget = f"vgpuctl reconcile-store --forget {name}"
    where = {host: one for host, there in domains.items() for one in there if one.uuid == vm.uuid}
    here = where.pop(vm.host, None)
    second = _elsewhere(vm, here, where, is_silent=vm.host not in domains)
    if here is None or (second and second[0].kind is DiscrepancyKind.MOVED_VM):
        if second or vm.host not in domains:
            return second  # a host that did not answer is a failure of its own
        text = f"{vm.host} has no domain of its UUID"
        if failures:
            text += f", nor has any other host that answered ({len(failures)} did not)"
        return [Discrepancy(DiscrepancyKind.MISSING_VM, name, text, forget, True)]
    user = _user_of(leases, [one for one in domains[vm.host] if one.uuid != vm.uuid], known)
    if user is not None or not _has_its_shares(here, leases):
        todo = f"{forget}; vgpuctl adopt-host {vm.host} --vm {here.name}={name}"
        text = "its domain has other devices than its leases" if user is None else f"a device of its leases is {user}'s"
        text = f"{vm.host}: {text}"
        return [*second, Discrepancy(DiscrepancyKind.OTHER_SHARES, name, text, todo, True)]
    if vm.state in _UNSETTLED:
        text, todo = f"the store says {vm.state}, libvirt {here.state}", "--done notes what libvirt says"
    elif here.state is not _STATES[vm.state]:
        text, todo = f"the store says {vm.state}, libvirt {here.state}", "`vgpuctl repair` notes it, after --done"
    else:
        return second
    return [*second, Discrepancy(DiscrepancyKind.STATE, name, text, todo, False)]


def _elsewhere(
    vm: Vm, here: DomainFact | None, where: Mapping[str, DomainFact], *, is_silent: bool
) -> list[Discrepancy]:
    """The domains of a VM's UUID on other hosts than the store says: a start on its host would run it twice.

    here: its domain on its own host. where: the others, by host. is_silent: its own host did not answer.
    """
    if not where:
        return []
    name, running = vm.printed_name, [host for host, one in where.items() if one.state.is_active()]
    host = running[0] if running else next(iter(where))
    own = "which did not answer" if is_silent else "which has none" if here is None else f"where it is {here.state}"
    others = " and ".join(f"{one.state} on {place}" for place, one in sorted(where.items()))
    text = f"the store has it on {vm.host}, {own}, and it is {others}"
    moved = f"vgpuctl reconcile-store --forget {name}; vgpuctl adopt-host {host} --vm {where[host].name}={name}"
    if len(running) + (here is not None and here.state.is_active()) > 1:
        todo = "it runs twice: `virsh shutdown` all but the one to keep, then look again"
    elif running or (here is None and not is_silent):
        todo = moved
    else:
        todo = f"vgpuctl reconcile-store --accept {name} if {vm.host} has the newer one, and gc deletes the other; "
        return [Discrepancy(DiscrepancyKind.SECOND_DOMAIN, name, text, f"{todo}else {moved}", True)]
    return [Discrepancy(DiscrepancyKind.MOVED_VM, name, text, todo, True)]


def _has_its_shares(domain: DomainFact, leases: Sequence[Lease]) -> bool:
    """True if the domain has every leased device, and while it runs no other."""
    has = {hostdev.device for hostdev in domain.hostdevs}
    leased = {lease.share.vfio_device for lease in leases}
    companions = {address for lease in leases for address in lease.share.companions}
    return leased <= has and (not domain.state.is_active() or has <= leased | companions)


def _user_of(leases: Sequence[Lease], others: Sequence[DomainFact], known: Collection[str]) -> str | None:
    """Another domain that has a device of these leases by now: it runs, or it is of vgpuctl and new to the store."""
    leased = {lease.share.vfio_device for lease in leases}
    for other in others:
        is_new = other.metadata is not None and other.uuid not in known
        if leased & {hostdev.device for hostdev in other.hostdevs} and (other.state.is_active() or is_new):
            return other.name
    return None


def _unknown_objects(services: Services, silent: Collection[str]) -> tuple[list[Discrepancy], _Failures]:
    """The leftovers that gc would find besides domains. Those that it would never delete need no decision."""
    found = []
    search = find_garbage(services, frozenset(GarbageKind) - {GarbageKind.DOMAIN}, services.inventory.select(None))
    for one in search.found:
        kind = DiscrepancyKind.UNKNOWN_OBJECT if one.left is None else DiscrepancyKind.UNRECORDED
        place = "OVN" if one.host == NOWHERE else one.host
        name = f"{place}/{one.kind}/{one.name}"
        todo = f"vgpuctl reconcile-store --accept {name}; gc would then delete it, after it asked"
        found.append(Discrepancy(kind, name, one.why, todo if one.left is None else f"stays: {one.left}", not one.left))
    return found, tuple((host, error) for host, error in search.failures if host not in silent)


def _forget(services: Services, names: Sequence[str], comparison: Reconciliation) -> None:
    """Take VMs out of the store that the hosts do not have as it says. No host is changed."""
    kinds = (
        DiscrepancyKind.MISSING_VM,
        DiscrepancyKind.MOVED_VM,
        DiscrepancyKind.SECOND_DOMAIN,
        DiscrepancyKind.OTHER_SHARES,
    )
    open_ = {one.name: one for one in comparison.discrepancies if one.kind in kinds}
    for name in names:
        if name not in open_:
            raise NotFound(
                f"{name} is not a VM that is missing, moved, on two hosts or has other shares",
                hint="`vgpuctl reconcile-store` lists them; a VM that is there is deleted by `vgpuctl delete-vm`",
            )
        if open_[name].kind is DiscrepancyKind.MISSING_VM and comparison.failures:
            raise StateError(
                f"{name} may be on a host that did not answer",
                context=[error.line_of(host) for host, error in comparison.failures],
                hint="repair the host; `--accept HOST` says that it is gone for good",
            )
    with services.store.transaction() as session:
        _require_mark(session)
        for name in names:
            vm = session.vm(*name.split("/", 1))
            if vm is not None:
                _forget_vm(session, vm, open_[name].found)


def _forget_vm(session: Session, vm: Vm, why: str) -> None:
    release_leases(session, session.leases(vm_uuid=vm.uuid))
    for volume in session.volumes(vm_uuid=vm.uuid):
        session.forget_volume(volume)  # the volume, if it is there, stays unrecorded, and gc leaves it alone
    session.delete_vm(vm.uuid)
    session.add_vm_event(EventKind.VM_FORGOTTEN, vm, why)


def _require_mark(session: Session) -> RestoreMark:
    mark = session.restore_mark()
    if mark is None:
        raise StateError(
            "the store was not restored, or is reconciled already",
            hint="`vgpuctl repair` settles what an interrupted run left",
        )
    return mark


def _lift(services: Services, found: Reconciliation, domains: _Domains) -> None:
    """Note what libvirt says of VMs that were being created or deleted, drop the journal, and lift the mark."""
    with services.store.reading() as session:
        _require_mark(session)
    left = [error.line_of(name) for name, error in found.failures]
    left += [f"{one.name}: {one.found}: {one.todo}" for one in found.open]
    if left:
        raise StateError(
            f"{len(left)} differences and failures are open, the store is not reconciled",
            context=left,
            hint="adopt, forget or accept each of them, then give --done again",
        )
    states = {(host, domain.uuid): domain.state for host, there in domains.items() for domain in there}
    with services.store.transaction() as session:
        mark = _require_mark(session)
        for one in session.open_operations():
            if one.begun_at <= mark.restored_at:
                session.end_operation(one.id)  # nothing used the store when it was restored
        for vm in session.vms():
            if vm.notice is not None:
                _withdraw_notice(session, vm)
            state = states.get((vm.host, vm.uuid))
            if vm.state in _UNSETTLED and state is not None:
                _settle(session, vm, runs=state.is_active())
        session.lift_restore_mark()
        settle_seats(session)
        looked_at = [one.name for one in found.discrepancies]
        session.add_event(EventKind.STORE_RECONCILED, "store", after={"differences looked at": looked_at})


def _withdraw_notice(session: Session, vm: Vm) -> None:
    """Forget a preemption of before the backup: who decided it has long gone on, or has died."""
    session.set_vm_notice(vm.uuid, None)
    session.add_vm_event(EventKind.VM_PREEMPTION_WITHDRAWN, vm)


def _settle(session: Session, vm: Vm, *, runs: bool) -> None:
    """Note a VM, whose creation or deletion had not ended at the time of the backup, as it is: nothing is deleted."""
    for lease in session.leases(vm_uuid=vm.uuid):
        session.set_lease_state(lease.id, LeaseState.RUNNING if runs else LeaseState.BUILT)
    session.set_vm_state(vm.uuid, VmState.RUNNING if runs else VmState.STOPPED)
    session.add_event(
        EventKind.VM_RECONCILED, vm.printed_name, f"was {vm.state}", tenant=vm.request.tenant, host=vm.host
    )
