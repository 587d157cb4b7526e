# SPDX-License-Identifier: Apache-2.0
"""show-external-network: the chassis that may carry tenants' gateways, and those that do."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.errors import VgpuctlError
from vgpuctl.guests.frr import BgpSession
from vgpuctl.model.bgp import Announcement
from vgpuctl.model.vpc import ROUTER_HOLDER, ExternalNetwork
from vgpuctl.ovn.gateways import chassis_order, gateway_port
from vgpuctl.ovn.southbound import GatewaysSeen
from vgpuctl.ovn.topology import speaker_place
from vgpuctl.usecases.network.announcements import announcements
from vgpuctl.usecases.network.chassis_aside import chassis_aside
from vgpuctl.usecases.network.chassis_hosts import hosts_of
from vgpuctl.usecases.network.gateways import look, users_of
from vgpuctl.usecases.observed.bgp_sessions import bgp_sessions
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class ShownChassis:
    """One chassis of an external network. host: of the inventory, None where none is it, or none was asked.

    in_ovn: whether OVN has a chassis of this name; None where it was not asked. is_aside: its host is drained or
    fenced. first_of: tenants whose gateway it is the first for. carries: the gateways that it carries, None as in_ovn.
    """

    name: str
    host: str | None
    in_ovn: bool | None
    is_aside: bool
    first_of: int
    carries: int | None


@dataclass(frozen=True)
class ShownGateway:
    """A tenant's gateway. chassis: in their order. carrier: the one that carries it, as OVN has it."""

    tenant: str
    address: str | None
    chassis: tuple[str, ...]
    carrier: str | None


@dataclass(frozen=True)
class ShownSpeaker:
    """A chassis that speaks BGP. sessions: as FRR has them. problem: why they are not known."""

    chassis: str
    address: str
    sessions: tuple[BgpSession, ...] = ()
    problem: str | None = None


@dataclass(frozen=True)
class ShownExternalNetwork:
    """An external network with its chassis and the gateways of tenants. held: tenants by their address.

    not_looked_at: why OVN's southbound database was not asked. findings: what is not as it should be. announcements: by
    BGP.
    """

    external_network: ExternalNetwork
    held: Mapping[str, str]
    chassis: tuple[ShownChassis, ...]
    gateways: tuple[ShownGateway, ...]
    not_looked_at: str | None
    findings: tuple[str, ...]
    speakers: tuple[ShownSpeaker, ...] = ()
    announcements: tuple[Announcement, ...] = ()


def show_external_network(services: Services, name: str) -> ShownExternalNetwork:
    """One external network. OVN is asked, and hosts that speak BGP for it. Raises NotFound."""
    with services.store.reading() as session:
        network = session.external_network(name)
        held = session.external_addresses(name)
        tenants, aside = users_of(session, network), chassis_aside(session)
        routes = tuple(announcements(session, network)) if network.bgp is not None else ()
    try:
        hosts: Mapping[str, str | None] | None = hosts_of(services, network.chassis)
    except VgpuctlError:
        hosts = None
    seen, why_not = look(services)
    addresses = {holder: address for address, holder in held.items()}
    gateways = tuple(
        ShownGateway(
            tenant,
            addresses.get(f"{tenant}/{ROUTER_HOLDER}"),
            tuple(chassis_order(tenant, network.chassis, aside)),
            None if seen is None else seen.carriers.get(gateway_port(tenant)),
        )
        for tenant in tenants
    )
    chassis = tuple(
        ShownChassis(
            one,
            None if hosts is None else hosts[one],
            None if seen is None else one in seen.chassis,
            one in aside,
            sum(gateway.chassis[0] == one for gateway in gateways),
            None if seen is None else sum(gateway.carrier == one for gateway in gateways),
        )
        for one in network.chassis
    )
    speakers = tuple(_speakers(services, network, hosts or {}, aside))
    findings = (
        *_of_chassis(chassis, knows_hosts=hosts is not None),
        *_of_gateways(gateways, seen),
        *_of_speakers(speakers),
    )
    return ShownExternalNetwork(network, held, chassis, gateways, why_not or None, findings, speakers, routes)


def _speakers(
    services: Services, network: ExternalNetwork, hosts: Mapping[str, str | None], aside: Collection[str]
) -> Iterator[ShownSpeaker]:
    """Ask the hosts of speakers that are in service for their sessions."""
    for one in () if network.bgp is None else network.bgp.speakers:
        host = hosts.get(one.chassis)
        if one.chassis in aside:
            yield ShownSpeaker(one.chassis, one.address, problem="its host is set aside")
            continue
        if host is None:
            yield ShownSpeaker(one.chassis, one.address, problem="no host of the inventory has it")
            continue
        try:
            sessions = bgp_sessions(services, host, speaker_place(network, one).name)
            yield ShownSpeaker(one.chassis, one.address, tuple(sessions))
        except VgpuctlError as error:
            yield ShownSpeaker(one.chassis, one.address, problem=error.message)


def _of_chassis(chassis: Sequence[ShownChassis], *, knows_hosts: bool) -> Iterator[str]:
    if not chassis:
        yield "no chassis is declared, so no gateway has a way out: give --chassis to `vgpuctl create-external-network`"
    for one in chassis:
        if knows_hosts and one.host is None:
            yield f"chassis {one.name}: no host of the inventory has it; declare another, or list its host again"
        if one.in_ovn is False:
            yield f"chassis {one.name}: OVN has none of this name; `vgpuctl check-hosts` looks at the host"
    able = [one for one in chassis if not one.is_aside and one.in_ovn is not False]
    if chassis and len(able) == 1:
        yield f"chassis {able[0].name}: no other one in service takes over when it fails"
    elif chassis and not able:
        yield "no chassis is in service: `vgpuctl uncordon-host` brings one back that is drained"


def _of_speakers(speakers: Sequence[ShownSpeaker]) -> Iterator[str]:
    for one in speakers:
        if one.problem is not None:
            yield f"BGP on {one.chassis}: {one.problem}"
        for session in one.sessions:
            if not session.is_up:
                yield f"BGP on {one.chassis}: the session with {session.neighbour} is down ({session.state})"


def _of_gateways(gateways: Sequence[ShownGateway], seen: GatewaysSeen | None) -> Iterator[str]:
    for one in gateways if seen is not None else ():
        first = one.chassis[0] if one.chassis else None
        if one.carrier is None:
            yield f"gateway of {one.tenant}: no chassis carries it"
        elif one.carrier != first:
            yield f"gateway of {one.tenant}: {one.carrier} carries it, and {first} is the first one"
