# SPDX-License-Identifier: Apache-2.0
"""Create, change, find and delete one object of a tenant's VPC; vpc_changes makes the changes."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vgpuctl.errors import NotFound, UsageError, VpcObjectDiffers
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.network import is_ipv6
from vgpuctl.model.vm import Vm
from vgpuctl.model.vpc import FloatingIp, Gateway, PeeringSpec, PortForward, VpcSpec
from vgpuctl.model.vpc_kind import VpcKind
from vgpuctl.model.vpn import VpnConnection
from vgpuctl.specs.vpc_objects import KIND_OF, ObjectKind, describe, is_same, list_differences
from vgpuctl.store.store import Session
from vgpuctl.usecases.found.deletion import Deletion
from vgpuctl.usecases.network.balancer_members import SeenMember, seen_members
from vgpuctl.usecases.network.rule_remarks import REMARKED, remarks_of_rules
from vgpuctl.usecases.network.vpc import carried
from vgpuctl.usecases.network.vpc_addresses import all_objects
from vgpuctl.usecases.network.vpc_changes import Changed, Decision, change_objects
from vgpuctl.usecases.observed.function_records import problems_of
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class ShownObject:
    """One object of a tenant's VPC. name: its key among those of its kind. remarks: such as rules that never match.

    members: of a load balancer of HTTP, as its instances see them, where they were asked.
    """

    tenant: str
    kind: VpcKind
    name: str
    spec: VpcSpec
    remarks: tuple[str, ...] = ()
    members: tuple[SeenMember, ...] = ()


@dataclass(frozen=True)
class CreatedObject:
    """The answer of a create command. changed: False if the object was there. remarks: why it has no effect yet.

    Those of the object itself are among them.
    """

    object: ShownObject
    changed: bool
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class ObjectChange:
    """A change of an object. add, remove: items of the kind's list. values: new values of other attributes.

    ended: items that leave the lists among those attributes.
    """

    add: Sequence[object] = ()
    remove: Sequence[object] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    ended: Mapping[str, Sequence[str]] = field(default_factory=dict)


def create_object(services: Services, tenant: str, wanted: VpcSpec) -> CreatedObject:
    """Create one object, finish an interrupted run, or find that the object exists.

    Raises NotFound, StateError without a gateway, VpcObjectDiffers. Also NetworkInUse and AddressesExhausted.
    """

    def decide(session: Session) -> Decision:
        for there in session.vpc_objects(tenant, type(wanted)):
            if there.key == wanted.key and not is_same(there, wanted):
                raise VpcObjectDiffers(
                    f"{wanted.kind} {wanted.key} of tenant {tenant} exists with another specification",
                    context=list_differences(there, wanted),
                    hint=KIND_OF[wanted.kind].to_change,
                )
        return Decision((wanted,))

    return _created(services, tenant, change_objects(services, tenant, decide))


def change_object(services: Services, tenant: str, kind: ObjectKind, key: str, change: ObjectChange) -> CreatedObject:
    """Change an object that exists; it keeps its addresses.

    Raises NotFound for the object and for names in the change, UsageError for items that are both added and removed,
    and for a list that must have an item and would have none.
    """
    if both := [item for item in change.add if item in change.remove]:
        raise UsageError(f"{', '.join(map(str, both))} cannot be added and removed at once")

    def decide(session: Session) -> Decision:
        return Decision((_changed(kind, find_object(session, tenant, kind, key), change),))

    return _created(services, tenant, change_objects(services, tenant, decide))


def require_object(services: Services, tenant: str, kind: ObjectKind, key: str) -> None:
    """Raise NotFound for an object, or its tenant, that is not there."""
    with services.store.reading() as session:
        session.tenant(tenant)
        find_object(session, tenant, kind, key)


def list_vpc_objects(
    services: Services, *, tenant: str | None = None, kind: VpcKind | None = None, asks_members: bool = False
) -> list[ShownObject]:
    """List the objects of a tenant or of all, of one kind or of all. Raises NotFound (tenant).

    asks_members: ask the instances of HTTP load balancers for their members.
    """
    with services.store.reading() as session:
        if tenant is not None:
            session.tenant(tenant)
        names = [one.name for one in session.tenants()] if tenant is None else [tenant]
        found = []
        for name in names:
            remarks = remarks_of_rules(session, name) if kind in (None, *REMARKED) else {}
            found += [
                ShownObject(name, spec.kind, spec.key, spec, tuple(remarks.get((spec.kind, spec.key), ())))
                for spec in all_objects(session, name)
                if spec.kind is not VpcKind.CONTACT and kind in (None, spec.kind)
            ]
    return [_with_members(services, one) for one in found] if asks_members else found


def _with_members(services: Services, shown: ShownObject) -> ShownObject:
    if not isinstance(shown.spec, LoadBalancer) or not shown.spec.protocol.is_http():
        return shown
    members, problems = seen_members(services, shown.tenant, shown.spec)
    return replace(shown, members=tuple(members), remarks=(*shown.remarks, *problems))


def deletion_of(kind: ObjectKind) -> Deletion[ShownObject]:
    """The rules for deleting objects of one kind."""

    def find(session: Session, tenant: str, name: str) -> ShownObject:
        spec = find_object(session, tenant, kind, name if kind.is_single else kind.name_in(name))
        return ShownObject(tenant, kind.kind, spec.key, spec)

    return Deletion(
        find=find,
        names=lambda session, tenant: [one.key for one in session.vpc_objects(tenant, kind.model)],
        printed=lambda one: f"{one.tenant}/{one.name}",
        describe=lambda one: f"{kind.name} {one.tenant}/{one.name}: {describe(one.spec)}",
        delete=_delete_objects,
        is_joint=True,
    )


def _delete_objects(services: Services, objects: Sequence[ShownObject]) -> None:
    """Delete objects of one tenant, all or none. Objects that another run has deleted meanwhile are ignored.

    Raises NetworkInUse when something that stays needs one of them.
    """
    places = {(one.kind, one.name) for one in objects}
    tenant = objects[0].tenant

    def decide(session: Session) -> Decision:
        return Decision(gone=[spec for spec in all_objects(session, tenant) if (spec.kind, spec.key) in places])

    change_objects(services, tenant, decide)


def _changed(kind: ObjectKind, there: VpcSpec, change: ObjectChange) -> VpcSpec:
    """The object after a change; items that stay keep their order."""
    values = dict(change.values)
    if kind.changed_list is not None:
        items = kind.table.field(kind.changed_list)
        kept = dict.fromkeys((*getattr(there, items.path), *change.add))
        values[items.path] = tuple(one for one in kept if one not in change.remove)
        if items.is_required and not values[items.path]:
            raise UsageError(
                f"{kind.name} {there.key} would have no {items.help}",
                hint=f"add another in the same command, or delete it with `vgpuctl delete-{kind.kind}`",
            )
        for one in (kind.table.field(key) for key in kind.of_items):
            gone = {*map(str, change.remove), *change.ended.get(one.path, ())}
            values[one.path] = _named_once((*getattr(there, one.path), *values.get(one.path, ())), gone)
    return replace(there, **values)


def _named_once(items: Sequence[str], gone: set[str]) -> tuple[str, ...]:
    """Items such as `web-1` and `web-1=3`: the last one of each name, but those that are gone."""
    last = {one.partition("=")[0]: one for one in items}
    return tuple(one for name, one in last.items() if name not in gone)


def _created(services: Services, tenant: str, changed: Changed) -> CreatedObject:
    (spec,) = changed.objects
    with services.store.reading() as session:
        own = tuple(remarks_of_rules(session, tenant).get((spec.kind, spec.key), ())) if spec.kind in REMARKED else ()
        remarks = (*remarks_on(session, tenant, spec), *own)
    return CreatedObject(ShownObject(tenant, spec.kind, spec.key, spec, own), changed.is_change, remarks)


def find_object(session: Session, tenant: str, kind: ObjectKind, key: str) -> VpcSpec:
    """One object by its name. Raises NotFound, with names that are near."""
    there: dict[str, VpcSpec] = {spec.key: spec for spec in session.vpc_objects(tenant, kind.model)}
    if key in there:
        return there[key]
    near = difflib.get_close_matches(key, there, n=3)
    raise NotFound(
        f"tenant {tenant} has no {kind.name}" + ("" if kind.is_single else f" {key}"),
        hint=f"did you mean {', '.join(near)}?" if near else f"see `vgpuctl list-vpc-objects --tenant {tenant}`",
    )


def remarks_on(session: Session, tenant: str, spec: VpcSpec) -> Iterator[str]:
    """Why an object has no effect yet."""
    if isinstance(spec, PeeringSpec) and spec.tenant not in session.tenants_with_peer(tenant):
        yield f"it takes effect once tenant {spec.tenant} has a peering with {tenant}"
    if not carried(session, tenant):
        yield f"tenant {tenant} has no network carried by OVN yet"
    if isinstance(spec, VpnConnection):
        yield from _remarks_on_vpn(session, tenant, spec)
    for name in KIND_OF[spec.kind].vms_of(spec):
        vm = session.vm(tenant, name)
        if vm is None:
            yield f"tenant {tenant} has no VM {name} yet"
        elif isinstance(spec, FloatingIp | PortForward) and not _shares_version(session, vm, spec):
            yield f"VM {name} has no address of the IP version of {spec.address}, so nothing reaches it"


def _shares_version(session: Session, vm: Vm, spec: FloatingIp | PortForward) -> bool:
    """True if an external address leads to an address of the VM; also for a VM without any."""
    first = min(session.ports(vm_uuid=vm.uuid), key=lambda port: port.position, default=None)
    versions = {is_ipv6(one) for one in (spec.address, spec.address6) if one}
    return first is None or bool(versions & {is_ipv6(one) for one in first.addresses})


def _remarks_on_vpn(session: Session, tenant: str, vpn: VpnConnection) -> Iterator[str]:
    """What the other site needs to know, and what is missing of it."""
    gateways = session.vpc_objects(tenant, Gateway)
    if not any(session.external_network(one.external_network).chassis for one in gateways):
        yield "no host can have it: its external network names no chassis"
    yield from problems_of(session, tenant, vpn.kind, vpn.name)
    ends = [one for one in (vpn.external_address, vpn.external_address6) if one]
    places = " or ".join(f"[{one}]:{vpn.port}" if is_ipv6(one) else f"{one}:{vpn.port}" for one in ends)
    yield f"our side is at {places}, with public key {vpn.public_key}"
    if not vpn.peer:
        yield f"it has no peer yet: `vgpuctl rotate-vpn-keys {vpn.name} --tenant {tenant} --peer` prints one's file"
