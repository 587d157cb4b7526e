# SPDX-License-Identifier: Apache-2.0
"""A tenant's VPC: from the store's rows to OVN's northbound database, in one transaction with its neighbours."""

from collections import Counter
from dataclasses import replace

from vgpuctl.model.network import Backend, Network, NetworkState
from vgpuctl.model.vpc import (
    DirectLine,
    FloatingAddress,
    Gateway,
    LoadBalancer,
    Peering,
    PeeringSpec,
    PortForward,
    SecurityGroup,
    Vpc,
    VpcKind,
    VpcPort,
)
from vgpuctl.ovn.topology import outside_owner, outside_rows, tenant_owner, vpc_rows
from vgpuctl.store.store import Session
from vgpuctl.usecases.services import Services
from vgpuctl.usecases.tunnel_mtu import tunnel_mtu

ROUTER_HOLDER = f"{VpcKind.GATEWAY}/gateway"


def read_vpc(session: Session, tenant: str, *, without_vm: str | None = None) -> Vpc:
    """Everything of a tenant that OVN carries. without_vm: a VM whose port counts as gone already."""
    networks = carried(session, tenant)
    names = {vm.uuid: vm.request for vm in session.vms(tenant=tenant)}
    ports = [
        VpcPort(port, names[port.vm_uuid].name, names[port.vm_uuid].security_groups, names[port.vm_uuid].bandwidth_mbps)
        for network in networks
        for port in session.ports(network_id=network.id)
        if port.vm_uuid != without_vm and port.vm_uuid in names
    ]
    vpc = Vpc(
        tenant,
        networks,
        tuple(ports),
        tuple(session.vpc_objects(tenant, SecurityGroup)),
        floating=tuple(session.vpc_objects(tenant, FloatingAddress)),
        forwards=tuple(session.vpc_objects(tenant, PortForward)),
        balancers=tuple(session.vpc_objects(tenant, LoadBalancer)),
        lines=tuple(session.vpc_objects(tenant, DirectLine)),
        peerings=_peerings(session, tenant),
        mtu=tunnel_mtu(session),
    )
    for gateway in session.vpc_objects(tenant, Gateway):
        outside = session.outside(gateway.outside)
        return replace(
            vpc, outside=outside, router_address=session.hold_outside_address(outside, tenant, ROUTER_HOLDER)
        )
    return vpc


def carried(session: Session, tenant: str) -> tuple[Network, ...]:
    """The tenant's networks that OVN carries, without those being deleted."""
    return tuple(
        network
        for network in session.networks(tenant=tenant)
        if network.request.backend is Backend.OVN and network.state is not NetworkState.DELETING
    )


def apply_vpc(services: Services, tenant: str, *, without_vm: str | None = None, dry_run: bool = False) -> list[str]:
    """Make OVN's rows of a tenant, and of its neighbours, what the store says now. Call it within `locked`.

    Returns what had to be done, in a few words; nothing when all was so. Raises OvnUnreachable and OvnRefused; then
    nothing was changed.
    """
    with services.store.reading() as session:
        vpcs = [read_vpc(session, tenant, without_vm=without_vm)]
        known = set(session.vpc_objects(tenant, PeeringSpec))
        neighbours = {spec.tenant for spec in known} | set(session.tenants_with_peer(tenant))
        there = {one.name for one in session.tenants()}
        vpcs += [read_vpc(session, neighbour) for neighbour in sorted(neighbours & there)]
    wanted = {outside_owner(vpc.outside.name): outside_rows(vpc.outside) for vpc in vpcs if vpc.outside is not None}
    wanted |= {tenant_owner(vpc.tenant): vpc_rows(vpc) for vpc in vpcs}
    counts = Counter(change.word for change in services.northbound.apply(wanted, dry_run=dry_run))
    return [f"{counts[word]} rows {word}" for word in ("created", "changed", "removed") if counts[word]]


def _peerings(session: Session, tenant: str) -> tuple[Peering, ...]:
    """Neighbours that both sides want."""
    willing = session.tenants_with_peer(tenant)
    return tuple(
        Peering(spec.tenant, spec.block, carried(session, spec.tenant))
        for spec in session.vpc_objects(tenant, PeeringSpec)
        if spec.tenant in willing and carried(session, spec.tenant)
    )
