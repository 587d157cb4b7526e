# SPDX-License-Identifier: Apache-2.0
"""What external networks announce by BGP: exactly what the store says belongs to tenants on them."""

import ipaddress
from collections.abc import Collection, Iterator
from dataclasses import replace

from vgpuctl.model.bgp import Announced, Announcement
from vgpuctl.model.vpc import ROUTER_HOLDER, ExternalNetwork, FloatingIp, Gateway, Vpc
from vgpuctl.model.vpc_kind import VpcKind
from vgpuctl.ovn.topology import external_owner
from vgpuctl.store.store import Session
from vgpuctl.usecases.network.bgp_speakers import speaker_places
from vgpuctl.usecases.network.chassis_aside import chassis_aside
from vgpuctl.usecases.observed.function_records import recorded_functions

Place = tuple[str, VpcKind, str]


def provider_vpcs(session: Session, *, without: Collection[Place] = ()) -> list[Vpc]:
    """One VPC for each external network that speaks BGP, or has: it has the speakers, and what they announce.

    without: objects of tenants that count as gone.
    """
    networks = {external_owner(one.name): one for one in session.external_networks() if one.bgp is not None}
    recorded = {row.tenant for rows in recorded_functions(session).values() for row in rows.values()}
    gone = {one for one in recorded if one.startswith(external_owner("")) and one not in networks}
    aside = chassis_aside(session)
    found = [Vpc(owner) for owner in sorted(gone)]  # without functions
    for owner, network in sorted(networks.items()):
        routes = tuple(announcements(session, network, without=without))
        vpc = Vpc(owner, external_network=network, aside=aside, announcements=routes)
        found.append(replace(vpc, functions=tuple(speaker_places(vpc))))
    return found


def announcements(
    session: Session, network: ExternalNetwork, *, without: Collection[Place] = ()
) -> Iterator[Announcement]:
    """The routes of one external network, each by the router of the tenant that has it."""
    assert network.bgp is not None
    held = {holder: address for address, holder in session.external_addresses(network.name).items()}
    for tenant in session.tenants():
        name = tenant.name
        gateways = [one for one in session.vpc_objects(name, Gateway) if (name, one.kind, one.key) not in without]
        if not any(one.external_network == network.name for one in gateways):
            continue
        router = held.get(f"{name}/{ROUTER_HOLDER}")
        router6 = session.external_address6(network, name, ROUTER_HOLDER)
        if Announced.FLOATING_IPS in network.bgp.announces:
            for spec in session.vpc_objects(name, FloatingIp):
                if (name, spec.kind, spec.key) in without:
                    continue
                for address, via in ((spec.address, router), (spec.address6, router6)):
                    if address and via:
                        yield Announcement(str(ipaddress.ip_network(address)), via)
        if Announced.ROUTED6 in network.bgp.announces and router6:
            for prefix in sorted(session.routed_prefixes(network, name)):
                yield Announcement(prefix, router6)
