# SPDX-License-Identifier: Apache-2.0
"""What hosts have made of tenants' networks in OVN: where ports are, and which members of balancers answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.network import Attachment, Backend, is_ipv6

ONLINE = "online"
"""OVN's word for a member whose health checks are answered."""


@dataclass(frozen=True)
class PortPlace:
    """Where a port is. chassis: the name of the one that has claimed it, None where none has. is_up: its ovn-controller
    has installed the port's flows."""

    chassis: str | None
    is_up: bool


@dataclass(frozen=True)
class Checked:
    """What a balancer's health check asks: a port of a VM by its name in OVN, an address of it, and a service there."""

    port: str
    address: str
    number: int
    protocol: str


@dataclass(frozen=True)
class NetworksSeen:
    """What hosts have made of ports and health checks. ports: by their names. checks: the status of each, in OVN's
    words (`online`, `offline`, `error`); "" before the first answer."""

    ports: dict[str, PortPlace]
    checks: dict[Checked, str]


def checks_of(balancer: LoadBalancer, vm: str, attachments: Sequence[Attachment]) -> tuple[Checked, ...] | None:
    """OVN's health checks of a VM's place behind a balancer; None where it has none there.

    A VM that drains is no backend any more, and balancers of HTTP check their VMs themselves.

    The place is the VM's port in the balancer's network, else its first one (vgpuctl/model/vpc.py, port_in).
    """
    if vm not in balancer.vms or vm in balancer.draining or balancer.protocol.is_http():
        return None
    of_ovn = sorted(
        (one for one in attachments if one.network.request.backend is Backend.OVN), key=lambda one: one.port.position
    )
    places = [one for one in of_ovn if one.network.request.name == balancer.network] or of_ovn
    if not places:
        return None
    has = {is_ipv6(virtual) for virtual in (balancer.address, balancer.address6) if virtual}
    port = places[0].port
    return tuple(
        Checked(port.id, address, balancer.vm_port, str(balancer.protocol))
        for address in port.addresses
        if is_ipv6(address) in has
    )
