# SPDX-License-Identifier: Apache-2.0
"""What belongs to a tenant's networks: checked, given its addresses, and kept in the store; see vpc for OVN's part."""

from dataclasses import replace

from vgpuctl.errors import NetworkInUse, NotFound, StateError, UsageError
from vgpuctl.model.network import Network
from vgpuctl.model.vpc import (
    DEFAULT_GROUP,
    Contact,
    DirectConnect,
    FloatingIp,
    Gateway,
    LoadBalancer,
    PeeringSpec,
    PortForward,
    SecurityGroup,
    VpcSpec,
)
from vgpuctl.store.store import Session
from vgpuctl.usecases.network.vpc import ROUTER_HOLDER, carried

LAST_BLOCK = (1 << 14) - 1


def is_same(there: VpcSpec, wanted: VpcSpec) -> bool:
    """Whether an object of the store is the one that is wanted, whatever addresses it was given."""
    return without_given(there) == without_given(wanted)


def without_given(spec: VpcSpec) -> VpcSpec:
    """The object as it is asked for: without what the store gives it."""
    if isinstance(spec, FloatingIp | PortForward | LoadBalancer):
        return replace(spec, address="")
    if isinstance(spec, PeeringSpec):
        return replace(spec, block=-1)
    return spec


KINDS: tuple[type[VpcSpec], ...] = (
    Contact,
    Gateway,
    SecurityGroup,
    DirectConnect,
    LoadBalancer,
    FloatingIp,
    PortForward,
    PeeringSpec,
)


def all_objects(session: Session, tenant: str) -> list[VpcSpec]:
    """Every object of a tenant, in an order in which they can be made."""
    return [spec for kind in KINDS for spec in session.vpc_objects(tenant, kind)]


def set_object(session: Session, tenant: str, wanted: VpcSpec) -> str:
    """Keep one object in the caller's transaction, with the addresses it needs.

    Returns `created`, `changed` or `unchanged`. Raises NotFound, UsageError, NetworkInUse and AddressesExhausted.
    """
    return session.set_vpc_object(tenant, _with_given(session, tenant, wanted))


def _with_given(session: Session, tenant: str, wanted: VpcSpec) -> VpcSpec:
    if isinstance(wanted, Contact):
        return wanted
    if isinstance(wanted, SecurityGroup):
        return _check_group(session, tenant, wanted)
    if isinstance(wanted, Gateway):
        _refuse_other_network(session, tenant, wanted)
        session.hold_external_address(session.external_network(wanted.external_network), tenant, ROUTER_HOLDER)
        return wanted
    if isinstance(wanted, FloatingIp):
        external = session.external_network(_gateway(session, tenant, wanted).external_network)
        holder = f"{wanted.kind}/{wanted.key}"
        return replace(wanted, address=session.hold_external_address(external, tenant, holder))
    if isinstance(wanted, PortForward):
        external = session.external_network(_gateway(session, tenant, wanted).external_network)
        return replace(wanted, address=session.hold_external_address(external, tenant, ROUTER_HOLDER))
    if isinstance(wanted, LoadBalancer):
        network = _network(session, tenant, wanted.network)
        return replace(wanted, address=session.hold_network_address(network, f"{wanted.kind}/{wanted.key}"))
    if isinstance(wanted, DirectConnect):
        _network(session, tenant, wanted.network)
        return wanted
    return _with_block(session, tenant, wanted)


def _check_group(session: Session, tenant: str, group: SecurityGroup) -> SecurityGroup:
    known = {one.name for one in session.vpc_objects(tenant, SecurityGroup)} | {group.name, DEFAULT_GROUP}
    for rule in group.rules:
        if rule.source_group is not None and rule.source_group not in known:
            raise NotFound(
                f"security group {group.name} of tenant {tenant} lets in group {rule.source_group}, which is not there",
                hint=f"its groups are {', '.join(sorted(known))}",
            )
    return group


def _refuse_other_network(session: Session, tenant: str, wanted: Gateway) -> None:
    for there in session.vpc_objects(tenant, Gateway):
        if there.external_network != wanted.external_network:
            raise StateError(
                f"the gateway of tenant {tenant} leads to {there.external_network}, not to {wanted.external_network}",
                hint="delete its gateway and its floating IPs first",
            )


def _gateway(session: Session, tenant: str, what: VpcSpec) -> Gateway:
    for gateway in session.vpc_objects(tenant, Gateway):
        return gateway
    raise StateError(
        f"{what.kind} {what.key} of tenant {tenant} needs a gateway",
        hint="create one first with `vgpuctl create-gateway`",
    )


def _network(session: Session, tenant: str, name: str) -> Network:
    network = session.network(tenant, name)
    if network not in carried(session, tenant):
        raise UsageError(f"network {network.label} is not carried by OVN", hint="create it with --backend ovn")
    return network


def _with_block(session: Session, tenant: str, wanted: PeeringSpec) -> PeeringSpec:
    if wanted.tenant == tenant:
        raise UsageError(f"tenant {tenant} cannot be its own neighbour")
    refuse_overlapping_neighbours(carried(session, tenant), carried(session, wanted.tenant))
    blocks = session.peering_blocks()
    block = blocks.get(frozenset((tenant, wanted.tenant)))
    if block is None:
        taken = set(blocks.values())
        block = next(number for number in range(LAST_BLOCK + 1) if number not in taken)
    return replace(wanted, block=block)


def refuse_overlapping_neighbours(ours: tuple[Network, ...], theirs: tuple[Network, ...]) -> None:
    """Raise NetworkInUse when neighbours' routed networks share addresses."""
    for one in ours:
        for other in theirs:
            both_routed = not (one.request.isolated or other.request.isolated)
            if both_routed and one.subnet.overlaps(other.subnet):
                raise NetworkInUse(
                    f"network {one.label} ({one.request.cidr}) overlaps with {other.label} ({other.request.cidr}) of a "
                    "neighbour",
                    hint="peered tenants cannot share addresses",
                )
