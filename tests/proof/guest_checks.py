# SPDX-License-Identifier: Apache-2.0
"""Invariants of a VM's devices, firmware state and licence, checked without the product's rules.

The store is read for what it promises; libvirt and the hosts' files for what is there. Each check yields one sentence
per fault.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.guests.facts.domain_facts import DomainFact
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.model.disk_chain import chains
from vgpuctl.model.interfaces import host_mac, interfaces_of
from vgpuctl.model.lease import Lease
from vgpuctl.model.licence import LicencePool, LicenceSeat
from vgpuctl.model.network import Port
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.model.volume import Volume, VolumeKind, VolumeState
from vgpuctl.store.store import Store
from vgpuctl.usecases.running.services import Services
from vgpuctl_lab.simulated.machine.state import MachineFolder

STATE_FOLDERS = ("var/lib/libvirt/swtpm", "var/lib/libvirt/qemu/nvram")


@dataclass(frozen=True)
class GuestSeen:
    """The store's rows of guests at one moment."""

    vms: Sequence[Vm]
    leases: Sequence[Lease]
    volumes: Sequence[Volume]
    ports: Sequence[Port]
    pools: Sequence[LicencePool]
    seats: Sequence[LicenceSeat]
    nodes: frozenset[str] = frozenset()
    """UUIDs of the VMs of nodes."""

    def volumes_of(self, vm: Vm) -> list[Volume]:
        """The recorded volumes of a VM on its host."""
        return [one for one in self.volumes if (one.vm_uuid, one.host) == (vm.uuid, vm.host)]


def look_at_guests(store: Store) -> GuestSeen:
    """Read all of it in one transaction."""
    with store.reading() as session:
        return GuestSeen(
            session.vms(),
            session.leases(),
            session.volumes(),
            session.ports(),
            session.licence_pools(),
            session.licence_seats(),
            frozenset(one.vm_uuid for one in session.nodes()),
        )


def guest_faults(services: Services, seen: GuestSeen, hosts: Sequence[str]) -> Iterator[str]:
    """Everything that does not hold now, while no command is in flight."""
    yield from _seats(seen)
    yield from _data_disks(seen)
    yield from _ports(seen)
    for host in hosts:
        yield from _on_host(services, seen, host)


def state_files(machine: MachineFolder) -> list[str]:
    """The files of guests' TPMs and UEFI variables on a host."""
    files = (one for folder in STATE_FOLDERS for one in (machine.root / folder).rglob("*") if one.is_file())
    return sorted(str(one.relative_to(machine.root)) for one in files)


def _seats(seen: GuestSeen) -> Iterator[str]:
    """A VM that runs with a vGPU holds one seat; any other holds none."""
    if not seen.pools:
        return
    held = Counter(one.vm_uuid for one in seen.seats if one.released_at is None)
    for vm in seen.vms:
        own = [one for one in seen.leases if one.vm_uuid == vm.uuid and one.share.sharing is not Sharing.PASSTHROUGH]
        wanted = 1 if vm.state is VmState.RUNNING and any(one.state.is_attached() for one in own) else 0
        found = held.pop(vm.uuid, 0)
        if found != wanted and (wanted or not own or vm.state is not VmState.RUNNING):
            yield f"{vm.domain_name} is {vm.state} with {len(own)} vGPUs and holds {found} seats"
    if held:
        yield f"seats are held by VMs that are gone: {dict(held)}"


def _data_disks(seen: GuestSeen) -> Iterator[str]:
    """A disk belongs to one VM, which names it, or to its tenant; each disk that a VM names is recorded for it."""
    known = {vm.uuid for vm in seen.vms}
    for volume in seen.volumes:
        if not volume.is_kept and volume.vm_uuid not in known:
            yield f"{volume} is recorded for a VM that is gone"
    for vm in seen.vms:
        own = seen.volumes_of(vm)
        data = Counter(one.label for one in own if one.kind is VolumeKind.DATA and one.state is VolumeState.MADE)
        for disk in vm.request.data_disks:
            if data[disk.name] != 1:
                yield f"{vm.domain_name} names the disk {disk.name}, recorded {data[disk.name]} times"
        kinds = Counter(one.kind for one in own if one.is_made)
        if (vm.request.disk is not None) != (kinds[VolumeKind.DISK] == 1):
            yield f"{vm.domain_name} has {kinds[VolumeKind.DISK]} first disks recorded, wants {vm.request.disk}"
    names = Counter((one.tenant, one.label) for one in seen.volumes if one.kind is VolumeKind.DATA)
    for (tenant, label), count in names.items():
        if count > 1:
            yield f"the disk {label} of {tenant} is recorded {count} times"


def _ports(seen: GuestSeen) -> Iterator[str]:
    known = {vm.uuid for vm in seen.vms}
    for port in seen.ports:
        if port.vm_uuid not in known:
            yield f"the port {port.mac_address} is of a VM that is gone"
    for mac, count in Counter(one.mac_address for one in seen.ports).items():
        if count > 1:
            yield f"{count} ports have the address {mac}"


def _on_host(services: Services, seen: GuestSeen, host: str) -> Iterator[str]:
    hypervisor = services.host(host).hypervisor
    storage = Storage(hypervisor)
    there = {
        (pool.name, one.name): one.path
        for pool in storage.pools()
        if pool.is_active
        for one in storage.volumes(pool.name)
    }
    recorded = {(one.pool, one.name): one for one in seen.volumes if one.host == host}
    for (pool, name), volume in recorded.items():
        if volume.state in (VolumeState.MADE, VolumeState.DETACHING) and (pool, name) not in there:
            yield f"{volume} is recorded as {volume.state} and not there"
    for pool, name in sorted(there.keys() - recorded.keys()):
        yield f"{host} has a volume {name} in pool {pool} that is not recorded"
    owners = {path: recorded[key].vm_uuid for key, path in there.items() if key in recorded}
    yield from _domains(host, seen, hypervisor.domains(), owners)


def _domains(host: str, seen: GuestSeen, domains: Sequence[DomainFact], owners: Mapping[str, str]) -> Iterator[str]:
    """A domain that runs has its own VM's volumes, and every disk, interface and GPU that it was started with."""
    vms = {vm.uuid: vm for vm in seen.vms}
    for domain in domains:
        vm = vms.get(domain.uuid)
        if vm is None or not domain.state.is_active():
            continue
        if vm.host != host or domain.name != vm.domain_name:
            yield f"{domain.name} runs on {host}, its VM is {vm.domain_name} of {vm.host}"
        for path in domain.disks:
            if owners.get(path, vm.uuid) != vm.uuid:
                yield f"{domain.name} has the disk {path}, which is recorded for {owners[path]}"


def started_faults(services: Services, seen: GuestSeen, hosts: Sequence[str]) -> Iterator[str]:
    """A VM that was started after all that was done to it has exactly the devices that the store says."""
    facts = {(host, one.uuid): one for host in hosts for one in services.host(host).hypervisor.domains()}
    for vm in (one for one in seen.vms if one.state is VmState.RUNNING and not one.is_adopted):
        domain = facts.get((vm.host, vm.uuid))
        if domain is None:
            yield f"{vm.domain_name} is not on {vm.host}"
            continue
        own = seen.volumes_of(vm)
        names = {one.name for one in vm.request.data_disks}
        used = [one for one in chains(own) if not one.disk.label or one.disk.label in names]
        disks = {volume.path for chain in used for volume in (chain.disk, *chain.overlays)}
        disks |= {one.path for one in own if one.kind is VolumeKind.SEED}
        if disks != set(domain.disks):
            yield f"{domain.name} was started with the disks {sorted(domain.disks)}, and is to have {disks}"
        ports = {one.position: one.mac_address for one in seen.ports if one.vm_uuid == vm.uuid}
        macs = {ports.get(one.position, host_mac(vm.uuid, one.position)) for one in interfaces_of(vm.request)}
        if macs != set(domain.macs) or not set(ports.values()) <= macs:
            yield f"{domain.name} was started with {domain.macs}, and is to have {macs}, with the ports {ports}"
        shares = [one.share for one in seen.leases if one.vm_uuid == vm.uuid]
        devices = {one.vfio_device for one in shares} | {one for share in shares for one in share.companions}
        if devices != {one.device for one in domain.hostdevs}:
            yield f"{domain.name} was started with {domain.hostdevs}, and its leases say {sorted(devices)}"
