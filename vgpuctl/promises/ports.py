# SPDX-License-Identifier: Apache-2.0
"""The rows about ports and gateways in OVN, and that about the controller that starts VMs again."""

from vgpuctl.model.interfaces import Interface
from vgpuctl.model.network import Attachment, Backend
from vgpuctl.model.network_seen import ONLINE
from vgpuctl.model.vm import RestartPolicy
from vgpuctl.promises.answer import RowAnswer, RowAnswers, not_looked
from vgpuctl.promises.witnessed import NotLookedAt, PortSeen, Promised, Witnessed

_PORT = "`vgpuctl check-hosts` looks at ovn-controller of the host; `vgpuctl repair` writes OVN's rows again"
_GATEWAY = "`vgpuctl show-external-network` names its chassis; `vgpuctl check-hosts` looks at their hosts"
_MEMBER = "ask in the guest whether its service listens; a rule of a security group cannot stop the checks"
_CONTROLLER = "`vgpuctl list-controllers` shows which hosts nobody watches; start `vgpuctl controller`"


def ports(promised: Promised, seen: Witnessed) -> RowAnswers:
    """OVN has each port up, with the addresses and the rate that the store has.

    Its northbound database says that some host's ovn-controller carries a port, and not whose; the southbound one says
    whose, where it is named and answers. That the domain on the VM's host has the port's interface is the row about
    interfaces, which libvirt witnesses.
    """
    interfaces = {one.position: one for one in promised.interfaces}
    for place in promised.attachments:
        interface = interfaces.get(place.port.position)
        if place.network.request.backend is not Backend.OVN or interface is None:
            continue
        where = _where(place, seen)
        chassis = None if where is None else promised.chassis
        subject, wanted = interface.network, ", ".join(_wanted(place, interface, chassis))
        if isinstance(seen.ports, NotLookedAt):
            yield not_looked(subject, wanted, seen.ports)
            continue
        there = seen.ports.get(place.port.id)
        found = "no such port" if there is None else ", ".join(_found(there, None if chassis is None else where))
        is_kept = found == wanted
        yield RowAnswer(subject, is_kept, wanted, found, remedy=_PORT)


def gateway(promised: Promised, seen: Witnessed) -> RowAnswers:
    """A chassis of the external network carries the tenant's gateway."""
    asked = promised.gateway
    if asked is None:
        return
    wanted = f"one of {', '.join(asked.chassis)} carries it" if asked.chassis else "a chassis carries it"
    if isinstance(seen.carrier, NotLookedAt):
        yield not_looked(asked.external_network, wanted, seen.carrier)
        return
    found = f"{seen.carrier} carries it" if seen.carrier else "no chassis carries it"
    if seen.carrier and asked.chassis and seen.carrier != asked.chassis[0]:
        found += f", and {asked.chassis[0]} is the first one"
    yield RowAnswer(asked.external_network, seen.carrier in asked.chassis, wanted, found, remedy=_GATEWAY)


def restart(promised: Promised, seen: Witnessed) -> RowAnswers:
    """Somebody watches the host of a VM that is to be started again."""
    request = promised.vm.request
    if request.restart is RestartPolicy.NEVER and not request.autostart:
        return
    policy = f"restart {request.restart}" if request.restart is not RestartPolicy.NEVER else "started with its host"
    if isinstance(seen.watched, NotLookedAt):
        yield not_looked("", policy, seen.watched)
        return
    found = f"{'a' if seen.watched else 'no'} controller watches {promised.vm.host}"
    yield RowAnswer("", seen.watched, policy, found, remedy=_CONTROLLER)


def balancers(promised: Promised, seen: Witnessed) -> RowAnswers:
    """Health checks of the VM's addresses behind each balancer are answered."""
    wanted = "its health checks are answered"
    for member in promised.members:
        if isinstance(seen.places, NotLookedAt):
            yield not_looked(member.balancer, wanted, seen.places)
            continue
        known = {one: seen.places.checks.get(one) for one in member.checked}
        unknown = [one.address for one, status in known.items() if not status]
        words = ", ".join(
            f"{one.address} {one.protocol}/{one.number} {status}" for one, status in known.items() if status
        )
        if set(known.values()) == {ONLINE}:
            yield RowAnswer(member.balancer, True, wanted, words)
        elif all(status in (ONLINE, None, "") for status in known.values()):
            why = f"OVN has not checked {', '.join(unknown) or 'any address of it'}"
            yield not_looked(member.balancer, wanted, why)
        else:
            yield RowAnswer(member.balancer, False, wanted, words, remedy=_MEMBER)


def _where(place: Attachment, seen: Witnessed) -> str | None:
    """The chassis that has claimed a port, "" for none; None where nobody was asked or nobody answered."""
    if isinstance(seen.places, NotLookedAt):
        return None
    found = seen.places.ports.get(place.port.id)
    return "" if found is None else found.chassis or ""


def _wanted(place: Attachment, interface: Interface, chassis: str | None) -> list[str]:
    limit = [] if interface.bandwidth_mbps is None else [f"{interface.bandwidth_mbps} Mbit/s"]
    return [_up("up", chassis), " ".join((place.port.mac_address, *place.port.addresses)), *limit]


def _found(there: PortSeen, where: str | None) -> list[str]:
    limit = [] if there.mbps is None else [f"{there.mbps} Mbit/s"]
    return [_up("up" if there.is_up else "down", where), *sorted(there.addresses), *limit]


def _up(word: str, chassis: str | None) -> str:
    return word if chassis is None else f"{word} on {chassis or 'no chassis'}"
