# SPDX-License-Identifier: Apache-2.0
"""list-networks: the networks of the store; no host is contacted."""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.model.network import Network, Port
from vgpuctl.usecases.support.services import Services


@dataclass(frozen=True)
class ShownPort:
    """One port and the name of its VM."""

    vm: str
    port: Port


@dataclass(frozen=True)
class ShownNetwork:
    """One network with its ports, by address. free: addresses that nobody holds."""

    network: Network
    gateway: str
    bridge: str
    ports: tuple[ShownPort, ...]
    free: int


def list_networks(services: Services, *, tenant: str | None) -> Sequence[ShownNetwork]:
    """All networks of the store, or a tenant's, in name order."""
    with services.store.reading() as session:
        if tenant is not None:
            session.tenant(tenant)
        networks = session.networks(tenant=tenant)
        names = {vm.uuid: vm.request.name for vm in session.vms(tenant=tenant)}
        ports: dict[str, list[Port]] = {}
        for port in session.ports():
            ports.setdefault(port.network_id, []).append(port)
        held = session.held_addresses()
        return [
            shown_with_ports(network, ports.get(network.id, []), names, held.get(network.id, 0)) for network in networks
        ]


def shown_with_ports(network: Network, ports: Sequence[Port], names: dict[str, str], held: int) -> ShownNetwork:
    """One network as both commands show it. names: of VMs, by UUID. held: the number of addresses that are held."""
    shown = tuple(ShownPort(names.get(port.vm_uuid, port.vm_uuid), port) for port in ports)
    free = network.subnet.num_addresses - 2 - held  # without the network's and the broadcast
    return ShownNetwork(network, network.gateway, network.bridge, shown, free)
