# SPDX-License-Identifier: Apache-2.0
"""A tenant's VPC: from the store's rows to OVN's northbound database, in one transaction with its neighbours."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import TypeVar

from vgpuctl.model.interfaces import interface_at
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.network import Network, Port
from vgpuctl.model.security_rule import EgressDefault
from vgpuctl.model.vm import VmRequest
from vgpuctl.model.vpc import (
    ROUTER_HOLDER,
    AddressGroup,
    DirectConnect,
    EgressPolicy,
    FloatingIp,
    Gateway,
    Peering,
    PeeringSpec,
    PortForward,
    Route,
    SecurityGroup,
    Vpc,
    VpcPort,
    VpcSpec,
)
from vgpuctl.model.vpc_kind import VpcKind
from vgpuctl.model.vpn import VpnConnection
from vgpuctl.ovn.topology import external_owner, external_rows, tenant_owner, vpc_rows
from vgpuctl.store.store import Session
from vgpuctl.usecases.network.announcements import provider_vpcs
from vgpuctl.usecases.network.chassis_aside import chassis_aside
from vgpuctl.usecases.network.function_kinds import places_of
from vgpuctl.usecases.network.functions import bring_functions
from vgpuctl.usecases.network.tunnel_mtu import tunnel_mtu
from vgpuctl.usecases.running.services import Services

# Of whom, what it is, its key: one row of the store.
Place = tuple[str, VpcKind, str]
_Spec = TypeVar("_Spec", bound=VpcSpec)


def read_vpc(
    session: Session,
    tenant: str,
    *,
    without_vm: str | None = None,
    without: Collection[Place] = (),
    domain: str | None = None,
) -> Vpc:
    """Everything of a tenant that OVN carries. without_vm, without: a VM's port and objects that count as gone."""

    def objects(kind: type[_Spec]) -> tuple[_Spec, ...]:
        found = session.vpc_objects(tenant, kind)
        return tuple(spec for spec in found if (tenant, spec.kind, spec.key) not in without)

    networks = carried(session, tenant)
    names = {vm.uuid: vm.request for vm in session.vms(tenant=tenant)}
    ports = [
        _vpc_port(port, names[port.vm_uuid])
        for network in networks
        for port in session.ports(network_id=network.id)
        if port.vm_uuid != without_vm and port.vm_uuid in names
    ]
    vpc = Vpc(
        tenant,
        networks,
        tuple(ports),
        objects(SecurityGroup),
        floating_ips=objects(FloatingIp),
        forwards=objects(PortForward),
        balancers=objects(LoadBalancer),
        direct_connects=objects(DirectConnect),
        peerings=_peerings(session, tenant, objects(PeeringSpec), without),
        address_groups=objects(AddressGroup),
        egress=next((policy.default for policy in objects(EgressPolicy)), EgressDefault.ALLOW),
        mtu=tunnel_mtu(session),
        domain=domain,
        aside=chassis_aside(session),
        vpns=objects(VpnConnection),
        routes=objects(Route),
    )
    for gateway in objects(Gateway):
        external = session.external_network(gateway.external_network)
        address = session.hold_external_address(external, tenant, ROUTER_HOLDER)
        vpc = replace(
            vpc,
            external_network=external,
            router_address=address,
            router_address6=session.external_address6(external, tenant, ROUTER_HOLDER),
            routed6=session.routed_prefixes(external, tenant),
        )
    return replace(vpc, functions=tuple(places_of(vpc)))


def _vpc_port(port: Port, request: VmRequest) -> VpcPort:
    """A port with what was asked for its interface; one that its guest has yet to release has the group `default`."""
    interface = interface_at(request, port.position)
    if interface is None:
        return VpcPort(port, request.name)
    return VpcPort(port, request.name, interface.security_groups, interface.bandwidth_mbps)


def carried(session: Session, tenant: str) -> tuple[Network, ...]:
    """The tenant's networks that OVN carries, without those being deleted."""
    return tuple(network for network in session.networks(tenant=tenant) if network.is_carried)


def apply_vpc(
    services: Services,
    tenant: str,
    *,
    without_vm: str | None = None,
    without: Collection[Place] = (),
    dry_run: bool = False,
) -> list[str]:
    """Make OVN's rows of a tenant, and of its neighbours, what the store says now. Call it within `locked`.

    Returns what had to be done, in a few words; nothing when all was so. Raises OvnUnreachable and OvnRefused; then
    nothing was changed.
    """
    return apply_vpcs(services, (tenant,), without_vm=without_vm, without=without, dry_run=dry_run)


def apply_vpcs(
    services: Services,
    tenants: Collection[str],
    *,
    without_vm: str | None = None,
    without: Collection[Place] = (),
    dry_run: bool = False,
) -> list[str]:
    """The same for several tenants in one transaction: all or none. Their network functions on hosts follow it."""
    with services.store.reading() as session:
        neighbours = set(tenants)
        for tenant in tenants:
            neighbours |= {spec.tenant for spec in session.vpc_objects(tenant, PeeringSpec)}
            neighbours |= set(session.tenants_with_peer(tenant))
        there = {one.name for one in session.tenants()}
        vpcs = [
            read_vpc(session, one, without_vm=without_vm, without=without, domain=services.internal_domain)
            for one in sorted((neighbours & there) | set(tenants))
        ]
        vpcs += provider_vpcs(session, without=without)
    external = {vpc.external_network for vpc in vpcs if vpc.external_network is not None}
    wanted = {external_owner(network.name): external_rows(network) for network in external}
    wanted |= {tenant_owner(vpc.tenant): vpc_rows(vpc) for vpc in vpcs if not vpc.is_provider}
    counts = Counter(change.word for change in services.northbound.apply(wanted, dry_run=dry_run))
    rows = [f"{counts[word]} rows {word}" for word in ("created", "changed", "removed") if counts[word]]
    return rows + bring_functions(services, vpcs, dry_run=dry_run)


def in_words(change: str) -> str:
    """A change that `apply_vpcs` returned, as a sentence: rows are OVN's, and a host's function says so itself."""
    return change if ": " in change else f"OVN has {change}"


def _peerings(
    session: Session, tenant: str, wanted: tuple[PeeringSpec, ...], without: Collection[Place]
) -> tuple[Peering, ...]:
    """Neighbours that both sides want."""
    willing = session.tenants_with_peer(tenant)
    return tuple(
        Peering(spec.tenant, spec.block, carried(session, spec.tenant))
        for spec in wanted
        if spec.tenant in willing
        and (spec.tenant, VpcKind.PEERING, tenant) not in without
        and carried(session, spec.tenant)
    )
