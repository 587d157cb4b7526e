# SPDX-License-Identifier: Apache-2.0
"""create-outside, delete-outside and list-outsides: networks behind the tenants' gateways."""

import ipaddress
from collections.abc import Sequence
from dataclasses import replace

from vgpuctl.errors import UsageError
from vgpuctl.model.network import parse_address
from vgpuctl.model.vm import check_name
from vgpuctl.model.vpc import Outside
from vgpuctl.ovn.topology import outside_owner
from vgpuctl.usecases.network.network_backends import OVN_SUBJECT, locked, refuse_without_ovn
from vgpuctl.usecases.support.services import Services

_LARGEST_POOL = 65536


def set_outside(services: Services, outside: Outside) -> str:
    """Keep a network outside; tenants' gateways learn of a change with their next one, or by `repair`.

    Returns `created`, `changed` or `unchanged`. Raises UsageError, and StateError when held addresses would go.
    """
    outside = check_outside(outside)
    refuse_without_ovn(services, outside)
    with services.store.transaction() as session:
        outcome = session.set_outside(outside)
        if outcome != "unchanged":
            session.add_event(f"outside-{outcome}", outside.name, outside.cidr)
    return outcome


def delete_outside(services: Services, name: str) -> bool:
    """Delete a network outside. Returns False when it was gone. Raises StateError while tenants hold addresses."""
    with services.store.transaction() as session:
        deleted = session.delete_outside(name)
        if deleted:
            session.add_event("outside-deleted", name)
    if services.has_northbound:
        with locked(services, OVN_SUBJECT):
            services.northbound.apply({outside_owner(name): []})
    return deleted


def list_outsides(services: Services) -> Sequence[tuple[Outside, dict[str, str]]]:
    """Every network outside with its held addresses, address → tenant/holder."""
    with services.store.reading() as session:
        return [(outside, session.outside_addresses(outside.name)) for outside in session.outsides()]


def check_outside(outside: Outside) -> Outside:
    """Accept a network whose addresses fit together. Raises UsageError."""
    check_name(outside.name, what="outside network")
    check_name(outside.physical_network, what="physical network")
    for chassis in outside.chassis:
        check_name(chassis, what="chassis")
    subnet = _network(outside.cidr, what="--cidr")
    gateway, first, last = (
        parse_address(text, what=what)
        for text, what in (
            (outside.gateway, "--gateway"),
            (outside.first, "the pool's first address"),
            (outside.last, "the pool's last address"),
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
    management = tuple(str(_network(text, what="--management")) for text in outside.management)
    return replace(outside, cidr=str(subnet), gateway=gateway, first=first, last=last, management=management)


def _network(text: str, *, what: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(text)
    except ValueError as error:
        raise UsageError(f"{what} {text!a} is not an IPv4 network: {error}") from error
