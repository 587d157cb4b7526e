# SPDX-License-Identifier: Apache-2.0
"""Common work of several commands on a VM's domain. Every function may be repeated."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.catalog.guest_os import is_windows
from vgpuctl.errors import ConcurrentChange, DomainRejected, GuestError, StateError, VgpuctlError
from vgpuctl.guests.domain.display_view import shown_device
from vgpuctl.guests.domain.numa import CpusByCell
from vgpuctl.guests.domain.render import render_domain
from vgpuctl.guests.domain.view import domain_view
from vgpuctl.guests.domain.windows_view import note_missing
from vgpuctl.guests.facts.capabilities import hyperv_features
from vgpuctl.guests.facts.domain_facts import DomainFact, DomainState
from vgpuctl.guests.libvirtd.host_networks import check_network
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.model.guest_firmware import Variables
from vgpuctl.model.host_parts import missing_parts, parts_needed
from vgpuctl.model.image import HostImages
from vgpuctl.model.interfaces import host_mac, interfaces_of
from vgpuctl.model.lease import Lease
from vgpuctl.model.network import Attachment
from vgpuctl.model.numa import Footprint
from vgpuctl.model.vm import Vm
from vgpuctl.model.volume import Volume, VolumeKind
from vgpuctl.scheduler.guest_place import missing_on
from vgpuctl.usecases.domain.guest_state import drop_state
from vgpuctl.usecases.domain.promises import Findings, prove_start
from vgpuctl.usecases.image.disk_places import data_disks, first_disk
from vgpuctl.usecases.image.volumes import find_own, refuse_taken_volumes
from vgpuctl.usecases.network.ports import attachments_of, with_attachments
from vgpuctl.usecases.observed.observations import read_facts
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.share.quarantine import quarantine

HOLD_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class DomainParts:
    """All that a VM's domain is rendered from.

    leases: of devices on its host, whose `facts` these are. floating: the host's CPUs that no vCPU is pinned to, by
    NUMA node. volumes: those recorded for the VM, or those that it would get. installs: it is the VM's first run,
    which alone has the answers of an unattended installation: with them, its medium wipes the disk without a question.
    variables: the UEFI variables that it has there, None before its first start.
    """

    vm: Vm
    leases: Sequence[Lease]
    facts: HostFacts
    attachments: Sequence[Attachment]
    images: HostImages
    volumes: Sequence[Volume]
    floating: CpusByCell
    installs: bool = False
    variables: Variables | None = None

    def of_first_run(self) -> "DomainParts":
        """These parts for the first run of the VM."""
        return replace(self, installs=True)


def check(host: HostSession, vm: Vm, attachments: Sequence[Attachment], images: HostImages) -> None:
    """Check before anything is built that names are free and that network and pool can take the VM. Writes nothing."""
    request = vm.request
    refuse_other_domain(host, vm)
    refuse_taken_macs(host, vm, attachments)
    refuse_taken_volumes(host, vm)
    check_networks(host, vm, [one.port.position for one in attachments])
    if request.disk is not None:
        Storage(host.hypervisor).check_disk(request.disk.pool, request.disk.size_mib, images.base)
    for disk in request.data_disks:
        if disk.size_mib is not None:
            Storage(host.hypervisor).check_disk(disk.pool, disk.size_mib, None)


def check_networks(host: HostSession, vm: Vm, attached: Collection[int]) -> None:
    """Find out whether the host has the networks of all interfaces but those at positions `attached`.

    Raises NetworkMissing.
    """
    for interface in interfaces_of(vm.request):
        if interface.position not in attached:
            check_network(host.hypervisor, interface.network)


def refuse_other_domain(host: HostSession, vm: Vm) -> None:
    """Raise DomainRejected when the host has a domain of the VM's name with another UUID: it is somebody else's."""
    holder = host.hypervisor.uuid_of(vm.domain_name)
    if holder not in (None, vm.uuid):
        raise DomainRejected(
            f"{host.name} has a domain {vm.domain_name} that is not this VM's: its UUID is {holder}",
            hint="it stays as it is; choose another name for the VM, or another host",
        )


def refuse_taken_macs(host: HostSession, vm: Vm, attachments: Sequence[Attachment]) -> None:
    """Raise StateError when another domain of the host has the MAC address of one of the VM's interfaces.

    attachments: its places in tenants' networks; the VM's UUID gives the addresses of its other interfaces.
    """
    ports = {one.port.position: one.port.mac_address for one in attachments}
    own = {ports.get(one.position) or host_mac(vm.uuid, one.position) for one in interfaces_of(vm.request)}
    for domain in host.hypervisor.domains() if own else ():
        for mac in sorted(own.intersection(domain.macs) if domain.uuid != vm.uuid else ()):
            raise StateError(
                f"domain {domain.name} on {host.name} has the MAC address {mac} of an interface of {vm.printed_name}",
                hint="that domain may be a copy of this VM's: change its MAC address with `virsh edit`, or remove it",
            )


def check_nodes(vm: Vm, facts: HostFacts) -> None:
    """Find out whether the NUMA nodes and huge pages that it was placed on are still there. Raises ConcurrentChange."""
    missing = missing_on(facts, Footprint(vm.request.memory, vm.request.vcpus, vm.numa))
    if missing is not None:
        raise ConcurrentChange(f"{vm.host} has {missing} by now for {vm.printed_name}")


def check_parts(
    vm: Vm, facts: HostFacts, attachments: Sequence[Attachment], *, refusal: type[VgpuctlError] = StateError
) -> None:
    """Find out whether the host has by now what the firmware, the TPM and the networks of a VM need. Raises `refusal`.

    attachments: the VM's ports in tenants' networks. refusal: ConcurrentChange for a new VM, which is placed again.
    """
    for one in missing_parts(facts, parts_needed(with_attachments(vm.request, attachments))):
        raise refusal(f"{vm.printed_name} cannot start on {vm.host}: {one.read}", hint=one.fix)


def check_parts_now(services: Services, vm: Vm) -> None:
    """Ask the same of the VM's host as it is now, which is read only for a VM with such needs. Raises StateError."""
    attachments = attachments_of(services, vm)
    if not vm.is_adopted and parts_needed(with_attachments(vm.request, attachments)):
        check_parts(vm, read_facts(services, vm.host), attachments)


def check_display(vm: Vm, leases: Sequence[Lease], facts: HostFacts) -> None:
    """Find out, before anything is built, whether the console can show what it is to show. Raises GuestError."""
    shown_device(vm.request.display, sorted(leases, key=lambda lease: lease.index), facts)


def remove_domain(
    host: HostSession,
    vm: Vm,
    *,
    when_off: Callable[[DomainFact], object] | None = None,
    keeps_state: bool = False,
) -> None:
    """End and undefine the VM's domain if it is this VM's (same UUID); gone already is fine.

    when_off: what is to be done when it is off and still defined. keeps_state: its UEFI variables and its TPM stay,
    for they follow it to another host; otherwise they are removed.
    """
    domain = host.hypervisor.domain(vm.uuid)
    if domain is not None:
        host.hypervisor.destroy(domain.name, uuid=vm.uuid)
        if when_off is not None:
            when_off(domain)
        if not keeps_state:
            drop_state(host, vm)  # before libvirt does it, which overwrites nothing
        host.hypervisor.undefine(domain.name, uuid=vm.uuid, keeps_state=keeps_state)
    if not keeps_state:
        drop_state(host, vm)


def render(host: HostSession, parts: DomainParts) -> str:
    """Render the domain XML of a VM with its devices on this host, its port and its recorded volumes."""
    vm, images = parts.vm, parts.images
    view = domain_view(
        vm,
        parts.leases,
        parts.facts,
        disk=first_disk(host, vm, parts.volumes, images),
        data_disks=data_disks(host, vm, parts.volumes),
        seed_path=_medium(host, parts, VolumeKind.SEED),
        install_paths=images.media,
        answers_path=_medium(host, parts, VolumeKind.ANSWERS) if parts.installs else None,
        attachments=parts.attachments,
        direct_kernel=images.kernel,
        floating=parts.floating,
        hyperv=_reported_hyperv(host, vm, parts.facts),
        variables=parts.variables,
    )
    return render_domain(view)


def _medium(host: HostSession, parts: DomainParts, kind: VolumeKind) -> str | None:
    """The path of a medium that vgpuctl wrote for a VM; None where none is recorded."""
    if not any(one.kind is kind for one in parts.volumes):
        return None
    return find_own(Storage(host.hypervisor), parts.vm, parts.volumes, kind).path


def note_left_out(host: HostSession, vm: Vm, facts: HostFacts) -> str | None:
    """Say what a Windows guest does not get on its host; None for any other guest, and where it gets all."""
    return note_missing(facts, _reported_hyperv(host, vm, facts)) if is_windows(vm.request.os) else None


def _reported_hyperv(host: HostSession, vm: Vm, facts: HostFacts) -> frozenset[str] | None:
    is_asked = is_windows(vm.request.os) and facts.kvm
    return hyperv_features(host.hypervisor, kvm=True) if is_asked else None


def define(host: HostSession, parts: DomainParts) -> str:
    """Define the VM's domain (again) with its devices as they are now. Returns the XML given to libvirt."""
    xml = render(host, parts)
    host.hypervisor.define(xml)
    return xml


def prove_running(services: Services, host: HostSession, vm: Vm, leases: Sequence[Lease], *, boot_id: str) -> Findings:
    """Read back: libvirt says running, and everything that was promised and can be looked at now is so.

    boot_id: the host's boot before the start; a QEMU that a reboot ended says nothing about its VFs.
    Raises DomainRejected with what was read instead, GuestError when the host was rebooted meanwhile, or for a promise
    that is broken. Returns what was found of each row.
    """
    state = host.hypervisor.state(vm.domain_name, uuid=vm.uuid)
    if state is not DomainState.RUNNING:
        if state is None or not state.is_active():
            if host.agent.health().boot_id != boot_id:
                raise GuestError(
                    f"{vm.host} was rebooted while {vm.printed_name} was starting",
                    hint="run the same command again",
                )
            quarantine(services, host, leases, f"QEMU of {vm.printed_name} died right after its start")
        raise DomainRejected(
            f"{vm.printed_name} on {vm.host} was started, but libvirt says {state or 'no such domain'}"
        )
    return prove_start(services, host, vm, leases)


def wait_until_held(host: HostSession, vm: Vm, leases: Sequence[Lease]) -> None:
    """Wait until every share is held by this VM's QEMU. Raises GuestError that names those that are not."""
    deadline = time.monotonic() + HOLD_TIMEOUT_S
    waiting = list(leases)
    while waiting:
        waiting = [lease for lease in waiting if not is_held(host, vm, lease)]
        if waiting and time.monotonic() > deadline:
            raise GuestError(
                f"{vm.printed_name} runs on {vm.host}, but its QEMU does not hold "
                + ", ".join(lease.share.device for lease in waiting),
                hint=f"look at /var/log/libvirt/qemu/{vm.printed_name}.log on {vm.host}",
            )
        if waiting:
            time.sleep(0.2)


def is_held(host: HostSession, vm: Vm, lease: Lease) -> bool:
    """True if this VM's QEMU has the share's VFIO device open."""
    return any(holder.vm_uuid == vm.uuid for holder in host.agent.holders(lease.share.vfio_device))
