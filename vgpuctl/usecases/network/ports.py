# SPDX-License-Identifier: Apache-2.0
"""A VM's ports in tenants' networks: choosing the networks, taking addresses, and telling the networks' backends."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from vgpuctl.errors import NotFound, StateError, UsageError, VgpuctlError
from vgpuctl.model.interfaces import Interface, interfaces_of
from vgpuctl.model.internal_names import domains_of, search_list
from vgpuctl.model.network import Attachment, Backend, Network, NetworkState
from vgpuctl.model.vm import HostOfNetwork, OvnVmRequest, Vm, VmRequest
from vgpuctl.model.vpc import DEFAULT_GROUP, SecurityGroup
from vgpuctl.usecases.network.network_backends import apply_network, locked, subject_of
from vgpuctl.usecases.network.tunnel_mtu import tunnel_mtu
from vgpuctl.usecases.network.vpc import carried
from vgpuctl.usecases.running.services import Services

if TYPE_CHECKING:
    from vgpuctl.store.store import Session


Networks = Mapping[int, Network]
"""The tenant's networks of a VM's interfaces, by position; interfaces in networks of the host are not in it."""


def networks_of(services: Services, request: VmRequest) -> Networks:
    """The tenant's networks that a request names; those that the tenant does not have are the host's own.

    Raises StateError when one is not ready, UsageError for security groups outside OVN.
    """
    with services.store.reading() as session:
        found = {one.position: network_of(session, request, one) for one in interfaces_of(request)}
    return {position: network for position, network in found.items() if network is not None}


def network_of(session: "Session", request: VmRequest, interface: Interface) -> Network | None:
    """The tenant's network of one interface, None for the host's own network of that name.

    Raises as networks_of, and NotFound for the name by which hosts know a tenant's network: there the VM would have an
    address of its own choice, and no filter.
    """
    network = session.find_network(request.tenant, interface.network)
    if network is None and session.network_labelled(interface.network) is not None:
        raise NotFound(
            f"tenant {request.tenant} has no network {interface.network!r}; on hosts that is a tenant's network",
            hint=f"see `vgpuctl list-networks --tenant {request.tenant}`",
        )
    if network is not None and network.state is not NetworkState.CREATED:
        raise StateError(
            f"network {interface.network} of tenant {request.tenant} is {network.state}",
            hint="run the command that was interrupted again, or `vgpuctl repair`",
        )
    is_ovn = network is not None and network.request.backend is Backend.OVN
    if interface.security_groups and not is_ovn:
        raise UsageError(
            f"VM {request.name} names security groups for its interface in {interface.network}, which only networks"
            " carried by OVN have",
            hint="leave them out, or create the network with --backend ovn",
        )
    return network


def on_its_host(request: VmRequest, networks: Iterable[Network]) -> VmRequest:
    """The request with what its networks ask of a host: to be the one they are on, or to be a chassis of OVN.

    Raises UsageError when it wants another host.
    """
    for network in networks:
        if network.request.backend is Backend.OVN and not request.needs_chassis:
            request = OvnVmRequest.of(request)
        host = network.request.host
        if host is not None and request.host not in (None, host):
            raise UsageError(
                f"VM {request.name} cannot run on {request.host}: network {network.printed_name} is on {host}",
                hint="a libvirt network stays on its host; create one for each host, or use OVN",
            )
        if host is not None and request.host is None:
            request = replace(request, host=HostOfNetwork.of(host, network.printed_name))
    return request


def with_networks(services: Services, request: VmRequest) -> VmRequest:
    """The request of a new VM with what its networks ask of a host; as it is, where they cannot be used now."""
    try:
        return on_its_host(request, networks_of(services, request).values())
    except VgpuctlError:
        return request


def with_attachments(request: VmRequest, attachments: Iterable[Attachment]) -> VmRequest:
    """The request of a VM of the store with what the networks of its ports ask of a host, as `on_its_host`.

    A port that its guest has yet to release asks for nothing.
    """
    wanted = {one.position for one in interfaces_of(request)}
    return on_its_host(request, (one.network for one in attachments if one.port.position in wanted))


def take_ports(services: Services, session: "Session", vm: Vm, networks: Networks) -> tuple[Attachment, ...]:
    """Take an address for each of the VM's interfaces in tenants' networks, within the caller's transaction.

    Raises NotFound for a security group.
    """
    taken = []
    for interface in interfaces_of(vm.request):
        check_groups(session, vm.request.tenant, interface)
        network = networks.get(interface.position)
        if network is not None:
            port = session.add_port(network, vm.uuid, interface.position)
            taken.append(as_told(services, session, Attachment(network, port)))
    return tuple(taken)


def as_told(services: Services, session: "Session", place: Attachment) -> Attachment:
    """The attachment with what its guest is told beside its address: the MTU, and where it looks for names."""
    has_names = place.network.request.backend is Backend.OVN and services.internal_domain is not None
    domain = None
    if has_names:
        domains = domains_of(carried(session, place.network.request.tenant), services.internal_domain)
        domain = domains.get(place.network.id)
    return replace(place, tunnel_mtu=tunnel_mtu(session), has_names=has_names, search=search_list(domain))


def check_groups(session: "Session", tenant: str, interface: Interface) -> None:
    """Raise NotFound for a security group of an interface that the tenant does not have."""
    known = {group.name for group in session.vpc_objects(tenant, SecurityGroup)} | {DEFAULT_GROUP}
    for name in interface.security_groups:
        if name not in known:
            raise NotFound(
                f"tenant {tenant} has no security group {name!r}",
                hint=f"its groups are {', '.join(sorted(known))}",
            )


def attachments_of(services: Services, vm: Vm) -> tuple[Attachment, ...]:
    """The VM's ports in tenants' networks, by position; also of an interface that its guest has yet to release."""
    with services.store.reading() as session:
        return tuple(as_told(services, session, one) for one in session.attachments(vm.uuid))


def connect(services: Services, networks: Iterable[Network]) -> None:
    """Bring the ports of the networks' backends to what the store says."""
    for network in _each_backend_once(networks):
        with locked(services, subject_of(network)):
            for change in apply_network(services, network):
                services.say(f"{network.printed_name}: {change}")


def disconnect(services: Services, vm: Vm, *, only: Collection[Backend] = tuple(Backend)) -> None:
    """Remove the VM's ports from the backends; their addresses become free when the VM's row is deleted.

    only: the backends to tell.
    """
    networks = [one.network for one in attachments_of(services, vm) if one.network.request.backend in only]
    for network in _each_backend_once(networks):
        with locked(services, subject_of(network)):
            for change in apply_network(services, network, without_vm=vm.uuid):
                services.say(f"{network.printed_name}: {change}")


def _each_backend_once(networks: Iterable[Network]) -> list[Network]:
    """One network of each backend: OVN is told of all networks of a tenant at once."""
    return list({subject_of(network): network for network in reversed(list(networks))}.values())[::-1]
