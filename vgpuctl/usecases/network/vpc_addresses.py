# SPDX-License-Identifier: Apache-2.0
"""Objects of a tenant's VPC in the store: checks of the names in them, and the addresses that they hold."""

from collections.abc import Iterable
from dataclasses import replace

from vgpuctl.errors import NetworkInUse, NotFound, StateError, UsageError
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.network import AddressKind, Network, is_ipv6, overlap
from vgpuctl.model.vpc import (
    DEFAULT_GROUP,
    ROUTER_HOLDER,
    AddressGroup,
    DirectConnect,
    ExternalNetwork,
    FloatingIp,
    Gateway,
    PeeringSpec,
    PortForward,
    Route,
    SecurityGroup,
    VpcSpec,
)
from vgpuctl.model.vpn import VpnConnection
from vgpuctl.ovn.certificate_pairs import check_pair
from vgpuctl.specs.vpc_objects import KINDS
from vgpuctl.store.store import Session
from vgpuctl.store.vpcs import MOST_INSTANCES, instance_holder
from vgpuctl.usecases.network.routes import refuse_unfit_route
from vgpuctl.usecases.network.vpc import carried
from vgpuctl.usecases.network.vpn_keys import with_keys
from vgpuctl.usecases.network.vpn_refusals import (
    refuse_forwarded_port,
    refuse_peer_of_vpn,
    refuse_unusable_network,
    refuse_vpn,
)

LAST_BLOCK = (1 << 14) - 1


def all_objects(session: Session, tenant: str) -> list[VpcSpec]:
    """Every object of a tenant, in an order in which they can be created."""
    return [spec for kind in KINDS for spec in session.vpc_objects(tenant, kind.model)]


def set_object(session: Session, tenant: str, wanted: VpcSpec) -> str:
    """Store one object in the caller's transaction, with the addresses it needs.

    Returns `created`, `changed` or `unchanged`. Raises NotFound, UsageError, NetworkInUse and AddressesExhausted.
    """
    outcome = session.set_vpc_object(tenant, _with_given(session, tenant, wanted))
    if isinstance(wanted, LoadBalancer) and wanted.private_key is not None and wanted.private_key.has_content():
        session.set_object_secret(tenant, wanted.kind, wanted.key, wanted.private_key)
    return outcome


def _with_given(session: Session, tenant: str, wanted: VpcSpec) -> VpcSpec:
    """The object with the addresses that the store gives it, after its names were looked up."""
    match wanted:
        case SecurityGroup():
            _refuse_unknown_groups(session, tenant, wanted)
        case DirectConnect():
            _network(session, tenant, wanted.network)
        case Gateway():
            _refuse_other_network(session, tenant, wanted)
            refuse_overlapping_outside(carried(session, tenant), session.external_network(wanted.external_network))
            _external_address(session, tenant, wanted, ROUTER_HOLDER)
            _external_address6(session, tenant, wanted, ROUTER_HOLDER)
        case FloatingIp():
            holder = f"{wanted.kind}/{wanted.key}"
            gateway = _gateway(session, tenant, wanted)
            address = _external_address(session, tenant, gateway, holder)
            return replace(wanted, address=address, address6=_external_address6(session, tenant, gateway, holder))
        case PortForward():
            refuse_forwarded_port(session, tenant, wanted)
            gateway = _gateway(session, tenant, wanted)
            address = _external_address(session, tenant, gateway, ROUTER_HOLDER)
            address6 = _external_address6(session, tenant, gateway, ROUTER_HOLDER)
            return replace(wanted, address=address, address6=address6)
        case LoadBalancer():
            return _balancer(session, tenant, wanted)
        case Route():
            refuse_unfit_route(session, tenant, wanted)
        case PeeringSpec():
            return replace(wanted, block=_block(session, tenant, wanted))
        case VpnConnection():
            return with_keys(session, tenant, _with_tunnel_ends(session, tenant, wanted))
    return wanted


def _with_tunnel_ends(session: Session, tenant: str, wanted: VpnConnection) -> VpnConnection:
    """The VPN connection with the addresses of its function, and those at which the other site reaches it."""
    network, gateway = _network(session, tenant, wanted.network), _gateway(session, tenant, wanted)
    external = session.external_network(gateway.external_network)
    refuse_unusable_network(wanted, network, external)
    refuse_vpn(session, tenant, wanted)
    holder = f"{wanted.kind}/{wanted.key}"
    addresses = session.hold_network_addresses(network, holder, kind=AddressKind.FUNCTION)
    return replace(
        wanted,
        address=addresses[0],
        address6=next(filter(is_ipv6, addresses), ""),
        external_address=_external_address(session, tenant, gateway, ROUTER_HOLDER),
        external_address6=_external_address6(session, tenant, gateway, ROUTER_HOLDER),
    )


def _balancer(session: Session, tenant: str, wanted: LoadBalancer) -> LoadBalancer:
    network = _network(session, tenant, wanted.network)
    holder = f"{wanted.kind}/{wanted.key}"
    addresses = session.hold_network_addresses(network, holder)
    instances: tuple[tuple[str, ...], ...] = ()
    if wanted.protocol.is_http():
        _gateway(session, tenant, wanted)  # its external network says which hosts may have the instances
        numbers = range(1, MOST_INSTANCES + 1)
        holders = [instance_holder(holder, number) for number in numbers]
        instances = tuple(tuple(session.hold_network_addresses(network, one)) for one in holders)
        _check_certificate(session, tenant, wanted)
    else:
        session.drop_network_addresses(tenant, holder, only_instances=True)
    address6 = next(filter(is_ipv6, addresses), "")
    return replace(wanted, address=addresses[0], address6=address6, instances=instances)


def _check_certificate(session: Session, tenant: str, wanted: LoadBalancer) -> None:
    """Raise UsageError for a new certificate that no server can use with its key. One that is there may expire."""
    for there in session.vpc_objects(tenant, LoadBalancer):
        if (there.key, there.certificate, there.private_key) == (wanted.key, wanted.certificate, wanted.private_key):
            return
    if wanted.private_key is None:
        return
    if not wanted.private_key.has_content():
        raise UsageError(
            f"load balancer {wanted.name} of tenant {tenant} gets a new certificate without its private key",
            hint="give --certificate FILE and --key FILE together",
        )
    what = f"load balancer {wanted.name} of tenant {tenant}"
    check_pair(wanted.certificate, wanted.private_key.reveal(), now=session.now(), what=what)


def _external_address(session: Session, tenant: str, gateway: Gateway, holder: str) -> str:
    return session.hold_external_address(session.external_network(gateway.external_network), tenant, holder)


def _external_address6(session: Session, tenant: str, gateway: Gateway, holder: str) -> str:
    """The IPv6 address, "" where the external network has no IPv6."""
    return session.hold_external_address6(session.external_network(gateway.external_network), tenant, holder) or ""


def _refuse_unknown_groups(session: Session, tenant: str, group: SecurityGroup) -> None:
    known = {one.name for one in session.vpc_objects(tenant, SecurityGroup)} | {group.name, DEFAULT_GROUP}
    addresses = {one.name for one in session.vpc_objects(tenant, AddressGroup)}
    for rule in group.rules:
        if rule.source_group is not None and rule.source_group not in known:
            raise NotFound(
                f"a rule of security group {group.name} of tenant {tenant} names group {rule.source_group}, which does "
                "not exist",
                hint=f"the groups are {', '.join(sorted(known))}",
            )
        if rule.address_group is not None and rule.address_group not in addresses:
            raise NotFound(
                f"a rule of security group {group.name} of tenant {tenant} names address group {rule.address_group}, "
                "which does not exist",
                hint=f"the address groups are {', '.join(sorted(addresses))}"
                if addresses
                else "create it with `vgpuctl create-address-group`",
            )


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
        raise UsageError(f"network {network.printed_name} is not carried by OVN", hint="create it with --backend ovn")
    return network


def _block(session: Session, tenant: str, wanted: PeeringSpec) -> int:
    """The number of the /30 that joins two tenants: the one they have, or the lowest free one."""
    if wanted.tenant == tenant:
        raise UsageError(f"tenant {tenant} cannot have a peering with itself")
    refuse_overlapping_peers(carried(session, tenant), carried(session, wanted.tenant))
    refuse_peer_of_vpn(session, tenant, wanted.tenant)
    blocks = session.peering_blocks()
    free = (number for number in range(LAST_BLOCK + 1) if number not in blocks.values())
    block = blocks.get(frozenset((tenant, wanted.tenant)))
    return next(free) if block is None else block


def refuse_overlapping_outside(networks: Iterable[Network], external: ExternalNetwork) -> None:
    """Raise NetworkInUse if a network has addresses of the external network that its tenant's gateway leads to.

    The tenant's router answers there for the balancers of each network that overlaps: ARP and neighbour discovery of
    addresses of the provider and of other tenants.
    """
    for network in networks:
        if overlap(network.subnets, external.subnets):
            outside = ", ".join(map(str, external.subnets))
            raise NetworkInUse(
                f"network {network.printed_name} ({network.request.cidrs}) overlaps with {outside}, the external"
                f" network {external.name} of its tenant's gateway",
                hint="addresses of an external network are the provider's: choose other addresses",
            )


def refuse_overlapping_peers(ours: tuple[Network, ...], theirs: tuple[Network, ...]) -> None:
    """Raise NetworkInUse if routed networks of two peered tenants overlap."""
    for one in ours:
        for other in theirs:
            both_routed = not (one.request.isolated or other.request.isolated)
            if both_routed and one.overlaps(other):
                raise NetworkInUse(
                    f"network {one.printed_name} ({one.request.cidrs}) overlaps with "
                    f"{other.printed_name} ({other.request.cidrs}) of a "
                    "peered tenant",
                    hint="networks of peered tenants cannot overlap: choose other addresses",
                )
