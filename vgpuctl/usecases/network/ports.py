# SPDX-License-Identifier: Apache-2.0
"""A VM's port in a tenant's network: choosing the network, taking an address, and telling the network's backend."""

from dataclasses import replace
from typing import TYPE_CHECKING

from vgpuctl.errors import NotFound, StateError, UsageError
from vgpuctl.model.network import Attachment, Backend, Network, NetworkState
from vgpuctl.model.vm import Vm, VmRequest
from vgpuctl.model.vpc import DEFAULT_GROUP, SecurityGroup
from vgpuctl.usecases.network.network_backends import apply_network, locked, subject_of
from vgpuctl.usecases.network.tunnel_mtu import tunnel_mtu
from vgpuctl.usecases.support.services import Services

if TYPE_CHECKING:
    from vgpuctl.store.store import Session


def network_of(services: Services, request: VmRequest) -> Network | None:
    """The tenant's network that a request names; None for the host's own network of that name, and for no network.

    Raises StateError when the network is not ready.
    """
    if request.network is None:
        return None
    with services.store.reading() as session:
        network = session.find_network(request.tenant, request.network)
    if network is not None and network.state is not NetworkState.READY:
        raise StateError(
            f"network {request.network} of tenant {request.tenant} is {network.state}",
            hint="run the command that was interrupted again, or `vgpuctl repair`",
        )
    is_ovn = network is not None and network.request.backend is Backend.OVN
    if request.security_groups and not is_ovn:
        raise UsageError(
            f"VM {request.name} names security groups, which only networks carried by OVN have",
            hint="leave them out, or create the network with --backend ovn",
        )
    return network


def on_its_host(request: VmRequest, network: Network | None) -> VmRequest:
    """The request with the host that its network is on. Raises UsageError when it wants another host."""
    if network is None or network.request.host is None:
        return request
    if request.host not in (None, network.request.host):
        raise UsageError(
            f"VM {request.name} cannot run on {request.host}: network {network.label} is on {network.request.host}",
            hint="a libvirt network stays on its host; create one for each host, or use OVN",
        )
    return replace(request, host=network.request.host)


def take_port(session: "Session", vm: Vm, network: Network | None) -> Attachment | None:
    """Take an address for the VM within the caller's transaction. Raises NotFound for a security group."""
    known = {group.name for group in session.vpc_objects(vm.request.tenant, SecurityGroup)} | {DEFAULT_GROUP}
    for name in vm.request.security_groups:
        if name not in known:
            raise NotFound(
                f"tenant {vm.request.tenant} has no security group {name!r}",
                hint=f"its groups are {', '.join(sorted(known))}",
            )
    if network is None:
        return None
    return Attachment(network, session.add_port(network, vm.uuid), tunnel_mtu(session))


def free_port(services: Services, vm: Vm, network: Network | None) -> Attachment | None:
    """The attachment that take_port would return now. Writes nothing."""
    if network is None:
        return None
    with services.store.reading() as session:
        return Attachment(network, session.free_port(network, vm.uuid), tunnel_mtu(session))


def attachment_of(services: Services, vm: Vm) -> Attachment | None:
    """The VM's port in a tenant's network, None when it has none."""
    with services.store.reading() as session:
        for attachment in session.attachments(vm.uuid):
            return replace(attachment, tunnel_mtu=tunnel_mtu(session))
    return None


def connect(services: Services, network: Network) -> None:
    """Bring the ports of the network's backend to what the store says."""
    with locked(services, subject_of(network)):
        for change in apply_network(services, network):
            services.say(f"{network.label}: {change}")


def disconnect(services: Services, vm: Vm) -> None:
    """Remove the VM's port from the backend; its address becomes free when the VM's row is deleted."""
    attachment = attachment_of(services, vm)
    if attachment is None:
        return
    with locked(services, subject_of(attachment.network)):
        for change in apply_network(services, attachment.network, without_vm=vm.uuid):
            services.say(f"{attachment.network.label}: {change}")
