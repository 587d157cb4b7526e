# SPDX-License-Identifier: Apache-2.0
"""create-external-network: the network that tenants' gateways lead to."""

import ipaddress
from dataclasses import asdict, replace

from vgpuctl.errors import UsageError
from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.network import parse_address
from vgpuctl.model.vpc import ExternalNetwork
from vgpuctl.usecases.network.network_backends import refuse_without_ovn
from vgpuctl.usecases.support.services import Services

_LARGEST_POOL = 65536


def create_external_network(services: Services, network: ExternalNetwork) -> str:
    """Store an external network; a change reaches tenants' gateways with their next change, or by `repair`.

    Returns `created`, `changed` or `unchanged`. Raises UsageError, and StateError when held addresses would go.
    """
    network = _checked(network)
    refuse_without_ovn(services, network)
    with services.store.transaction() as session:
        before = next((one for one in session.external_networks() if one.name == network.name), None)
        outcome = session.set_external_network(network)
        if outcome != "unchanged":
            kind = EventKind(f"external-network-{outcome}")
            was = None if before is None else values_of(before)
            session.add_event(kind, network.name, before=was, after=values_of(network))
    return outcome


def values_of(network: ExternalNetwork) -> Values:
    """The values of an external network for its events."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(network).items()}


def _checked(network: ExternalNetwork) -> ExternalNetwork:
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
    management = tuple(str(_network(text, what="--management")) for text in network.management)
    return replace(network, cidr=str(subnet), gateway=gateway, first=first, last=last, management=management)


def _network(text: str, *, what: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(text)
    except ValueError as error:
        raise UsageError(f"{what} {text!a} is not an IPv4 network: {error}") from error
