# SPDX-License-Identifier: Apache-2.0
"""attach-nic: give a VM one more network interface, at once where its running guest has a port for it."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from vgpuctl.catalog.guest_os import with_os_defaults
from vgpuctl.errors import StateError
from vgpuctl.guests.domain.nic_view import nic_view
from vgpuctl.guests.facts.nic_facts import bus_at, find_place, macs_of
from vgpuctl.guests.libvirtd.host_networks import check_network
from vgpuctl.guests.live.domain import LiveChange
from vgpuctl.guests.live.nics import LiveNics
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.interfaces import (
    FIRST,
    Interface,
    host_mac,
    interface_at,
    interfaces_of,
    placed_nics,
)
from vgpuctl.model.network import Attachment, Network
from vgpuctl.model.nic import MOST_NICS, NicRequest
from vgpuctl.model.vm import Vm, VmRequest
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.domain.definition import define_again, refuse_fixed
from vgpuctl.usecases.found.find_vm import find_vm
from vgpuctl.usecases.network.detached_ports import free_detached_ports, interface_values, port_values
from vgpuctl.usecases.network.ports import as_told, attachments_of, check_groups, connect, network_of, on_its_host
from vgpuctl.usecases.placement.quota import refuse_growth_over_quota
from vgpuctl.usecases.running.operations import operation
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.running.undo import Undo


@dataclass(frozen=True)
class NicChange:
    """A change to one interface of a VM. network: its name on hosts. outcome: when the running guest has it.

    address: None where the network of the host gives it. addresses: all that the store gives it, IPv4 first.
    """

    vm: str
    network: str
    position: int
    mac_address: str
    address: str | None
    changed: bool
    outcome: LiveChange
    addresses: tuple[str, ...] = ()


def attach_nic(services: Services, vm: Vm, nic: NicRequest, *, is_another: bool = False) -> NicChange:
    """Give a VM an interface in a network of its tenant, or of its host.

    A VM that has one there gets none, unless is_another; that finishes what an interrupted run left. When anything
    fails, the VM is as it was. Raises NetworkMissing, UsageError for a network on another host, StateError for a VM
    with as many interfaces as it can have, or with one there that differs, and AddressesExhausted.
    """
    refuse_fixed(vm, "attach a network interface to")
    with operation(services, "attach-nic", vm):
        vm, _ = find_vm(services, vm.request.tenant, vm.request.name)
        host = services.host(vm.host)
        live = _live(host, vm)
        free_detached_ports(services, vm, macs_of(live) if live else ())
        there = [one for one in interfaces_of(vm.request) if one.network == nic.network]
        if there and not is_another:
            _refuse_other(vm, there[0], nic)
            place = _place_of(services, vm, there[0].position)
            return _answer(vm, there[0], place, _attach(services, host, vm, there[0], place), changed=False)
        return _add(services, host, vm, nic, live)


def _live(host: HostSession, vm: Vm) -> str | None:
    return LiveNics(host.hypervisor, vm.domain_name, uuid=vm.uuid).xml()


def _add(services: Services, host: HostSession, vm: Vm, nic: NicRequest, live: str | None) -> NicChange:
    position = _free_position(services, vm, macs_of(live) if live else ())
    reserved = [one.spare_port for one in vm.request.nics if one.spare_port is not None]
    found = None if live is None else find_place(live, position, reserved=reserved)
    placed = replace(nic, position=position, spare_port=None if found is None else found.spare_port)
    with services.store.reading() as session:
        request = session.with_usual(with_nic(vm.request, placed), vm.request)
        session.require_below(request, vm.request)
    new = replace(vm, request=request)
    interface = interface_at(new.request, position)
    assert interface is not None
    network = _network(services, host, new, interface)
    with Undo(services.say, subject=vm.printed_name) as undoing:
        place = _take(services, vm, new, interface, network)
        undoing.push("request of the VM", lambda: _forget(services, vm, place))
        guest.refuse_taken_macs(host, new, attachments_of(services, new))
        if place is not None:
            undoing.push("port", lambda: connect(services, [place.network]))
            connect(services, [place.network])
        undoing.push("definition", lambda: define_again(services, host, vm))
        outcome = _attach(services, host, new, interface, place)
        undoing.keep()
    return _answer(new, interface, place, outcome, changed=True)


def with_nic(request: VmRequest, nic: NicRequest) -> VmRequest:
    """The request with one more interface, at its position. Others stay where they are."""
    if nic.position != FIRST:
        return with_os_defaults(replace(request, nics=(*placed_nics(request.nics), nic)))
    return replace(
        request,
        network=nic.network,
        nic_model=nic.model or request.nic_model,
        security_groups=nic.security_groups,
        bandwidth_mbps=nic.bandwidth_mbps,
    )


def _free_position(services: Services, vm: Vm, live_macs: Collection[str]) -> int:
    """The lowest position that no interface has, nor one that the guest has yet to release."""
    taken = {one.position for one in interfaces_of(vm.request)}
    taken |= {one.port.position for one in attachments_of(services, vm)}
    for position in range(MOST_NICS + 1):
        if position not in taken and host_mac(vm.uuid, position) not in live_macs:
            return position
    raise StateError(
        f"cannot attach a network interface to {vm.printed_name}: it has {len(taken)}, and no VM can have more",
        hint="detach one first; one that its guest has not released counts until the VM stops",
    )


def _network(services: Services, host: HostSession, vm: Vm, interface: Interface) -> Network | None:
    """The tenant's network of an interface; None for one of the host, which is there. Raises what refuses it."""
    with services.store.reading() as session:
        check_groups(session, vm.request.tenant, interface)
        network = network_of(session, vm.request, interface)
    if network is None:
        check_network(host.hypervisor, interface.network, hint="name one of these, or a network of the tenant")
    else:
        on_its_host(replace(vm.request, host=vm.host), [network])
    return network


def _take(services: Services, vm: Vm, new: Vm, interface: Interface, network: Network | None) -> Attachment | None:
    """Record the interface, with an address in a tenant's network."""
    with services.store.transaction() as session:
        refuse_growth_over_quota(session, vm.request, new.request, (), ())
        session.set_vm_request(vm.uuid, new.request)
        if network is None:
            mac = host_mac(vm.uuid, interface.position)
            session.add_vm_event(EventKind.NIC_ATTACHED, vm, after=interface_values(interface.network, mac))
            return None
        port = session.add_port(network, vm.uuid, interface.position)
        place = as_told(services, session, Attachment(network, port))
        session.add_vm_event(EventKind.NIC_ATTACHED, vm, after=port_values(place))
        return place


def _forget(services: Services, vm: Vm, place: Attachment | None) -> None:
    with services.store.transaction() as session:
        session.set_vm_request(vm.uuid, vm.request)
        if place is not None:
            session.delete_port(place.port)
        session.add_vm_event(EventKind.NIC_DETACHED, vm, "rolled back")


def _attach(
    services: Services, host: HostSession, vm: Vm, interface: Interface, place: Attachment | None
) -> LiveChange:
    """Define the domain with the interface, and attach it to the running one where that has its port free."""
    define_again(services, host, vm)
    nics = LiveNics(host.hypervisor, vm.domain_name, uuid=vm.uuid)
    live = nics.xml()
    if live is None:
        return LiveChange.NEXT_START
    mac = host_mac(vm.uuid, interface.position) if place is None else place.port.mac_address
    bus = bus_at(live, interface.position, interface.spare_port)
    if mac in macs_of(live):
        return LiveChange.DONE
    if bus is None:
        return LiveChange.NEXT_START
    return nics.attach(nic_view(vm, interface, place, bus))


def _place_of(services: Services, vm: Vm, position: int) -> Attachment | None:
    return next((one for one in attachments_of(services, vm) if one.port.position == position), None)


def _answer(vm: Vm, interface: Interface, place: Attachment | None, outcome: LiveChange, *, changed: bool) -> NicChange:
    if place is None:
        mac = host_mac(vm.uuid, interface.position)
        return NicChange(vm.printed_name, interface.network, interface.position, mac, None, changed, outcome)
    port = place.port
    return NicChange(
        vm.printed_name,
        place.network.printed_name,
        interface.position,
        port.mac_address,
        port.address,
        changed,
        outcome,
        port.addresses,
    )


def _refuse_other(vm: Vm, there: Interface, wanted: NicRequest) -> None:
    """Raise StateError when the VM has an interface in the network that is not as wanted."""
    checks: tuple[tuple[str, Callable[[Interface | NicRequest], object]], ...] = (
        ("model", lambda one: one.model),
        ("security_groups", lambda one: one.security_groups),
        ("bandwidth_mbps", lambda one: one.bandwidth_mbps),
    )
    differing = [
        f"{name}: {read(there) or 'none'} there, {read(wanted)} wanted"
        for name, read in checks
        if read(wanted) and read(wanted) != read(there)
    ]
    if differing:
        raise StateError(
            f"{vm.printed_name} has an interface in {wanted.network} that differs",
            context=differing,
            hint="detach it and attach it again, or add one more with --another; `vgpuctl resize-vm --bandwidth`"
            " changes its limit",
        )
