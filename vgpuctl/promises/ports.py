# SPDX-License-Identifier: Apache-2.0
"""The row about ports in networks that OVN carries, and that about the controller that starts VMs again."""

from vgpuctl.model.interfaces import Interface
from vgpuctl.model.network import Attachment, Backend
from vgpuctl.model.vm import RestartPolicy
from vgpuctl.promises.answer import RowAnswer, RowAnswers, not_looked
from vgpuctl.promises.witnessed import NotLookedAt, PortSeen, Promised, Witnessed

_PORT = "`vgpuctl check-hosts` looks at ovn-controller of the host; `vgpuctl repair` writes OVN's rows again"
_CONTROLLER = "`vgpuctl list-controllers` shows which hosts nobody watches; start `vgpuctl controller`"


def ports(promised: Promised, seen: Witnessed) -> RowAnswers:
    """OVN has each port up, with the addresses and the rate that the store has.

    Its northbound database says that some host's ovn-controller carries a port, and not whose. That the domain on the
    VM's host has the port's interface is the row about interfaces, which libvirt witnesses.
    """
    interfaces = {one.position: one for one in promised.interfaces}
    for place in promised.attachments:
        interface = interfaces.get(place.port.position)
        if place.network.request.backend is not Backend.OVN or interface is None:
            continue
        subject, wanted = interface.network, ", ".join(_wanted(place, interface))
        if isinstance(seen.ports, NotLookedAt):
            yield not_looked(subject, wanted, seen.ports)
            continue
        there = seen.ports.get(place.port.id)
        found = "no such port" if there is None else ", ".join(_found(there))
        is_kept = found == wanted
        yield RowAnswer(subject, is_kept, wanted, found, remedy=_PORT)


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


def _wanted(place: Attachment, interface: Interface) -> list[str]:
    limit = [] if interface.bandwidth_mbps is None else [f"{interface.bandwidth_mbps} Mbit/s"]
    return ["up", " ".join((place.port.mac_address, *place.port.addresses)), *limit]


def _found(there: PortSeen) -> list[str]:
    limit = [] if there.mbps is None else [f"{there.mbps} Mbit/s"]
    return ["up" if there.is_up else "down", *sorted(there.addresses), *limit]
