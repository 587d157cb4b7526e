# SPDX-License-Identifier: Apache-2.0
"""onboard: make a tenant what its file says. Every step may be repeated, so the same command finishes a killed run."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from vgpuctl.errors import NetworkDiffers, VgpuctlError, VmDiffers
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.network import Backend, NetworkState
from vgpuctl.model.tenant_file import TenantFile
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.model.vpc import VpcSpec
from vgpuctl.quota.limits import changed as changed_quotas
from vgpuctl.scheduler.kept_fleet import KeptFleet
from vgpuctl.store.store import Session
from vgpuctl.usecases.disk.kept_disks import refuse_shared_disks
from vgpuctl.usecases.found.known_profiles import refuse_unknown_gpus
from vgpuctl.usecases.found.registered_images import refuse_unregistered
from vgpuctl.usecases.network import networks
from vgpuctl.usecases.network.network_backends import refuse_without_ovn
from vgpuctl.usecases.network.networks import delete_network
from vgpuctl.usecases.network.vpc_addresses import all_objects
from vgpuctl.usecases.network.vpc_changes import (
    CHANGED,
    CREATED,
    DIFFERS,
    KEPT,
    REMOVED,
    UNCHANGED,
    Decision,
    ObjectOutcome,
    change_objects,
)
from vgpuctl.usecases.node.declared_pools import (
    compare_pools,
    declare_pool,
    prune_pools,
    refuse_fixed,
    refuse_unusable,
)
from vgpuctl.usecases.observed.fences import is_host_fenced
from vgpuctl.usecases.observed.observations import told_states
from vgpuctl.usecases.operate.repair import repair_vm
from vgpuctl.usecases.placement.usable_hosts import refuse_unknown_host
from vgpuctl.usecases.running.operations import refuse_while_busy
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.tenant.create_tenant import create_tenant
from vgpuctl.usecases.tenant.host_pools import grant_host_pool, record_grant
from vgpuctl.usecases.tenant.set_quota import describe_quota, refuse_unknown_quotas, set_quota
from vgpuctl.usecases.vm.create_vm import create_together
from vgpuctl.usecases.vm.created_vm import CreatedVm
from vgpuctl.usecases.vm.delete_vm import delete_vm
from vgpuctl.usecases.vm.find_existing import find_existing
from vgpuctl.usecases.vm.label_vm import declare_labels, describe_labels
from vgpuctl.usecases.vm.side_by_side import Turn, in_turns

SETTLED = (VmState.RUNNING, VmState.STOPPED)


def onboard(
    services: Services,
    wanted: TenantFile,
    outcomes: list[ObjectOutcome],
    *,
    prune: bool = False,
    timeout_s: float = 30.0,
) -> None:
    """Make the tenant so: its tenancy first, its node pools last.

    outcomes: gets one for each object, also of a run that raises. prune: remove what the file does not have. timeout_s:
    for guests that are removed to shut down.
    Raises VmDiffers, NetworkDiffers and, for node pools, StateError for objects that must be created again, before it
    changes anything, and what `require_hosts` raises. Raises ConcurrentChange while another run onboards the tenant,
    and everything that creating a network or a VM raises. After one of those, what was done stays done.
    """
    refuse_shared_disks(wanted.vms)
    with services.store.reading() as session:
        for vm in wanted.vms:
            refuse_unregistered(session, vm)
        refuse_unknown_gpus(session, *wanted.vms)
        refuse_unknown_quotas(session, wanted.tenant, wanted.limits, wanted.guaranteed)
        refuse_unusable(services, session, wanted.node_pools)
    refuse_without_ovn(services, *wanted.objects)
    require_hosts(services, wanted, prune=prune)
    with _advice(), services.store.operation("onboard", f"tenant:{wanted.tenant}", wanted.tenant, exclusive=True):
        _refuse_what_differs(services, wanted, outcomes)
        outcomes.extend(_tenancy(services, wanted, prune=prune))
        pruned = [*_prune_nodes_and_vms(services, wanted, timeout_s=timeout_s)] if prune else []
        outcomes.extend(_networks(services, wanted))
        outcomes += _objects(services, wanted, prune=prune)
        _vms(services, wanted, outcomes)
        outcomes.extend(declare_pool(services, pool) for pool in wanted.node_pools)
        outcomes += [] if prune else _other_pools(services, wanted)
        outcomes += pruned
        outcomes += [*_prune_networks(services, wanted)] if prune else []


def require_hosts(services: Services, wanted: TenantFile, *, prune: bool) -> None:
    """Refuse a file that needs hosts or OVN, where the command lacks them. No host is asked.

    Raises UsageError without an inventory, and for a network that is of no host of it; InventoryError; NoCapacity for a
    VM that names another host.
    """
    with services.store.reading() as session:
        vms = {vm.request.name: vm for vm in session.vms(tenant=wanted.tenant)}
        there = {network.request.name: network for network in session.networks(tenant=wanted.tenant)}
    for network in wanted.networks:
        networks.complete_request(services, network)
        if network.backend is Backend.OVN and network.name not in there and not services.has_northbound:
            services.require_northbound()
    unsettled = {name for name, vm in vms.items() if vm.state not in SETTLED}
    made = [one for one in wanted.vms if one.name not in vms or one.name in unsettled]
    names = services.hosts() if made or len(wanted.vms) > 1 else ()
    for request in made:
        refuse_unknown_host(services, request.host, names)
    if prune:
        named = {request.name for request in wanted.vms}
        networks_named = {request.name for request in wanted.networks}
        used = {vm.host for name, vm in vms.items() if name not in named}
        used |= {one.request.host for name, one in there.items() if one.request.host and name not in networks_named}
        for host in sorted(used):
            if not is_host_fenced(services, host):
                services.inventory.require(host)


def _refuse_what_differs(services: Services, wanted: TenantFile, outcomes: list[ObjectOutcome]) -> None:
    """Raise NetworkDiffers or VmDiffers, the first of those that are among the outcomes then.

    Objects of an unfinished run are compared later, after their repair.
    """
    with services.store.reading() as session:
        found = session.networks(tenant=wanted.tenant)
        ready = {network.request.name for network in found if network.state is NetworkState.CREATED}
        settled = {vm.request.name for vm in session.vms(tenant=wanted.tenant) if vm.state in SETTLED}
        compared = compare_pools(session, wanted.tenant, wanted.node_pools, prune=False)
        outcomes.extend(one for one in compared if one.outcome == DIFFERS)
        refuse_fixed(session, wanted.tenant, wanted.node_pools)
    differing: list[VgpuctlError] = []
    for network in wanted.networks:
        if network.name in ready:
            try:
                networks.find_existing(services, networks.complete_request(services, network))
            except NetworkDiffers as error:
                differing.append(error)
                outcomes.append(ObjectOutcome("network", network.name, DIFFERS, tuple(error.context)))
    for vm in wanted.vms:
        if vm.name in settled:
            try:
                find_existing(services, [_unlabelled(vm)])
            except VmDiffers as error:
                differing.append(error)
                outcomes.append(ObjectOutcome("vm", vm.name, DIFFERS, tuple(error.context)))
    if differing:
        raise differing[0]


def _tenancy(services: Services, wanted: TenantFile, *, prune: bool) -> Iterator[ObjectOutcome]:
    name = wanted.tenant
    with services.store.reading() as session:
        exists = name in {tenant.name for tenant in session.tenants()}
        quotas = list(_compare_quotas(session, wanted, exists=exists, prune=prune))
        consent = list(_compare_probe(session, wanted, exists=exists))
        pools = list(_compare_pools(session, wanted, prune=prune))
        known = {quota.resource for quota in session.quotas(name)} if exists else set()
        granted = [pool.name for pool in session.host_pools() if name in pool.tenants]
    create_tenant(services, name)
    for pool in wanted.host_pools:
        grant_host_pool(services, pool, [name], revoke=False)
    limits, guaranteed = dict(wanted.limits), dict(wanted.guaranteed)
    if prune:
        limits |= {resource: None for resource in known if resource not in limits}
        guaranteed |= {resource: None for resource in known if resource not in guaranteed}
        with services.store.transaction() as session:
            for pool in granted:
                if pool not in wanted.host_pools:
                    record_grant(session, pool, name, revoke=True)
    set_quota(services, name, limits=limits, guaranteed=guaranteed)
    with services.store.transaction() as session:
        if session.set_guest_probe(name, allowed=wanted.guest_probe):
            values = {"guest_probe": "on" if wanted.guest_probe else "off"}
            session.add_event(EventKind.GUEST_PROBE_SET, name, tenant=name, after=values)
    yield ObjectOutcome("tenant", name, UNCHANGED if exists else CREATED)
    yield from quotas
    yield from pools
    yield from consent


def _compare_quotas(session: Session, wanted: TenantFile, *, exists: bool, prune: bool) -> Iterator[ObjectOutcome]:
    before = {quota.resource: quota for quota in session.quotas(wanted.tenant)} if exists else {}
    after = {one.resource: one for one in changed_quotas(list(before.values()), wanted.limits, wanted.guaranteed)}
    for resource in sorted({*before, *after}):
        old, new = before.get(resource), after.get(resource)
        named = resource in wanted.limits or resource in wanted.guaranteed
        detail = tuple(
            f"{sign} {describe_quota(quota)}" for sign, quota in (("-", old), ("+", new)) if quota and old != new
        )
        if not named:
            yield ObjectOutcome("quota", resource, REMOVED if prune else KEPT)
        elif old == new:
            yield ObjectOutcome("quota", resource, UNCHANGED)
        else:
            yield ObjectOutcome("quota", resource, CREATED if old is None else CHANGED if new else REMOVED, detail)


def _compare_probe(session: Session, wanted: TenantFile, *, exists: bool) -> Iterator[ObjectOutcome]:
    """The consent to the probe; what the file does not allow is not allowed."""
    if (exists and session.tenant(wanted.tenant).guest_probe) != wanted.guest_probe:
        yield ObjectOutcome("guest_probe", "on" if wanted.guest_probe else "off", CHANGED)


def _compare_pools(session: Session, wanted: TenantFile, *, prune: bool) -> Iterator[ObjectOutcome]:
    granted = [pool.name for pool in session.host_pools() if wanted.tenant in pool.tenants]
    for name in wanted.host_pools:
        session.host_pool(name)
        yield ObjectOutcome("host_pool", name, UNCHANGED if name in granted else CREATED)
    yield from (
        ObjectOutcome("host_pool", name, REMOVED if prune else KEPT)
        for name in granted
        if name not in wanted.host_pools
    )


def _networks(services: Services, wanted: TenantFile) -> Iterator[ObjectOutcome]:
    for request in wanted.networks:
        with services.store.reading() as session:
            existed = session.find_network(request.tenant, request.name) is not None
        network, is_changed = networks.create_network(services, request)
        word = UNCHANGED if not is_changed else CHANGED if existed else CREATED
        yield ObjectOutcome("network", request.name, word, (network.request.cidrs,) if is_changed else ())
    with services.store.reading() as session:
        others = {network.request.name for network in session.networks(tenant=wanted.tenant)}
    for name in sorted(others - {request.name for request in wanted.networks}):
        yield ObjectOutcome("network", name, KEPT)


def _objects(services: Services, wanted: TenantFile, *, prune: bool) -> list[ObjectOutcome]:
    """The objects in one transaction, then OVN's rows in another: of OVN's there is all or nothing."""
    named = {(spec.kind, spec.key) for spec in wanted.objects}
    others: list[VpcSpec] = []

    def decide(session: Session) -> Decision:
        others[:] = [spec for spec in all_objects(session, wanted.tenant) if (spec.kind, spec.key) not in named]
        return Decision(wanted.objects, others if prune else ())

    outcomes = list(change_objects(services, wanted.tenant, decide).outcomes)
    return outcomes if prune else [*outcomes, *(ObjectOutcome(spec.kind, spec.key, KEPT) for spec in reversed(others))]


def _vms(services: Services, wanted: TenantFile, outcomes: list[ObjectOutcome]) -> None:
    fleet, done = KeptFleet(), list[ObjectOutcome]()
    try:
        in_turns(services, wanted.vms, lambda request, turn: _vm(services, request, fleet, turn), done)
    finally:
        outcomes += done
    with services.store.reading() as session:
        others = {vm.request.name for vm in _own_vms(session, wanted.tenant)}
    outcomes += [ObjectOutcome("vm", name, KEPT) for name in sorted(others - {one.name for one in wanted.vms})]


def _vm(services: Services, request: VmRequest, fleet: KeptFleet, turn: Turn) -> ObjectOutcome:
    with services.store.reading() as session:
        vm = session.vm(request.tenant, request.name)
    repaired = None
    if vm is not None and vm.state not in SETTLED:
        refuse_while_busy(services, vm)
        if services.goes_on:
            return ObjectOutcome("vm", request.name, CHANGED, (f"it is {vm.state}, and is repaired first",))
        with turn.on(vm.host):
            repaired = repair_vm(services, vm)
    wanted_vm = request if vm is None else _unlabelled(request)
    (created,) = create_together(services, [wanted_vm], fleet=fleet, turn=turn)
    other = _other_labels(created.vm, request)
    if other:
        declare_labels(services, created.vm, request.labels)
    if not created.changed:
        _tell_other_state(services, created)
    word = CREATED if created.changed else CHANGED if repaired or other else UNCHANGED
    return ObjectOutcome("vm", request.name, word, (f"on {created.vm.host}",) if created.changed else other)


def _tell_other_state(services: Services, there: CreatedVm) -> None:
    """Say what was observed of a VM that was there, where it is not as declared or nobody knows."""
    with services.store.reading() as session:
        told = told_states(session, [there.vm])[there.vm.uuid]
    if told != there.vm.state:
        services.say(f"{there.vm.printed_name}: no change, it is on {there.vm.host}: {there.state}")


def _unlabelled(request: VmRequest) -> VmRequest:
    """The VM of the file for the comparison with one that exists, whose labels are changed in place."""
    return replace(request, labels=())


def _other_labels(vm: Vm, wanted: VmRequest) -> tuple[str, ...]:
    """A line if the file gives a VM that exists other labels. A file without labels leaves those that are set."""
    if not wanted.labels or vm.request.labels == wanted.labels:
        return ()
    return (f"labels: {describe_labels(vm.request.labels)} there, {describe_labels(wanted.labels)} wanted",)


def _own_vms(session: Session, tenant: str) -> list[Vm]:
    """The tenant's VMs without the nodes of pools, which come and go with these."""
    nodes = {node.vm_uuid for node in session.nodes(tenant)}
    return [vm for vm in session.vms(tenant=tenant) if vm.uuid not in nodes]


def _other_pools(services: Services, wanted: TenantFile) -> list[ObjectOutcome]:
    with services.store.reading() as session:
        compared = compare_pools(session, wanted.tenant, wanted.node_pools, prune=False)
    return [one for one in compared if one.outcome == KEPT]


def _prune_nodes_and_vms(services: Services, wanted: TenantFile, *, timeout_s: float) -> Iterator[ObjectOutcome]:
    yield from prune_pools(services, wanted.tenant, [pool.name for pool in wanted.node_pools], timeout_s=timeout_s)
    keep = {request.name for request in wanted.vms}
    with services.store.reading() as session:
        vms = [vm for vm in _own_vms(session, wanted.tenant) if vm.request.name not in keep]
    for vm in vms:
        delete_vm(services, vm, timeout_s=timeout_s)
        yield ObjectOutcome("vm", vm.request.name, REMOVED)


def _prune_networks(services: Services, wanted: TenantFile) -> Iterator[ObjectOutcome]:
    keep = {request.name for request in wanted.networks}
    with services.store.reading() as session:
        found = [network for network in session.networks(tenant=wanted.tenant) if network.request.name not in keep]
    for network in found:
        delete_network(services, network)
        yield ObjectOutcome("network", network.request.name, REMOVED)


@contextlib.contextmanager
def _advice() -> Iterator[None]:
    """Say what to do about an object that differs from the file."""
    try:
        yield
    except (NetworkDiffers, VmDiffers) as error:
        again = "then run the same command again"
        hint = f"{error.hint}; {again}" if isinstance(error, VmDiffers) else f"delete it yourself, {again}"
        raise type(error)(error.message, context=error.context, hint=hint) from error


def count(outcomes: Sequence[ObjectOutcome]) -> dict[str, int]:
    """How many objects had each outcome."""
    words = [outcome.outcome for outcome in outcomes]
    return {word: words.count(word) for word in dict.fromkeys(words)}
