# SPDX-License-Identifier: Apache-2.0
"""gc: find what vgpuctl made on hosts and in OVN that the store does not know, and delete it.

repair begins with what the store knows; gc begins with what is there.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.guest_state import GuestState, StateAction, StateOrder
from vgpuctl.agent.wire.network_function import SetNetworkFunction
from vgpuctl.errors import StateError, VgpuctlError
from vgpuctl.guests.facts.domain_facts import DomainFact
from vgpuctl.guests.libvirtd.networks import LibvirtNetworks
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.guest_state import NVRAM_ENDING
from vgpuctl.model.lease import Share
from vgpuctl.model.network import Backend
from vgpuctl.model.printable import printable
from vgpuctl.model.vm import Vm
from vgpuctl.ovn.topology import external_owner, tenant_owner
from vgpuctl.planner.adoption import idle_vgpus, shares_of_devices
from vgpuctl.sharing.occupancy import ExistingVgpu
from vgpuctl.sharing.type_names import describe_type
from vgpuctl.store.operations import COLLECTING
from vgpuctl.store.store import Session
from vgpuctl.usecases.declared.layout_records import shares_made
from vgpuctl.usecases.domain.guest_state import drop_state, stray_state
from vgpuctl.usecases.found.garbage import Garbage, GarbageKind
from vgpuctl.usecases.image.gc_volumes import read_volumes, stray_volumes
from vgpuctl.usecases.image.volumes import remove_recorded
from vgpuctl.usecases.network.network_backends import OVN_SUBJECT, locked
from vgpuctl.usecases.observed.fences import is_fenced
from vgpuctl.usecases.observed.function_records import recorded_functions
from vgpuctl.usecases.observed.observations import read_facts
from vgpuctl.usecases.observed.strays import look_for_strays, way_out
from vgpuctl.usecases.running.operations import ending, part_of_move, subjects_at_work
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.share.held_shares import kept_for_vms
from vgpuctl.usecases.share.release import release_cards_of, release_strays

# An idle vGPU and a network function do not say whose they are, so they are looked for only where it is asked for.
USUAL_KINDS = frozenset(GarbageKind) - {GarbageKind.VGPU, GarbageKind.FUNCTION}
NOWHERE = "-"


@dataclass(frozen=True)
class Search:
    """The leftovers by host and in the order of their kinds, and the errors of hosts without an answer."""

    found: tuple[Garbage, ...]
    failures: tuple[tuple[str, VgpuctlError], ...]


@dataclass(frozen=True)
class GarbageOutcome:
    """How it went. outcome: `deleted`, `gone, or in use by now`, `left alone: why` or `failed: why`."""

    garbage: Garbage
    outcome: str


_Take = Callable[[], object]
_Found = tuple[Garbage, _Take]


def find_garbage(services: Services, kinds: Collection[GarbageKind], names: Sequence[str] | None = None) -> Search:
    """Look at every chosen host, and at OVN where its northbound database is named. Nothing is written.

    names: the hosts to look at, None for those of the command.
    Raises UsageError when OVN alone is to be looked at and its northbound database was not named.
    """
    if set(kinds) == {GarbageKind.OVN}:
        services.require_northbound()
    services.open_store()
    failures: list[tuple[str, VgpuctlError]] = []
    found: list[Garbage] = []
    if set(kinds) - {GarbageKind.OVN}:
        results = services.on_hosts(
            services.hosts() if names is None else names, lambda name: _look(services, name, kinds)
        )
        for result in results:
            if result.error is not None:
                services.forget_host(result.name)
                failures.append((result.name, result.error))
            found += [garbage for garbage, _take in result.value or ()]
    if GarbageKind.OVN in kinds and services.has_northbound:
        try:
            found += _owners_of_nothing(services)
        except VgpuctlError as error:
            failures.append(("OVN", error))
    return Search(tuple(found), tuple(failures))


def take_away(
    services: Services, found: Sequence[Garbage], kinds: Collection[GarbageKind]
) -> tuple[GarbageOutcome, ...]:
    """Delete what find_garbage found, host by host, where a second look finds it again; never more than that.

    kinds: those that were looked for. No VM is placed on a host at work, and no layout applied. The first failure on a
    host ends the work there; other hosts go on. After a kill, the same command goes on. Raises StoreNotReconciled: an
    object that a restored store does not know may be newer than its backup.
    """
    with services.store.reading() as session:
        session.require_reconciled()
    done: list[GarbageOutcome] = []
    for host in dict.fromkeys(garbage.host for garbage in found):
        here = [garbage for garbage in found if garbage.host == host]
        done += [GarbageOutcome(garbage, f"left alone: {garbage.left}") for garbage in here if garbage.left is not None]
        wanted = [garbage for garbage in here if garbage.left is None]
        if not wanted:
            continue
        outcomes: dict[Garbage, str] = {}
        try:
            if host == NOWHERE:
                _take_from_ovn(services, wanted, outcomes)
            else:
                _take_from_host(services, host, wanted, kinds, outcomes)
        except VgpuctlError as error:
            services.forget_host(host)
            outcomes |= {garbage: f"failed: {error.message}" for garbage in wanted if garbage not in outcomes}
        done += [GarbageOutcome(garbage, outcomes[garbage]) for garbage in wanted]
    return tuple(done)


def _take_from_host(
    services: Services,
    host: str,
    wanted: Sequence[Garbage],
    kinds: Collection[GarbageKind],
    outcomes: dict[Garbage, str],
) -> None:
    with _alone_on(services, host):
        again = dict(_look(services, host, kinds))
        outcomes |= {garbage: "gone, or in use by now" for garbage in wanted if garbage not in again}
        for garbage in (garbage for garbage in again if garbage in wanted):
            again[garbage]()
            outcomes[garbage] = "deleted"
            _note(services, garbage)


def _take_from_ovn(services: Services, wanted: Sequence[Garbage], outcomes: dict[Garbage, str]) -> None:
    with locked(services, OVN_SUBJECT):
        again = [garbage for garbage in _owners_of_nothing(services) if garbage in wanted]
        services.northbound.apply({garbage.name: [] for garbage in again})
    for garbage in wanted:
        outcomes[garbage] = "deleted" if garbage in again else "gone, or in use by now"
    for garbage in again:
        _note(services, garbage)


def _note(services: Services, garbage: Garbage) -> None:
    with services.store.transaction() as session:
        host = None if garbage.host == NOWHERE else garbage.host
        before = {"kind": str(garbage.kind), "found because": garbage.why}
        session.add_event(EventKind.GARBAGE_DELETED, garbage.name, host=host, before=before, after={"kind": None})
    services.say(f"{garbage.host}: {garbage.kind} {garbage.name} deleted")


@contextlib.contextmanager
def _alone_on(services: Services, host: str) -> Iterator[None]:
    """Keep others from making anything on the host: what was placed before is in the store, the next one is refused."""
    with services.store.transaction() as session:
        operation_id = session.begin_operation(COLLECTING, f"host/{host}", host, exclusive=True)
        session.bump_generation(host, session.generation(host))
    with ending(services, operation_id):
        yield


def _look(services: Services, name: str, kinds: Collection[GarbageKind]) -> list[_Found]:
    """The leftovers of one host, each with its deletion.

    The host is read before the store: what a run makes in between is in the store by then, for its row comes first.
    """
    host = services.host(name)
    networks = LibvirtNetworks(host.hypervisor)
    domains = host.hypervisor.domains()
    look_for_strays(services, name, domains)
    volumes, shared = read_volumes(host) if GarbageKind.VOLUME in kinds else ({}, frozenset())
    made = networks.made() if GarbageKind.NETWORK in kinds else []
    has_state = GarbageKind.STATE in kinds
    state = host.agent.guest_state(StateOrder(StateAction.LIST)) if has_state else GuestState()
    functions = host.agent.functions().functions if GarbageKind.FUNCTION in kinds else ()
    facts = read_facts(services, name) if GarbageKind.VGPU in kinds else None
    shares = shares_made(services, name, facts) if facts is not None else frozenset()
    with services.store.reading() as session:
        at_work = subjects_at_work(session)
        moves = {vm.uuid: told for vm in session.vms() if (told := part_of_move(vm, name, at_work)) is not None}
        strays = _stray_domains(session, name, domains, moves)
        going = {domain.uuid for domain, garbage in strays if garbage.left is None and GarbageKind.DOMAIN in kinds}
        staying = [domain for domain in domains if domain.uuid not in going]
        found: list[_Found] = []
        if GarbageKind.DOMAIN in kinds:
            found += [(garbage, partial(_undefine, services, host, domain)) for domain, garbage in strays]
        if GarbageKind.VOLUME in kinds:
            for volume, garbage in stray_volumes(session, name, volumes, shared, staying, moves):
                take = _nothing if volume is None else partial(remove_recorded, services, host, volume)
                found.append((garbage, take))
        known = {network.id for network in session.networks() if network.request.backend is Backend.LIBVIRT}
        for network in (network for network in made if network.uuid not in known):
            users = [domain.name for domain in staying if network.name in domain.networks]
            left = f"domain {users[0]} is in it" if users else None
            garbage = Garbage(GarbageKind.NETWORK, network.name, name, "the store knows no network of its UUID", left)
            found.append((garbage, partial(networks.remove, network.name, network.uuid)))
        for vm, garbage in _stray_state(session, name, state, staying, moves):
            found.append((garbage, _nothing if vm is None else partial(drop_state, host, vm)))
        recorded = recorded_functions(session).get(name, {})
        for function in (one for one in functions if one.name not in recorded):
            why = f"{function.kind or ', '.join(function.left) or 'parts'} of no tenant's network in the store"
            garbage = Garbage(GarbageKind.FUNCTION, function.name, name, printable(why)[:200])
            found.append((garbage, partial(_remove_function, host, function.name)))
        if facts is not None:
            for vgpu, garbage in _stray_vgpus(session, name, facts, shares, staying):
                found.append((garbage, partial(release_strays, services, host, [_share_of(vgpu, facts)])))
    return found


def _stray_domains(
    session: Session, host: str, domains: Sequence[DomainFact], moves: Mapping[str, str]
) -> list[tuple[DomainFact, Garbage]]:
    """Domains with our metadata that are not VMs of the store. Foreign domains are ignored.

    moves: of the VMs that are moved to or from this host, by UUID, what ends that.
    """
    known = {vm.uuid: vm.host for vm in session.vms()}
    tenants = {tenant.name for tenant in session.tenants()}
    found = []
    for domain in domains:
        if domain.metadata is None or known.get(domain.uuid) == host:
            continue
        left = moves.get(domain.uuid)
        if domain.metadata.tenant not in tenants:
            left = f"the store has no tenant {domain.metadata.tenant}, so it is another store's"
        elif left is None and domain.state.is_active() and domain.uuid in known:
            way = f"`vgpuctl uncordon-host {host}` ends it" if is_fenced(session, host) else way_out(host, domain.name)
            left = f"it is {domain.state} here too: {way}"
        elif left is None and domain.state.is_active():
            left = f"it is {domain.state}: adopt-host takes it over, `virsh shutdown` makes it garbage"
        where = f"its VM is on {known[domain.uuid]}" if domain.uuid in known else "no VM of the store has its UUID"
        why = f"made for {domain.metadata.tenant}, and {where}"
        found.append((domain, Garbage(GarbageKind.DOMAIN, domain.name, host, why, left)))
    return found


def _stray_state(
    session: Session, host: str, state: GuestState, staying: Sequence[DomainFact], moves: Collection[str]
) -> Iterator[tuple[Vm | None, Garbage]]:
    moving = [*moves, *(one.removeprefix("move:") for one in subjects_at_work(session))]
    known = {vm.uuid: vm for vm in (*session.vms(), *(kept.as_vm() for kept in session.kept_vms()))}
    return stray_state(host, state, known, moving, staying)


def _share_of(vgpu: ExistingVgpu, facts: HostFacts) -> Share:
    """The share that an idle vGPU is; one of an unknown type has the type's number for a name."""
    found = shares_of_devices([vgpu.vfio_device], facts)
    if isinstance(found, str):
        return Share(
            vgpu.gpu, vgpu.sharing, f"type {vgpu.type_id}", vgpu.function, vgpu.type_id, mdev_uuid=vgpu.mdev_uuid
        )
    return found[0]


def _undefine(services: Services, host: HostSession, domain: DomainFact) -> None:
    now = host.hypervisor.domain(domain.uuid)
    if now is not None and now.state.is_active():
        raise StateError(f"domain {domain.name} on {host.name} is {now.state} by now")
    if now is not None:
        release_cards_of(services, host, domain)
        host.hypervisor.undefine(domain.name, uuid=domain.uuid)
        host.agent.guest_state(StateOrder(StateAction.REMOVE, domain.uuid, (f"{domain.uuid}{NVRAM_ENDING}",)))


def _remove_function(host: HostSession, name: str) -> None:
    host.agent.apply([SetNetworkFunction(name, None)])


def _nothing() -> None:
    """Do nothing to what is left alone."""


def _stray_vgpus(
    session: Session, host: str, facts: HostFacts, shares: Collection[str], staying: Sequence[DomainFact]
) -> list[tuple[ExistingVgpu, Garbage]]:
    """vGPUs that no process holds, no domain names, no lease is of, no move or resize has made, and no layout."""
    claimed = {device.device for domain in staying for device in domain.hostdevs} | {*shares}
    claimed = claimed.union(*(lease.share.names for lease in session.leases(host=host)))
    claimed = claimed.union(*(share.names for one in kept_for_vms(session) if one.host == host for share in one.shares))
    found = []
    # Without these nobody knows whether mdevctl or the boot's unit made a vGPU.
    unknown = facts.why_unread("mdevctl", "boot")
    for vgpu in idle_vgpus(facts, claimed):
        left = "mdevctl has a definition of it" if vgpu.mdev_uuid in facts.mdevctl else unknown
        why = f"{describe_type(vgpu)} on {vgpu.function}, of no lease, layout or domain"
        found.append((vgpu, Garbage(GarbageKind.VGPU, vgpu.vfio_device, host, why, left)))
    return found


def _owners_of_nothing(services: Services) -> list[Garbage]:
    """Owners of OVN's rows that are neither tenants with networks nor external networks of the store."""
    owners = services.northbound.owners()
    with services.store.reading() as session:
        known = {tenant_owner(network.request.tenant) for network in session.networks()}
        known |= {external_owner(one.name) for one in session.external_networks()}
    why = "rows in OVN's northbound database that the store does not know"
    return [Garbage(GarbageKind.OVN, owner, NOWHERE, why) for owner in sorted(owners - known)]
