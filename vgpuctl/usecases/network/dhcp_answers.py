# SPDX-License-Identifier: Apache-2.0
"""DHCP of one VM's ports: requests that reached OVN, and its answers, by the flow counters of the VM's host.

Each port has a flow that gives a request to ovn-controller, and one that sends its answer (ovn-northd(8), tables of
DHCP options and responses). So the packets of both are known, and nothing else of a lease is.
"""

from collections.abc import Iterator

from vgpuctl.errors import VgpuctlError
from vgpuctl.model.network import Backend
from vgpuctl.model.times import format_time
from vgpuctl.model.vm import Vm
from vgpuctl.ovn.topology import dhcp_keys, tenant_owner
from vgpuctl.usecases.running.services import Services

_REQUESTS, _ANSWERS = "ls_in_dhcp_options", "ls_in_dhcp_response"


def describe_dhcp(services: Services, vm: Vm) -> Iterator[str]:
    """A line for each port in a network that OVN carries; nothing where OVN's databases were not named."""
    if not (services.has_northbound and services.has_southbound):
        return
    with services.store.reading() as session:
        places = [one for one in session.attachments(vm.uuid) if one.network.request.backend is Backend.OVN]
    if not places:
        return
    try:
        uuids = services.northbound.uuids(tenant_owner(vm.request.tenant), "DHCP_Options")
        made = services.southbound.flows(
            sorted({uuids[key] for one in places for key in dhcp_keys(one.network) if key in uuids})
        )
        flows = [one for of_row in made.values() for one in of_row if one.stage.startswith((_REQUESTS, _ANSWERS))]
        answer = services.host(vm.host).agent.flows(
            sorted({one.cookie for one in flows if any(place.port.id in one.match for place in places)})
        )
    except VgpuctlError as error:
        yield f"DHCP was not looked at: {error.message}"
        return
    if not answer.is_running:
        yield "DHCP was not looked at: ovn-controller does not run on the host"
        return
    now = services.store.now()
    for place in places:
        own = {one.cookie: one.stage for one in flows if f'"{place.port.id}"' in one.match}
        counts = [one for one in answer.counts if one.cookie in own]
        network = place.network.request.name
        if not counts:
            yield f"DHCP in {network} was not looked at: the host has no flows of the port"
            continue
        requests = sum(one.packets for one in counts if own[one.cookie].startswith(_REQUESTS))
        answers = sum(one.packets for one in counts if own[one.cookie].startswith(_ANSWERS))
        since = format_time(now - max(one.age_s for one in counts))
        yield f"DHCP in {network}: OVN answered {answers} of {requests} requests since {since} UTC"
