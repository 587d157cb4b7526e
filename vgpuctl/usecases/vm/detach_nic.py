# SPDX-License-Identifier: Apache-2.0
"""detach-nic: take a network interface from a VM. Its address is free when the guest has released the interface."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from vgpuctl.errors import NotFound, StateError, UsageError
from vgpuctl.guests.facts.nic_facts import macs_of
from vgpuctl.guests.live.domain import LiveChange
from vgpuctl.guests.live.nics import LiveNics
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.interfaces import FIRST, Interface, host_mac, interfaces_of, placed_nics
from vgpuctl.model.network import Attachment
from vgpuctl.model.vm import Vm, VmRequest
from vgpuctl.usecases.domain.definition import define_again, refuse_fixed
from vgpuctl.usecases.found.find_vm import find_vm
from vgpuctl.usecases.network.detached_ports import (
    NO_MACS,
    detached_ports,
    free_detached_ports,
    interface_values,
    port_values,
    unwanted_macs,
)
from vgpuctl.usecases.network.ports import attachments_of
from vgpuctl.usecases.running.operations import operation
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.vm.attach_nic import NicChange


def detach_nic(
    services: Services, vm: Vm, network: str, *, mac: str | None = None, may_be_last: bool = False, timeout_s: float
) -> NicChange:
    """Take the VM's interface in a network from it, and wait up to timeout_s for its running guest to release it.

    A guest that keeps it leaves the outcome `pending`: the interface is not in the VM's definition any more, and keeps
    its address until the guest releases it or the VM stops; the same command again asks again.
    mac: which one, where the VM has several there. may_be_last: the VM may be left without any. Raises NotFound, and
    StateError for the last one.
    """
    refuse_fixed(vm, "detach a network interface from")
    with operation(services, "detach-nic", vm):
        vm, _ = find_vm(services, vm.request.tenant, vm.request.name)
        host = services.host(vm.host)
        pending = [one for one in detached_ports(services, vm) if one.network.request.name == network]
        pending = [one for one in pending if mac in (None, one.port.mac_address)]
        places = {one.port.position: one for one in attachments_of(services, vm)}
        found = _choose(vm, network, mac, places, has_pending=bool(pending))
        if found is None:
            place = pending[0]
            return _release(services, host, vm, place.port.position, place.network.printed_name, place, timeout_s)
        if len(interfaces_of(vm.request)) == 1 and not may_be_last:
            raise StateError(
                f"{network} is the last network of {vm.printed_name}: without it nobody reaches the VM by a network",
                hint="attach another one first, or add --last",
            )
        new = replace(vm, request=without_nic(vm.request, found.position))
        return _detach(services, host, vm, new, found, places.get(found.position), timeout_s)


def without_nic(request: VmRequest, position: int) -> VmRequest:
    """The request without the interface at a position. Others stay where they are."""
    nics = placed_nics(request.nics)
    if position == FIRST:
        return replace(request, network=None, security_groups=(), bandwidth_mbps=None, nics=nics)
    return replace(request, nics=tuple(one for one in nics if one.position != position))


def _choose(
    vm: Vm, network: str, mac: str | None, places: dict[int, Attachment], *, has_pending: bool
) -> Interface | None:
    """The interface to detach; None for one that is being detached already. Raises NotFound, and UsageError."""
    there = [one for one in interfaces_of(vm.request) if one.network == network]
    macs = {one.position: _mac_of(vm, one, places) for one in there}
    chosen = [one for one in there if mac in (None, macs[one.position])]
    if not chosen and has_pending:
        return None
    if not chosen:
        networks = [f"{one.network} ({_mac_of(vm, one, places)})" for one in interfaces_of(vm.request)]
        what = f"interface {mac} in {network}" if mac else f"interface in {network}"
        raise NotFound(
            f"{vm.printed_name} has no {what}", hint=f"it has interfaces in {', '.join(networks) or 'no network'}"
        )
    if len(chosen) > 1:
        raise UsageError(
            f"{vm.printed_name} has {len(chosen)} interfaces in {network}",
            context=sorted(macs.values()),
            hint="say which one with --mac",
        )
    return chosen[0]


def _mac_of(vm: Vm, interface: Interface, places: dict[int, Attachment]) -> str:
    place = places.get(interface.position)
    return host_mac(vm.uuid, interface.position) if place is None else place.port.mac_address


def _detach(
    services: Services,
    host: HostSession,
    vm: Vm,
    new: Vm,
    interface: Interface,
    place: Attachment | None,
    timeout_s: float,
) -> NicChange:
    """Record first that the interface leaves the VM, then take it from the domain."""
    mac, label = host_mac(vm.uuid, interface.position), interface.network
    values = interface_values(label, mac) if place is None else port_values(place)
    with services.store.transaction() as session:
        session.set_vm_request(vm.uuid, new.request)
        session.add_vm_event(EventKind.NIC_DETACHING, vm, before=values)
    return _release(
        services, host, new, interface.position, place.network.printed_name if place else label, place, timeout_s
    )


def _release(
    services: Services,
    host: HostSession,
    vm: Vm,
    position: int,
    label: str,
    place: Attachment | None,
    timeout_s: float,
) -> NicChange:
    mac = host_mac(vm.uuid, position) if place is None else place.port.mac_address
    define_again(services, host, vm)
    outcome = finish_detach(services, host, vm, [mac], timeout_s=timeout_s)
    if outcome is LiveChange.DONE and place is None:
        with services.store.transaction() as session:
            session.add_vm_event(EventKind.NIC_DETACHED, vm, before=interface_values(label, mac))
    addresses = place.port.addresses if place else ()
    first = place.port.address if place else None
    return NicChange(vm.printed_name, label, position, mac, first, True, outcome, addresses)


def free_left_ports(services: Services, vm: Vm, live_macs: Collection[str] = NO_MACS) -> None:
    """Free the ports of interfaces that have left a VM, which its definition no longer names then.

    live_macs: of the interfaces that the running domain has; none for a VM that is off.
    """
    _drop(services, vm)
    free_detached_ports(services, vm, live_macs)


def go_on_detaching(services: Services, host: HostSession, vm: Vm, macs: Sequence[str], *, timeout_s: float) -> None:
    """Go on where a killed run was: the definition first, then the running guest."""
    _drop(services, vm)
    finish_detach(services, host, vm, macs, timeout_s=timeout_s)


def left_in_definition(services: Services, vm: Vm) -> list[str]:
    """The MAC addresses of interfaces that have left a VM and that its definition still names."""
    definition = services.host(vm.host).hypervisor.definition(vm.domain_name, uuid=vm.uuid)
    return [] if definition is None else unwanted_macs(services, vm, macs_of(definition))


def _drop(services: Services, vm: Vm) -> None:
    """Make the definition again if a killed run did not come to it."""
    if left_in_definition(services, vm):
        define_again(services, services.host(vm.host), vm)


def finish_detach(
    services: Services, host: HostSession, vm: Vm, macs: Sequence[str], *, timeout_s: float
) -> LiveChange:
    """Ask the running guest for interfaces that its VM is to have no more, and free the ports of those it released."""
    nics = LiveNics(host.hypervisor, vm.domain_name, uuid=vm.uuid)
    outcomes = {nics.detach(mac, timeout_s=timeout_s) for mac in macs}
    free_detached_ports(services, vm, nics.macs())
    return LiveChange.PENDING if LiveChange.PENDING in outcomes else LiveChange.DONE
