# SPDX-License-Identifier: Apache-2.0
"""The promises to a VM's owner as the store has them, and the witnesses: its host's kernel, NVML, libvirt, and OVN."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from vgpuctl.agent.wire.readings import HostReadings
from vgpuctl.errors import VgpuctlError
from vgpuctl.guests.facts.running_domain import running_domain
from vgpuctl.guests.libvirtd.host_networks import networks_of
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.model.disk_chain import chains
from vgpuctl.model.interfaces import interfaces_of
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.network import Attachment, Backend
from vgpuctl.model.network_seen import NetworksSeen, checks_of
from vgpuctl.model.vm import Vm
from vgpuctl.model.vpc import Gateway
from vgpuctl.ovn.gateways import chassis_order, gateway_port
from vgpuctl.ovn.topology import tenant_owner
from vgpuctl.promises.witnessed import (
    NOBODY_ASKED,
    NotLookedAt,
    NotRunning,
    PortSeen,
    Promised,
    PromisedGateway,
    PromisedMember,
    SeenDomain,
)
from vgpuctl.sharing.measured import MeasuredShare, join_leases
from vgpuctl.store.store import Session
from vgpuctl.usecases.network.chassis_aside import chassis_aside
from vgpuctl.usecases.observed.network_states import chassis_of
from vgpuctl.usecases.running.services import HostSession, Services

Asked = TypeVar("Asked")


def promised_to(session: Session, vm: Vm, leases: Sequence[Lease]) -> Promised:
    """All that the owner of a running VM was promised.

    A GPU that is pending, because the guest has it not yet or not for long, is promised nothing. The size of an adopted
    VM is what its domain says, and nothing of it is promised.
    """
    kept = tuple(one for one in leases if one.state is LeaseState.RUNNING)
    if vm.is_adopted:
        return Promised(vm, kept)
    volumes = session.volumes(vm_uuid=vm.uuid, host=vm.host)
    disks = {chain.disk.label: chain.active for chain in chains(volumes)}
    attachments = session.attachments(vm.uuid)
    return Promised(
        vm, kept, interfaces_of(vm.request), attachments, disks, gateway=_promised_gateway(session, vm, attachments)
    )


def with_places(session: Session, promised: Promised) -> Promised:
    """The same, with what only a check compares: the chassis of the VM's host, and its places behind balancers."""
    if not has_ports(promised):
        return promised
    vm = promised.vm
    members = [
        PromisedMember(one.name, checks)
        for one in session.vpc_objects(vm.request.tenant, LoadBalancer)
        if (checks := checks_of(one, vm.request.name, promised.attachments)) is not None
    ]
    return replace(promised, chassis=chassis_of(session, vm.host), members=members)


def _promised_gateway(session: Session, vm: Vm, attachments: Sequence[Attachment]) -> PromisedGateway | None:
    """The gateway of the VM's tenant, where one of its networks leads there."""
    requests = [one.network.request for one in attachments]
    if not any(one.backend is Backend.OVN and not one.isolated for one in requests):
        return None
    tenant = vm.request.tenant
    for one in session.vpc_objects(tenant, Gateway):
        network = session.external_network(one.external_network)
        order = chassis_order(tenant, network.chassis, chassis_aside(session))
        return PromisedGateway(network.name, gateway_port(tenant), tuple(order))
    return None


def ask_domain(host: HostSession, vm: Vm) -> SeenDomain | NotLookedAt:
    """The VM's domain as it runs; NotRunning for one that is off or paused, whose XML says nothing of now."""

    def ask() -> SeenDomain | NotLookedAt:
        state = host.hypervisor.state(vm.domain_name, uuid=vm.uuid)
        if state is not None and (state.is_paused() or not state.is_active()):
            return NotRunning(f"the domain is {state.replace('-', ' ')}")
        xml = host.hypervisor.xml(vm.domain_name)
        return NotLookedAt(f"{vm.host} has no domain {vm.domain_name}") if xml is None else running_domain(xml)

    return _asked(ask)


def ask_definition(host: HostSession, vm: Vm) -> SeenDomain | NotLookedAt:
    """The VM's domain as it starts next."""

    def ask() -> SeenDomain | NotLookedAt:
        xml = host.hypervisor.definition(vm.domain_name, uuid=vm.uuid)
        return NotLookedAt(f"{vm.host} has no domain {vm.domain_name}") if xml is None else running_domain(xml)

    return _asked(ask)


def ask_networks(host: HostSession) -> frozenset[str] | NotLookedAt:
    """The active networks of a host's libvirt."""
    return _asked(lambda: frozenset(name for name, is_active in networks_of(host.hypervisor).items() if is_active))


def ask_sizes(host: HostSession, promised: Promised) -> Mapping[str, int] | NotLookedAt:
    """The size of each disk's volume in bytes, by its path, as libvirt tells it; none of one that its pool lacks."""

    def ask() -> Mapping[str, int]:
        storage = Storage(host.hypervisor)
        found = [storage.find_volume(one.pool, one.name) for one in promised.disks.values()]
        return {one.path: one.capacity_bytes for one in found if one is not None}

    return _asked(ask)


def ask_ports(services: Services, promised: Promised) -> Mapping[str, PortSeen] | NotLookedAt:
    """The ports of the VM's tenant as OVN has them; nobody is asked for a VM without one."""
    if not has_ports(promised):
        return {}
    if not services.has_northbound:
        return NotLookedAt("OVN's northbound database was not named")
    return _asked(lambda: services.northbound.ports(tenant_owner(promised.vm.request.tenant)))


def ask_carrier(services: Services, promised: Promised) -> str | NotLookedAt:
    """The chassis that carries the gateway of the VM's tenant, "" where none does; nobody is asked without one."""
    asked = promised.gateway
    if asked is None:
        return NOBODY_ASKED
    return _asked(lambda: services.southbound.gateways().carriers.get(asked.port) or "")


def ask_places(services: Services, promised: Promised) -> NetworksSeen | NotLookedAt:
    """Where the VM's ports are, and what health checks found of them; nobody is asked for a VM without one."""
    ports = [one.port.id for one in promised.attachments if one.network.request.backend is Backend.OVN]
    return _asked(lambda: services.southbound.networks(ports)) if ports else NOBODY_ASKED


def has_ports(promised: Promised) -> bool:
    """True if the VM has a port in a network that OVN carries."""
    return any(one.network.request.backend is Backend.OVN for one in promised.attachments)


def ask_nvml(read: Callable[[], HostReadings], promised: Promised) -> Sequence[MeasuredShare] | NotLookedAt:
    """The driver's measurements of each vGPU. read: reads the host, or returns an earlier reading."""
    return _asked(lambda: join_leases(promised.leases, {promised.vm.host: read()}))


def ask_watch(session: Session, host: str) -> bool:
    """True if a controller that may live has claimed the host."""
    from vgpuctl.store.liveness import is_running

    return any(host in one.hosts and is_running(one) is not False for one in session.controllers())


def _asked(ask: Callable[[], Asked | NotLookedAt]) -> Asked | NotLookedAt:
    try:
        return ask()
    except VgpuctlError as error:
        return NotLookedAt(error.message)
