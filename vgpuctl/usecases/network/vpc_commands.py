# SPDX-License-Identifier: Apache-2.0
"""create-, delete- and list- of what belongs to a tenant's networks; what they change goes by vpc_changes."""

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from vgpuctl.errors import NotFound, UsageError, VpcObjectDiffers
from vgpuctl.model.vm import check_name
from vgpuctl.model.vpc import (
    DirectConnect,
    FloatingIp,
    Gateway,
    LoadBalancer,
    PeeringSpec,
    PortForward,
    Rule,
    SecurityGroup,
    VpcKind,
    VpcSpec,
)
from vgpuctl.model.vpc_text import describe_rule, parse_forwarded
from vgpuctl.store.store import Session
from vgpuctl.usecases.network.vpc import carried
from vgpuctl.usecases.network.vpc_changes import Changed, Decision, change_objects
from vgpuctl.usecases.network.vpc_objects import all_objects, is_same, without_given
from vgpuctl.usecases.support.services import Services

Changeable = TypeVar("Changeable", SecurityGroup, LoadBalancer)


@dataclass(frozen=True)
class ShownObject:
    """One object of a tenant's networks. name: its key among those of its kind."""

    tenant: str
    kind: VpcKind
    name: str
    spec: VpcSpec


@dataclass(frozen=True)
class CreatedObject:
    """The answer of a create command. changed: False when all was so already. remarks: why it has no effect yet."""

    object: ShownObject
    changed: bool
    remarks: tuple[str, ...] = ()


def create_object(services: Services, tenant: str, wanted: VpcSpec, *, dry_run: bool = False) -> CreatedObject:
    """Give a tenant one object, finish what an earlier run began, or find that it is there.

    Raises NotFound, UsageError, StateError without a gateway, VpcObjectDiffers, NetworkInUse, AddressesExhausted.
    """
    _check_names(wanted)

    def decide(session: Session) -> Decision:
        for there in session.vpc_objects(tenant, type(wanted)):
            if there.key == wanted.key and not is_same(there, wanted):
                raise VpcObjectDiffers(
                    f"{wanted.kind} {wanted.key} of tenant {tenant} exists with another specification",
                    context=list_differences(there, wanted),
                    hint=_way_to_change(wanted),
                )
        return Decision((wanted,))

    return _created(services, tenant, change_objects(services, tenant, decide, dry_run=dry_run))


def change_object(
    services: Services,
    tenant: str,
    kind: type[Changeable],
    key: str,
    change: Callable[[Changeable], Changeable],
    *,
    dry_run: bool = False,
) -> CreatedObject:
    """Change an object that is there, keeping its addresses.

    Raises NotFound, for what the change names as well, UsageError, and what `change` raises.
    """

    def decide(session: Session) -> Decision:
        (there,) = _find(session, tenant, kind.kind, (key,))
        assert isinstance(there, kind)
        wanted = change(there)
        _check_names(wanted)
        return Decision((wanted,))

    return _created(services, tenant, change_objects(services, tenant, decide, dry_run=dry_run))


def change_backends(balancer: LoadBalancer, *, add: Sequence[str], remove: Sequence[str]) -> LoadBalancer:
    """The balancer with other VMs behind it, those that stay in their order. Raises UsageError when none is left."""
    vms = tuple(vm for vm in dict.fromkeys((*balancer.vms, *add)) if vm not in remove)
    if not vms:
        raise UsageError(
            f"load balancer {balancer.name} would have no VM behind it",
            hint="add another in the same command, or delete it with `vgpuctl delete-load-balancer`",
        )
    return replace(balancer, vms=vms)


def find_objects(
    services: Services, tenant: str, kind: VpcKind, keys: Sequence[str], *, if_exists: bool = False
) -> list[ShownObject]:
    """Objects of one kind by their names; a forwarded port may be `8080`.

    Raises NotFound with near names. if_exists: say so instead.
    """
    if kind is VpcKind.PORT_FORWARD:
        keys = ["{}/{}".format(*parse_forwarded(key)) for key in keys]
    with services.store.reading() as session:
        session.tenant(tenant)
        found = {spec.key: spec for spec in _find(session, tenant, kind, keys, if_exists=if_exists)}
    for key in dict.fromkeys(keys):
        if key not in found:
            services.say(f"{kind} {tenant}.{key}: not there, nothing to delete")
    return [ShownObject(tenant, kind, key, spec) for key, spec in found.items()]


def delete_objects(services: Services, objects: Sequence[ShownObject], *, dry_run: bool = False) -> None:
    """Take objects of one tenant away, all or none. What another run took away meanwhile is fine.

    Raises NetworkInUse when something that stays needs one of them.
    """
    places = {(one.kind, one.name) for one in objects}
    tenant = objects[0].tenant

    def decide(session: Session) -> Decision:
        return Decision(gone=[spec for spec in all_objects(session, tenant) if (spec.kind, spec.key) in places])

    change_objects(services, tenant, decide, dry_run=dry_run)
    if not dry_run:
        for one in objects:
            services.say(f"{one.kind} {tenant}.{one.name}: deleted")


def list_objects(services: Services, *, tenant: str | None = None, kind: VpcKind | None = None) -> list[ShownObject]:
    """Objects of a tenant or of all, of one kind or of all. Raises NotFound (tenant)."""
    with services.store.reading() as session:
        if tenant is not None:
            session.tenant(tenant)
        names = [one.name for one in session.tenants()] if tenant is None else [tenant]
        return [
            ShownObject(name, spec.kind, spec.key, spec)
            for name in names
            for spec in all_objects(session, name)
            if spec.kind is not VpcKind.CONTACT and kind in (None, spec.kind)
        ]


def describe(spec: VpcSpec) -> str:
    """An object in a few words, without its name: `203.0.113.10:8080 to web-2:80`."""
    match spec:
        case Gateway(external_network):
            return f"to {external_network}"
        case SecurityGroup(rules=rules):
            return f"lets in {_words(rules)}" if rules else "lets nothing in"
        case FloatingIp(vm, address):
            return f"{address} is {vm}'s"
        case PortForward():
            return f"{spec.address}:{spec.port} to {spec.vm}:{spec.vm_port}"
        case LoadBalancer():
            return f"{spec.address}:{spec.port} of {spec.network} to {_words(spec.vms)}, port {spec.vm_port}"
        case DirectConnect():
            return f"{spec.physical_network}, {'untagged' if spec.vlan is None else f'VLAN {spec.vlan}'}"
        case PeeringSpec(neighbour):
            return f"with {neighbour}"
        case _:
            return spec.address


def list_differences(there: VpcSpec, wanted: VpcSpec) -> list[str]:
    """One line per field that differs: `vm_port: 80 there, 8080 wanted`."""
    one, other = without_given(there), without_given(wanted)
    return [
        f"{field.name}: {_words(getattr(one, field.name))} there, {_words(getattr(other, field.name))} wanted"
        for field in fields(one)
        if getattr(one, field.name) != getattr(other, field.name)
    ]


def _created(services: Services, tenant: str, changed: Changed) -> CreatedObject:
    (spec,) = changed.objects
    with services.store.reading() as session:
        remarks = tuple(_remarks(session, tenant, spec))
    return CreatedObject(ShownObject(tenant, spec.kind, spec.key, spec), changed.is_change, remarks)


def _find(
    session: Session, tenant: str, kind: VpcKind, keys: Sequence[str], *, if_exists: bool = False
) -> Iterator[VpcSpec]:
    there = {spec.key: spec for spec in all_objects(session, tenant) if spec.kind is kind}
    for key in dict.fromkeys(keys):
        if key in there:
            yield there[key]
        elif not if_exists:
            near = difflib.get_close_matches(key, there, n=3)
            raise NotFound(
                f"tenant {tenant} has no {kind} {key}",
                hint=f"did you mean {', '.join(near)}?"
                if near
                else f"see `vgpuctl list-vpc-objects --tenant {tenant}`",
            )


def _check_names(spec: VpcSpec) -> None:
    for what, name in _names(spec):
        check_name(name, what=what)


def _names(spec: VpcSpec) -> Iterator[tuple[str, str]]:
    """Every name in an object and what it is."""
    match spec:
        case SecurityGroup(name):
            yield "security group", name
        case LoadBalancer(name, vms=vms):
            yield "load balancer", name
            yield from (("VM", vm) for vm in vms)
        case FloatingIp(vm) | PortForward(vm=vm):
            yield "VM", vm
        case DirectConnect(_network, physical_network):
            yield "physical network", physical_network
        case PeeringSpec(neighbour):
            yield "tenant", neighbour


def _remarks(session: Session, tenant: str, spec: VpcSpec) -> Iterator[str]:
    vms: tuple[str, ...] = ()
    match spec:
        case FloatingIp(vm) | PortForward(vm=vm):
            vms = (vm,)
        case LoadBalancer(vms=several):
            vms = several
        case PeeringSpec(neighbour) if neighbour not in session.tenants_with_peer(tenant):
            yield f"it counts once tenant {neighbour} wants it too"
    if not carried(session, tenant):
        yield f"tenant {tenant} has no network carried by OVN yet"
    for vm in vms:
        if session.vm(tenant, vm) is None:
            yield f"tenant {tenant} has no VM {vm} yet"


def _way_to_change(spec: VpcSpec) -> str:
    if isinstance(spec, SecurityGroup):
        return (
            "change it with `vgpuctl create-security-rule` and `vgpuctl delete-security-rule`, or in the tenant's file"
        )
    if isinstance(spec, LoadBalancer):
        return (
            "change its VMs and checks with `vgpuctl set-load-balancer`; delete it first, or change it in the tenant's "
            "file, for the rest"
        )
    if isinstance(spec, Gateway):
        return "delete it first, after its floating IPs and port forwards"
    return "delete it first, or change it in the tenant's file"


def _words(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(describe_rule(one) if isinstance(one, Rule) else str(one) for one in value) or "none"
    return "none" if value is None else str(value)
