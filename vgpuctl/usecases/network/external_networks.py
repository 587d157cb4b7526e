# SPDX-License-Identifier: Apache-2.0
"""The external networks that tenants' gateways lead to: declared, listed, deleted while nobody holds an address."""

import ipaddress
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from itertools import combinations

import msgspec

from vgpuctl.errors import StateError, UsageError
from vgpuctl.model.bgp import check_bgp
from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.network import PREFIX6, is_ipv6, overlap, parse_address, parse_address6, read_subnet6, unusable6
from vgpuctl.model.vpc import ExternalNetwork, Gateway
from vgpuctl.store.store import Session
from vgpuctl.usecases.found.deletion import Deletion
from vgpuctl.usecases.running.services import Services

_LARGEST_POOL = 65536
_LONGEST_PROVIDER6 = 126
_OF_IPV6 = {"cidr6": "--cidr6", "gateway6": "--gateway6", "first6": "--pool6"}


def create_external_network(services: Services, network: ExternalNetwork) -> str:
    """Store an external network; a change reaches tenants' gateways with their next change, or by `repair`.

    Returns `created`, `changed` or `unchanged`. Raises UsageError, and StateError when held addresses would go.
    """
    # A list needs no backends.
    from vgpuctl.usecases.network.network_backends import refuse_without_ovn
    from vgpuctl.usecases.network.vpn_refusals import refuse_provider_of_vpn

    network = checked(network)
    refuse_without_ovn(services, network)
    with services.store.transaction() as session:
        known = session.external_networks()
        before = next((one for one in known if one.name == network.name), None)
        refuse_shared_addresses(network, known)
        if before is not None and before != network:
            _refuse_tenants_addresses(session, network, is_moved=before.subnets != network.subnets)
        refuse_provider_of_vpn(session, network)
        outcome = session.set_external_network(network)
        if outcome != "unchanged":
            kind = EventKind(f"external-network-{outcome}")
            was = None if before is None else values_of(before)
            session.add_event(kind, network.name, before=was, after=values_of(network))
    if network.bgp is not None or (before is not None and before.bgp is not None):
        _apply_bgp(services)
    return outcome


def _apply_bgp(services: Services) -> None:
    """Bring the speakers of external networks to what the store says. Raises OvnUnreachable; hosts are only told of."""
    from vgpuctl.usecases.network.network_backends import OVN_SUBJECT, locked
    from vgpuctl.usecases.network.vpc import apply_vpcs, in_words

    services.require_northbound()
    with locked(services, OVN_SUBJECT):
        for change in apply_vpcs(services, (), dry_run=services.rehearsal is not None):
            services.say(in_words(change))


def _refuse_tenants_addresses(session: Session, network: ExternalNetwork, *, is_moved: bool) -> None:
    """Raise NetworkInUse if a tenant with a gateway to the external network has its addresses, or a route to them.

    is_moved: its own addresses change.
    """
    from vgpuctl.usecases.network.routes import refuse_unfit_routes
    from vgpuctl.usecases.network.vpc import carried
    from vgpuctl.usecases.network.vpc_addresses import refuse_overlapping_outside

    for tenant in session.tenants():
        gateways = session.vpc_objects(tenant.name, Gateway)
        if any(gateway.external_network == network.name for gateway in gateways):
            if is_moved:
                refuse_overlapping_outside(carried(session, tenant.name), network)
            refuse_unfit_routes(session, tenant.name, external=network)


def refuse_shared_addresses(network: ExternalNetwork, known: Iterable[ExternalNetwork]) -> None:
    """Refuse a pool that holds addresses of another external network of the same wire. Raises StateError.

    Two networks may have one gateway and one CIDR: then each has its own part of the addresses.
    """
    low, high = _range(network)
    for other in known:
        _refuse_shared6(network, other)
        is_same_wire = (other.physical_network, other.vlan) == (network.physical_network, network.vlan)
        if other.name == network.name or not is_same_wire:
            continue
        first, last = _range(other)
        if first <= high and low <= last:
            raise StateError(
                f"the pool {network.first}-{network.last} has addresses of {other.name}'s, {other.first}-{other.last}",
                hint="an address can be one tenant's alone: give each external network its own part",
            )
        for owner, lowest, highest in ((other, low, high), (network, first, last)):
            for what, address in _own_addresses(owner):
                if lowest <= int(ipaddress.IPv4Address(address)) <= highest:
                    raise StateError(
                        f"{address}, the {what} of {owner.name}, is in the pool of another external network"
                    )


def _own_addresses(network: ExternalNetwork) -> list[tuple[str, str]]:
    """Addresses of an external network that are no tenant's, each with what it is."""
    bgp = network.bgp
    speakers = () if bgp is None else tuple(("BGP speaker", one.address) for one in bgp.speakers)
    neighbours = () if bgp is None else tuple(("BGP neighbour", one.address) for one in bgp.neighbours)
    return [("gateway", network.gateway), *speakers, *neighbours]


def _refuse_shared6(network: ExternalNetwork, other: ExternalNetwork) -> None:
    """The same of IPv6, where also nobody's own network or prefix is one that another routes to tenants."""
    if other.name == network.name:
        return
    for prefix in network.routed6:
        for theirs in other.routed6:
            if ipaddress.IPv6Network(prefix).overlaps(ipaddress.IPv6Network(theirs)):
                raise StateError(
                    f"{prefix} overlaps with {theirs}, which external network {other.name} routes to tenants",
                    hint="a prefix is routed to one external network: give each its own part",
                )
    for router, provider in ((network, other), (other, network)):
        for prefix in router.routed6:
            if overlap([ipaddress.IPv6Network(prefix)], provider.subnets):
                raise StateError(
                    f"{prefix}, which external network {router.name} routes to tenants, overlaps with {provider.cidr6},"
                    f" external network {provider.name} itself",
                    hint="a tenant could take addresses of the provider: route another prefix",
                )
    is_same_wire = (other.physical_network, other.vlan) == (network.physical_network, network.vlan)
    pool, theirs6 = _range6(network), _range6(other)
    if not is_same_wire or pool is None or theirs6 is None:
        return
    if theirs6[0] <= pool[1] and pool[0] <= theirs6[1]:
        raise StateError(
            f"the pool {network.first6}-{network.last6} has addresses of {other.name}'s, {other.first6}-{other.last6}",
            hint="an address can be one tenant's alone: give each external network its own part",
        )
    for owner, gateway, (lowest, highest) in (
        (other.name, other.gateway6, pool),
        (network.name, network.gateway6, theirs6),
    ):
        if gateway is not None and lowest <= int(ipaddress.IPv6Address(gateway)) <= highest:
            raise StateError(f"{gateway}, the gateway of {owner}, is in the pool of another external network")


def _range6(network: ExternalNetwork) -> tuple[int, int] | None:
    if network.first6 is None or network.last6 is None:
        return None
    return int(ipaddress.IPv6Address(network.first6)), int(ipaddress.IPv6Address(network.last6))


def _range(network: ExternalNetwork) -> tuple[int, int]:
    return int(ipaddress.IPv4Address(network.first)), int(ipaddress.IPv4Address(network.last))


def values_of(network: ExternalNetwork) -> Values:
    """The values of an external network for its events."""
    found = asdict(replace(network, bgp=None))
    if network.bgp is not None:
        found["bgp"] = msgspec.json.encode(network.bgp).decode()
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def checked(network: ExternalNetwork) -> ExternalNetwork:
    """Accept a network whose addresses fit together. Raises UsageError."""
    subnet = _network(network.cidr, what="--cidr")
    gateway, first, last = (
        parse_address(text, what=what)
        for text, what in (
            (network.gateway, "--gateway"),
            (network.first, "the pool's first address"),
            (network.last, "the pool's last address"),
        )
    )
    low, high = (int(ipaddress.IPv4Address(address)) for address in (first, last))
    for address in (gateway, first, last):
        if ipaddress.IPv4Address(address) not in subnet:
            raise UsageError(f"{address} is not in {subnet}")
    if not low <= high or high - low >= _LARGEST_POOL:
        raise UsageError(f"the pool {first}-{last} is empty or larger than {_LARGEST_POOL} addresses")
    if low <= int(ipaddress.IPv4Address(gateway)) <= high or low == int(subnet.network_address):
        raise UsageError(f"the pool {first}-{last} holds the gateway's or the network's own address")
    twice = [name for name, count in Counter(network.chassis).items() if count > 1]
    if twice:
        raise UsageError(f"--chassis names {', '.join(twice)} twice; each gateway is one host's")
    management = tuple(str(_any_network(text, what="--management")) for text in network.management)
    network = replace(network, cidr=str(subnet), gateway=gateway, first=first, last=last, management=management)
    if network.bgp is not None:
        check_bgp(network.bgp, cidr=network.cidr, gateway=gateway, pool=(first, last), chassis=network.chassis)
    return _checked6(network)


def _checked6(network: ExternalNetwork) -> ExternalNetwork:
    """The same of IPv6: a network, a gateway and a pool, or none of them. Raises UsageError."""
    routed = tuple(str(_network6(text, what="--routed6", longest=PREFIX6)) for text in network.routed6)
    missing = [flag for name, flag in _OF_IPV6.items() if getattr(network, name) is None]
    if len(missing) == len(_OF_IPV6) and not routed:
        return network
    if missing or network.cidr6 is None or network.gateway6 is None or not network.first6 or not network.last6:
        raise UsageError(
            f"external network {network.name} has IPv6 in part: {', '.join(missing)} is missing",
            hint="give --cidr6, --gateway6 and --pool6 together, or none of them and no --routed6",
        )
    subnet = _network6(network.cidr6, what="--cidr6", longest=_LONGEST_PROVIDER6)
    gateway = _gateway6(network.gateway6)
    first, last = (
        parse_address6(text, what=what)
        for text, what in (
            (network.first6, "the first address of --pool6"),
            (network.last6, "the last address of --pool6"),
        )
    )
    is_link_local = ipaddress.IPv6Address(gateway).is_link_local
    for address in (first, last) if is_link_local else (gateway, first, last):
        if ipaddress.IPv6Address(address) not in subnet:
            raise UsageError(f"{address} is not in {subnet}")
    low, high = (int(ipaddress.IPv6Address(address)) for address in (first, last))
    if not low <= high or high - low >= _LARGEST_POOL:
        raise UsageError(f"the pool {first}-{last} is empty or larger than {_LARGEST_POOL} addresses")
    if low <= int(ipaddress.IPv6Address(gateway)) <= high or low == int(subnet.network_address):
        raise UsageError(f"the pool {first}-{last} holds the gateway's or the network's own address")
    for prefix in routed:
        if ipaddress.IPv6Network(prefix).overlaps(subnet):
            raise UsageError(
                f"--routed6 {prefix} overlaps with {subnet}, the external network itself",
                hint="the provider routes another prefix to the tenants' gateways",
            )
    for one, another in combinations(routed, 2):
        if ipaddress.IPv6Network(one).overlaps(ipaddress.IPv6Network(another)):
            raise UsageError(f"--routed6 {one} overlaps with --routed6 {another}", hint="give each prefix once")
    return replace(network, cidr6=str(subnet), gateway6=gateway, first6=first, last6=last, routed6=routed)


def _gateway6(text: str) -> str:
    """The address of the provider's router: routers often have no other than a link-local one."""
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError as error:
        raise UsageError(f"--gateway6 {text!a} is not an IPv6 address") from error
    if address.is_link_local and address.scope_id is None:
        return str(address)  # with a zone, parse_address6 refuses it
    return parse_address6(text, what="--gateway6")


def _network6(text: str, *, what: str, longest: int) -> ipaddress.IPv6Network:
    try:
        subnet = read_subnet6(text)
    except ValueError as error:
        raise UsageError(f"{what} {text!a} is not an IPv6 network: {error}") from error
    if kind := unusable6(subnet):
        raise UsageError(f"{what} {text}: {kind}")
    if subnet.prefixlen > longest:
        raise UsageError(f"{what} {text}: /{subnet.prefixlen} is too small", hint=f"/{longest} or shorter")
    return subnet


def _any_network(text: str, *, what: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        subnet = read_subnet6(text) if is_ipv6(text) else ipaddress.IPv4Network(text)
    except ValueError as error:
        raise UsageError(f"{what} {text!a} is not a network: {error}") from error
    if subnet.network_address.version == 6 and subnet.network_address.ipv4_mapped is not None:
        raise UsageError(
            f"{what} {text}: these are IPv4 addresses in IPv6's notation, which no network carries",
            hint="write the IPv4 network itself",
        )
    return subnet


def _network(text: str, *, what: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(text)
    except ValueError as error:
        raise UsageError(f"{what} {text!a} is not an IPv4 network: {error}") from error


def list_external_networks(services: Services) -> Sequence[tuple[ExternalNetwork, dict[str, str]]]:
    """Every external network with its held addresses, address → tenant/holder."""
    with services.store.reading() as session:
        return [(network, session.external_addresses(network.name)) for network in session.external_networks()]


def delete_external_network(services: Services, network: ExternalNetwork) -> None:
    """Delete an external network. Raises StateError while tenants hold addresses.

    OVN is connected before anything is deleted: UsageError where it was not named, OvnError where it does not answer.
    Where the connection is lost after that, the rows of OVN stay, and `gc` removes them.
    """
    from vgpuctl.ovn.topology import external_owner
    from vgpuctl.usecases.network.network_backends import OVN_SUBJECT, locked

    northbound = services.require_northbound()
    with services.store.transaction() as session:
        if session.delete_external_network(network.name):
            session.add_event(EventKind.EXTERNAL_NETWORK_DELETED, network.name, before=values_of(network))
    with locked(services, OVN_SUBJECT):
        northbound.apply({external_owner(network.name): []})
    if network.bgp is not None:
        _apply_bgp(services)


DELETION = Deletion(
    find=lambda session, _tenant, name: session.external_network(name),
    names=lambda session, _tenant: [one.name for one in session.external_networks()],
    printed=lambda one: one.name,
    describe=lambda network: f"external network {network.name}: {network.cidr}",
    delete=delete_external_network,
)
