# SPDX-License-Identifier: Apache-2.0
"""Tenants' gateways and the hosts that carry them: off a host that is drained or dead, and back on it."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vgpuctl.errors import UsageError, VgpuctlError
from vgpuctl.model.plural import counted
from vgpuctl.model.vpc import ExternalNetwork, Gateway
from vgpuctl.ovn.gateways import chassis_order, gateway_port
from vgpuctl.usecases.network.chassis_aside import chassis_aside, end_aside, set_aside
from vgpuctl.usecases.network.chassis_hosts import chassis_of, hosts_of
from vgpuctl.usecases.network.network_backends import OVN_SUBJECT, locked
from vgpuctl.usecases.network.vpc import apply_vpcs, carried, in_words
from vgpuctl.usecases.running.services import Services

if TYPE_CHECKING:
    from vgpuctl.ovn.southbound import GatewaysSeen
    from vgpuctl.store.store import Session

MOVED, STAY, LEFT = "moved", "stay", "left"
_LIMIT_S = 20.0
"""ovn-controller needs a second or two; it does not wait for BFD when priorities change."""


@dataclass(frozen=True)
class GatewayMove:
    """What becomes of the gateways to one external network when a host leaves.

    to: the chassis that are first now, for the tenants that the host's chassis was first for. outcome: `moved`, `stay`
    where no other chassis can carry them and that is accepted, `left` where it is not, or `failed: why`.
    """

    external_network: str
    to: tuple[str, ...]
    outcome: str
    reason: str | None = None

    @property
    def has_failed(self) -> bool:
        """True if OVN did not do what was asked."""
        return self.outcome.startswith("failed")


def users_of(session: "Session", network: ExternalNetwork) -> list[str]:
    """The tenants whose gateway leads to an external network, and which OVN has a router for."""
    return [
        tenant.name
        for tenant in session.tenants()
        if any(one.external_network == network.name for one in session.vpc_objects(tenant.name, Gateway))
        and carried(session, tenant.name)
    ]


def leave_gateways(services: Services, host: str, *, accepts: bool) -> list[GatewayMove]:
    """Make another chassis the first one of every gateway that a host's chassis is the first of; nothing when it is so.

    It stays in the group as the last one. accepts: gateways may stay on a host that is the only one left for them.
    A rehearsal compares only.
    """
    chassis = chassis_of(services, host)
    with services.store.reading() as session:
        named = [one for one in session.external_networks() if chassis in one.chassis]
        networks = {network: users for network in named if (users := users_of(session, network))}
        before = chassis_aside(session)
    if not networks:
        if named:
            _record(services, host, chassis)
        return []
    if not services.has_northbound:
        reason = "OVN's northbound database was not named: set VGPUCTL_OVN_NORTHBOUND"
        return [GatewayMove(one.name, (), LEFT, reason) for one in networks]
    seen, why_not = look(services)
    done, leaving = [], {}
    for network, users in networks.items():
        others = _others(services, network, chassis, before, seen)
        if others:
            leaving[network] = users
        else:
            reason = (
                f"no other chassis of {network.name} is in service, and {counted(len(users), 'tenant')} would lose the"
                f" way out: declare another with `vgpuctl create-external-network`"
            )
            done.append(GatewayMove(network.name, (), STAY if accepts else LEFT, reason))
    if not leaving:
        return done
    tenants = sorted({tenant for users in leaving.values() for tenant in users})
    is_new = _record(services, host, chassis)
    try:
        with locked(services, OVN_SUBJECT):
            is_changed = bool(apply_vpcs(services, tenants, dry_run=services.rehearsal is not None))
        problem = _wait_until_off(services, chassis, tenants) if seen is not None and is_changed else None
    except VgpuctlError as error:
        return [*done, *(GatewayMove(one.name, (), f"failed: {error.message}") for one in leaving)]
    if not is_new and not is_changed:
        return done
    aside = before | {chassis}
    for network, users in leaving.items():
        moving = [one for one in users if chassis_order(one, network.chassis, before - {chassis})[0] == chassis]
        to = sorted({chassis_order(one, network.chassis, aside)[0] for one in moving})
        if not moving and problem is None:
            continue
        reason = f"of {counted(len(moving), 'tenant')}"
        reason += f"; which chassis has them was not looked at: {why_not}" if seen is None else ""
        done.append(GatewayMove(network.name, tuple(to), f"failed: {problem}" if problem else MOVED, reason))
    return done


def hold_off(services: Services, host: str) -> None:
    """The same for a host that is dead: its chassis is not to take gateways back by itself when it answers again.

    BFD has moved them by now. What OVN does not take now, `repair` writes.
    """
    chassis = chassis_of(services, host)
    if _record(services, host, chassis):
        _apply_or_say(services, host, chassis)


def return_gateways(services: Services, session: "Session", host: str) -> Callable[[], None]:
    """Let a host's chassis take its turn again, in the caller's transaction. Returns what tells OVN, to call after."""
    chassis = end_aside(session, host)
    return lambda: None if chassis is None else _apply_or_say(services, host, chassis)


def look(services: Services) -> "tuple[GatewaysSeen | None, str]":
    """What OVN's southbound database has of gateways; None with the reason where it cannot be asked."""
    try:
        return services.southbound.gateways(), ""
    except VgpuctlError as error:
        return None, error.message


def _record(services: Services, host: str, chassis: str) -> bool:
    """Record the chassis as set aside if an external network names it. Returns whether that is new."""
    with services.store.transaction() as session:
        is_named = any(chassis in one.chassis for one in session.external_networks())
        return is_named and set_aside(session, host, chassis)


def _apply_or_say(services: Services, host: str, chassis: str) -> None:
    with services.store.reading() as session:
        networks = [one for one in session.external_networks() if chassis in one.chassis]
        tenants = sorted({tenant for network in networks for tenant in users_of(session, network)})
    if not tenants:
        return
    try:
        services.require_northbound()
        with locked(services, OVN_SUBJECT):
            for change in apply_vpcs(services, tenants, dry_run=services.rehearsal is not None):
                services.say(f"{host}: gateways of {counted(len(tenants), 'tenant')}: {in_words(change)}")
    except VgpuctlError as error:
        services.say(f"{host}: gateways stay as they are in OVN: {error.message}; `vgpuctl repair` writes them")


def _others(
    services: Services,
    network: ExternalNetwork,
    chassis: str,
    aside: Collection[str],
    seen: "GatewaysSeen | None",
) -> Sequence[str]:
    """The other chassis of a network that can carry gateways: OVN has them, or where it is not asked, the inventory."""
    others = [one for one in network.chassis if one != chassis and one not in aside]
    if seen is not None:
        return [one for one in others if one in seen.chassis]
    try:
        hosts = hosts_of(services, others)
    except UsageError:
        return others
    return [one for one in others if hosts[one] is not None]


def _wait_until_off(services: Services, chassis: str, tenants: Sequence[str]) -> str | None:
    """Wait until another chassis has claimed the gateways. Returns the problem if it does not."""
    if services.rehearsal is not None:
        return None
    deadline = time.monotonic() + _LIMIT_S
    while True:
        carriers = services.southbound.gateways().carriers
        still = [one for one in tenants if carriers.get(gateway_port(one)) == chassis]
        if not still:
            return None
        if time.monotonic() > deadline:
            names = ", ".join(still[:5]) + (" …" if len(still) > 5 else "")
            return f"{chassis} still carries the gateways of {names} after {_LIMIT_S:g} s: see ovn-controller there"
        time.sleep(0.2)
