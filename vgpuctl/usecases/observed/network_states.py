# SPDX-License-Identifier: Apache-2.0
"""States of ports and of balancers' members, as OVN's southbound database has them. One question tells all of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vgpuctl.errors import VgpuctlError
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.network import Attachment, Backend
from vgpuctl.model.network_seen import ONLINE, Checked, NetworksSeen, checks_of
from vgpuctl.model.states import UNKNOWN, StateRow
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.store.store import Session
from vgpuctl.usecases.running.services import Services

UNCHECKED = "unchecked"
_WORST_FIRST = ("error", "offline", UNCHECKED, ONLINE)


@dataclass(frozen=True)
class AskedNetworks:
    """The answer of the southbound database. seen: None where it gave none; problem: why."""

    seen: NetworksSeen | None
    problem: str = ""


def ask_networks(services: Services) -> AskedNetworks | None:
    """Ask for every port and every health check; None where the database was not named."""
    if not services.has_southbound:
        return None
    try:
        return AskedNetworks(services.southbound.networks())
    except VgpuctlError as error:
        return AskedNetworks(None, error.message)


def chassis_of(session: Session, host: str) -> str | None:
    """The name of a host in OVN, as it was last read there; None for one that is no chassis or was not read."""
    cached = session.facts(host)
    ovn = None if cached is None else cached.facts.ovn
    return None if ovn is None or ovn.chassis is None else ovn.chassis.system_id or None


def network_rows(session: Session, vms: Sequence[Vm], asked: AskedNetworks | None) -> Iterator[tuple[str, StateRow]]:
    """The rows of the ports of running VMs in networks of OVN, and of their places behind balancers.

    asked: None where nobody was asked, and then there are no rows.
    """
    if asked is None:
        return
    networks = {one.id: one for one in session.networks()}
    attached: dict[str, list[Attachment]] = {}
    for port in session.ports():
        network = networks[port.network_id]
        if network.request.backend is Backend.OVN:
            attached.setdefault(port.vm_uuid, []).append(Attachment(network, port))
    running = [one for one in vms if one.uuid in attached and one.state is VmState.RUNNING]
    chassis = {host: chassis_of(session, host) for host in {one.host for one in running}}
    balancers: dict[str, list[LoadBalancer]] = {
        tenant: session.vpc_objects(tenant, LoadBalancer) for tenant in {one.request.tenant for one in running}
    }
    for vm in running:
        tenant, name, places = vm.request.tenant, vm.request.name, attached[vm.uuid]
        for place in places:
            state = _port_state(place, asked, chassis[vm.host])
            yield "port_state", StateRow((tenant, name, place.network.request.name), (state,), text=asked.problem)
        for balancer in balancers[tenant]:
            checks = checks_of(balancer, name, places)
            if checks is not None:
                state = _member_state([_status(asked, one) for one in checks])
                labels = (tenant, balancer.name, name)
                yield "load_balancer_member_state", StateRow(labels, (state,), text=asked.problem)


def _port_state(place: Attachment, asked: AskedNetworks, chassis: str | None) -> str:
    """The state of a port. chassis: of the VM's host, None where it is not known."""
    if asked.seen is None:
        return UNKNOWN
    found = asked.seen.ports.get(place.port.id)
    if found is None:
        return "absent"
    if found.chassis is None or not found.is_up:
        return "down"
    return "up" if chassis in (None, found.chassis) else "elsewhere"


def _status(asked: AskedNetworks, check: Checked) -> str:
    return UNKNOWN if asked.seen is None else asked.seen.checks.get(check) or UNCHECKED


def _member_state(statuses: Sequence[str]) -> str:
    """The worst state of a member's addresses; OVN's words that are none of the known ones count as unknown."""
    return next((one for one in (UNKNOWN, *_WORST_FIRST) if one in statuses), UNKNOWN if statuses else UNCHECKED)
