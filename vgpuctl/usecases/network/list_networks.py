# SPDX-License-Identifier: Apache-2.0
"""list-networks, show-network: the networks of the store; no host is contacted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.model.internal_names import domains_of, names_in
from vgpuctl.model.network import Network, Port, count_usable
from vgpuctl.model.promise import LastFinding, PromiseRow, badness
from vgpuctl.model.vm import VmState
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.promise_record import recorded_of_hosts
from vgpuctl.usecases.running.services import Services

_OF_INTERFACES = (PromiseRow.INTERFACES, PromiseRow.PORTS)


@dataclass(frozen=True)
class ShownPort:
    """One port and the name of its VM.

    name: by which other VMs of its tenant find it, None without one. finding: of the rows of the VM's promise that are
    about this interface, the worst one as it was last looked at. None where the VM does not run, or where nobody has
    looked yet.
    """

    vm: str
    port: Port
    finding: LastFinding | None
    name: str | None = None


@dataclass(frozen=True)
class ShownNetwork:
    """One network with its ports, by address.

    gateways: the router's addresses, IPv4 first; gateway: the first of them. free: for how many more VMs there are
    addresses, of each IP version that the network has. domain: of its VMs' names, as OVN answers them; None where it
    answers none.
    """

    network: Network
    gateway: str
    bridge: str
    ports: tuple[ShownPort, ...]
    free: int
    gateways: tuple[str, ...]
    domain: str | None = None


def list_networks(services: Services, *, tenant: str | None) -> Sequence[ShownNetwork]:
    """All networks of the store, or a tenant's, in name order."""
    with services.store.reading() as session:
        if tenant is not None:
            session.tenant(tenant)
        networks = session.networks(tenant=tenant)
        vms = VmsOfNetworks.of(session, tenant)
        ports: dict[str, list[Port]] = {}
        for port in session.ports():
            ports.setdefault(port.network_id, []).append(port)
        held = session.held_addresses()
        of_tenants: dict[str, list[Network]] = {}
        for network in networks:
            if network.is_carried:
                of_tenants.setdefault(network.request.tenant, []).append(network)
        domains: dict[str, str] = {}
        for of_tenant in of_tenants.values():
            domains |= domains_of(of_tenant, services.internal_domain)
        return [
            shown_with_ports(network, ports.get(network.id, []), vms, held.get(network.id, {}), domains.get(network.id))
            for network in networks
        ]


@dataclass(frozen=True)
class VmsOfNetworks:
    """Names of VMs by UUID, and what was last seen of the interfaces of those that run, by UUID and network."""

    names: Mapping[str, str]
    findings: Mapping[tuple[str, str], LastFinding]

    @classmethod
    def of(cls, session: Session, tenant: str | None) -> "VmsOfNetworks":
        """Those of a tenant, or of all."""
        vms = {vm.uuid: vm for vm in session.vms(tenant=tenant)}
        recorded = {uuid: found for of_host in recorded_of_hosts(session).values() for uuid, found in of_host.items()}
        findings: dict[tuple[str, str], LastFinding] = {}
        for uuid in [one.uuid for one in vms.values() if one.state is VmState.RUNNING and one.uuid in recorded]:
            for one in recorded[uuid]:
                place = (uuid, one.finding.subject)
                is_worse = place not in findings or badness(one.finding) > badness(findings[place].finding)
                if one.finding.row in _OF_INTERFACES and is_worse:
                    findings[place] = one
        return cls({uuid: vm.request.name for uuid, vm in vms.items()}, findings)


def shown_with_ports(
    network: Network, ports: Sequence[Port], vms: VmsOfNetworks, held: Mapping[int, int], domain: str | None
) -> ShownNetwork:
    """One network as both commands show it. held: the number of addresses that are held, by IP version.

    domain: of its names.
    """
    names = names_in(domain, {vms.names[port.vm_uuid] for port in ports if port.vm_uuid in vms.names})
    shown = tuple(
        ShownPort(
            vms.names.get(port.vm_uuid, port.vm_uuid),
            port,
            vms.findings.get((port.vm_uuid, network.request.name)),
            names.get(vms.names.get(port.vm_uuid, "")),
        )
        for port in ports
    )
    free = min(count_usable(subnet) - held.get(subnet.version, 0) for subnet in network.subnets)
    return ShownNetwork(network, network.gateway, network.bridge, shown, free, network.gateways, domain)


def show_network(services: Services, tenant: str, name: str) -> ShownNetwork:
    """One network. Raises NotFound with similar names."""
    with services.store.reading() as session:
        network = session.network(tenant, name)
        others = [one for one in session.networks(tenant=tenant) if one.is_carried]
        domain = domains_of(others, services.internal_domain).get(network.id)
        return _shown(session, network, domain)


def shown_network(session: Session, tenant: str, name: str) -> ShownNetwork:
    """The same in a transaction, without its VMs' names."""
    return _shown(session, session.network(tenant, name), None)


def _shown(session: Session, network: Network, domain: str | None) -> ShownNetwork:
    vms = VmsOfNetworks.of(session, network.request.tenant)
    ports, held = session.ports(network_id=network.id), session.held_addresses(network.id).get(network.id, {})
    return shown_with_ports(network, ports, vms, held, domain)
