# SPDX-License-Identifier: Apache-2.0
"""Change the objects of a tenant's VPC, for commands and onboarding: the store, then OVN, then deletions.

An object leaves OVN before the store, so that no VM gets an external address that still leads to another VM. If the run
is killed, the store says what is wanted: the same command, or `repair`, finishes it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from vgpuctl.errors import NetworkInUse, UsageError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.interfaces import interfaces_of
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.vm import printed_name
from vgpuctl.model.vpc import (
    AddressGroup,
    DirectConnect,
    FloatingIp,
    Gateway,
    PeeringSpec,
    PortForward,
    Route,
    SecurityGroup,
    VpcSpec,
)
from vgpuctl.model.vpc_kind import VpcKind
from vgpuctl.model.vpn import VpnConnection
from vgpuctl.specs.vpc_objects import is_same, without_given
from vgpuctl.store.store import Session
from vgpuctl.usecases.network.function_kinds import FUNCTION_KINDS
from vgpuctl.usecases.network.functions import chosen_chassis, hosts_without
from vgpuctl.usecases.network.network_backends import OVN_SUBJECT, locked, refuse_old_ovn, refuse_without_ovn
from vgpuctl.usecases.network.routes import is_through, refuse_unfit_routes
from vgpuctl.usecases.network.vpc import apply_vpc, carried, in_words
from vgpuctl.usecases.network.vpc_addresses import all_objects, set_object
from vgpuctl.usecases.running.services import Services

CREATED, CHANGED, UNCHANGED, REMOVED = "created", "changed", "unchanged", "removed"
KEPT, DIFFERS, LEAVING = "not in the file", "differs", "leaving"
"""Of a tenant's file: kept although the file lacks it, must be created again, removed once its nodes are drained."""


@dataclass(frozen=True)
class ObjectOutcome:
    """The outcome for one object, also of a dry run. detail: its differences, for --diff."""

    kind: str
    name: str
    outcome: str
    detail: tuple[str, ...] = ()


@dataclass(frozen=True)
class Decision:
    """The wanted objects, in an order in which they can be created, and those to delete."""

    wanted: Sequence[VpcSpec] = ()
    gone: Sequence[VpcSpec] = ()


@dataclass(frozen=True)
class Changed:
    """outcomes: of the wanted objects, then of the deleted. objects: the wanted with their addresses. rows: OVN's."""

    outcomes: tuple[ObjectOutcome, ...]
    objects: tuple[VpcSpec, ...]
    rows: tuple[str, ...] = ()

    @property
    def is_change(self) -> bool:
        """True if the store or OVN changed."""
        return bool(self.rows) or any(one.outcome != UNCHANGED for one in self.outcomes)


def change_objects(services: Services, tenant: str, decide: Callable[[Session], Decision]) -> Changed:
    """Let `decide` read the store and choose the objects, then apply its decision while no other run changes objects.

    Raises NotFound (tenant), NetworkInUse for objects that others need, and what `decide`, set_object and OVN raise.
    """
    with locked(services, OVN_SUBJECT):
        with services.store.reading() as session:
            has_ovn = bool(carried(session, tenant))
        if has_ovn:
            services.require_northbound()  # nothing is written when it does not answer
            _refuse_hosts_without_programs(services, tenant, decide)
        with services.store.transaction() as session:
            changed, gone = _keep(services, session, tenant, decide)
            has_ovn = bool(carried(session, tenant))
        rows: list[str] = []
        if has_ovn:
            rows = apply_vpc(services, tenant, without={(tenant, spec.kind, spec.key) for spec in gone})
            for row in rows:
                services.say(f"{tenant}: {in_words(row)}")
        if gone:
            with services.store.transaction() as session:
                for spec in gone:
                    if session.delete_vpc_object(tenant, spec.kind, spec.key):
                        _note(session, tenant, spec, "deleted", before=spec)
    return Changed(changed.outcomes, changed.objects, tuple(rows))


def _refuse_hosts_without_programs(services: Services, tenant: str, decide: Callable[[Session], Decision]) -> None:
    """Raise UsageError for an object that is a program on hosts, and hosts that lack it. Nothing is written."""
    with services.store.reading() as session:
        decided = decide(session).wanted
        wanted = [one for one in decided if isinstance(one, LoadBalancer) and one.protocol.is_http()]
        there = {one.key: one for one in session.vpc_objects(tenant, LoadBalancer)}
        new = [one for one in wanted if one.key not in there or not there[one.key].protocol.is_http()]
        if not new:
            return
        gateways = [*(one for one in decided if isinstance(one, Gateway)), *session.vpc_objects(tenant, Gateway)]
        if not gateways:
            return  # it is refused for that
        chassis = session.external_network(gateways[0].external_network).chassis
    missing = hosts_without(services, chosen_chassis(services, tenant, chassis), FUNCTION_KINDS[new[0].kind].needs)
    if missing:
        raise UsageError(
            f"{new[0].kind} {new[0].key} of tenant {tenant} would run on hosts that cannot have it",
            context=missing,
            hint="install it there (docs/networks.md), or name other chassis with `vgpuctl create-external-network`",
        )


def compare_object(before: VpcSpec | None, after: VpcSpec) -> ObjectOutcome:
    """The outcome for one object of the store."""
    if before is None:
        return ObjectOutcome(after.kind, after.key, CREATED, (f"+ {_shown(after)}",))
    if is_same(before, after):
        return ObjectOutcome(after.kind, after.key, UNCHANGED)
    return ObjectOutcome(after.kind, after.key, CHANGED, (f"- {_shown(before)}", f"+ {_shown(after)}"))


def _keep(
    services: Services, session: Session, tenant: str, decide: Callable[[Session], Decision]
) -> tuple[Changed, tuple[VpcSpec, ...]]:
    """Write the wanted objects. Returns the change, and the objects to delete, newest first."""
    session.tenant(tenant)
    decision = decide(session)
    refuse_without_ovn(services, *decision.wanted)
    refuse_old_ovn(services, session, tenant, decision.wanted)
    there = {(spec.kind, spec.key): spec for spec in all_objects(session, tenant)}
    # Groups may let one another in, so all are there before any is checked.
    for spec in decision.wanted:
        if spec.kind is VpcKind.SECURITY_GROUP:
            session.set_vpc_object(tenant, spec)
    outcomes = []
    written = []
    for spec in decision.wanted:
        set_object(session, tenant, spec)
        outcome = compare_object(there.get((spec.kind, spec.key)), spec)
        outcomes.append(outcome)
        if outcome.outcome != UNCHANGED:
            written.append((spec, outcome.outcome))
    for spec in decision.wanted:
        if isinstance(spec, Gateway | PeeringSpec):
            refuse_unfit_routes(session, tenant)
        if isinstance(spec, PeeringSpec):
            refuse_unfit_routes(session, spec.tenant)
    now = {(spec.kind, spec.key): spec for spec in all_objects(session, tenant)}
    for spec, outcome_word in written:
        place = (spec.kind, spec.key)
        _note(session, tenant, spec, outcome_word, before=there.get(place), after=now[place])
    gone = tuple(reversed(decision.gone))
    going = {(spec.kind, spec.key) for spec in gone}
    staying = [spec for place, spec in now.items() if place not in going]
    users = list(dict.fromkeys(_users(session, tenant, gone, staying)))
    if users:
        raise NetworkInUse(
            f"objects of tenant {tenant} are in use",
            context=users,
            hint="delete these users first",
        )
    objects = tuple(now[spec.kind, spec.key] for spec in decision.wanted)
    outcomes += [ObjectOutcome(spec.kind, spec.key, REMOVED) for spec in gone]
    return Changed(tuple(outcomes), objects), gone


def _users(session: Session, tenant: str, gone: Sequence[VpcSpec], staying: Sequence[VpcSpec]) -> Iterator[str]:
    """The users of objects to delete: `security group web: VM web-1 is in it`."""
    groups = {spec.name for spec in gone if isinstance(spec, SecurityGroup)}
    addresses = {spec.name for spec in gone if isinstance(spec, AddressGroup)}
    has_no_gateway = any(isinstance(spec, Gateway) for spec in gone)
    for spec in gone:
        if isinstance(spec, DirectConnect):
            network = session.network(tenant, spec.network)
            for route in (one for one in staying if isinstance(one, Route)):
                if is_through(network, route.addresses):
                    yield f"direct connect {spec.key}: route {route.key} leads there"
    for vm in session.vms(tenant=tenant) if groups else ():
        for name in sorted({name for one in interfaces_of(vm.request) for name in one.security_groups}):
            if name in groups:
                yield f"security group {name}: VM {vm.request.name} is in it"
    for spec in staying:
        if isinstance(spec, SecurityGroup):
            for rule in spec.rules:
                if rule.source_group in groups:
                    yield f"security group {rule.source_group}: a rule of group {spec.name} names it"
                if rule.address_group in addresses:
                    yield f"address group {rule.address_group}: a rule of security group {spec.name} names it"
        if has_no_gateway and isinstance(spec, FloatingIp | PortForward | VpnConnection):
            yield f"gateway: {spec.kind} {spec.key} uses it"
        if has_no_gateway and isinstance(spec, LoadBalancer) and spec.protocol.is_http():
            yield f"gateway: {spec.kind} {spec.key} runs on hosts of its external network"


def _note(
    session: Session,
    tenant: str,
    spec: VpcSpec,
    word: str,
    *,
    before: VpcSpec | None = None,
    after: VpcSpec | None = None,
) -> None:
    values = [None if one is None else {"specification": msgspec.json.encode(one).decode()} for one in (before, after)]
    label = printed_name(tenant, spec.key)
    session.add_event(EventKind(f"{spec.kind}-{word}"), label, tenant=tenant, before=values[0], after=values[1])


def _shown(spec: VpcSpec) -> str:
    return msgspec.json.encode(without_given(spec)).decode()
