# SPDX-License-Identifier: Apache-2.0
"""resize-disk: make a disk of a VM larger, while its guest runs or not. A disk never gets smaller."""

from dataclasses import dataclass, replace
from functools import partial

from vgpuctl.errors import StateError, VolumeRejected
from vgpuctl.guests.facts.storage_facts import VolumeFact
from vgpuctl.guests.live.disks import LiveDisks, grow_volume
from vgpuctl.guests.live.domain import LiveChange
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.units import MIB, format_mib
from vgpuctl.model.vm import Vm, VmRequest
from vgpuctl.model.volume import Volume, VolumeKind, wanted_volumes
from vgpuctl.quota.resources import Resource
from vgpuctl.store.session import Session
from vgpuctl.usecases.disk.snapshots import fact_of, refuse_snapshots
from vgpuctl.usecases.disk.tenant_disks import no_such_disk
from vgpuctl.usecases.domain.definition import refuse_fixed
from vgpuctl.usecases.found.find_vm import find_vm
from vgpuctl.usecases.running.operations import operation
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.running.undo import Undo


@dataclass(frozen=True)
class DiskGrowth:
    """The size of a disk before and after. disk: name of a data disk, None for the first disk."""

    vm: str
    disk: str | None
    before_bytes: int
    after_bytes: int

    @property
    def changed(self) -> bool:
        """True if it has grown."""
        return self.before_bytes != self.after_bytes


def resize_disk(services: Services, vm: Vm, name: str | None, size_mib: int) -> DiskGrowth:
    """Grow a disk of a VM to size_mib. name: of a data disk, None for the first disk.

    A running guest is told of it; its partitions and file systems are its own affair. The same size again changes
    nothing. Raises StateError for a smaller size, NotFound, and VolumeRejected or DomainRejected when the host refuses.
    """
    refuse_fixed(vm, "resize a disk of")
    with operation(services, "resize-disk", vm):
        vm, _ = find_vm(services, vm.request.tenant, vm.request.name)
        host, volume = services.host(vm.host), _volume(services, vm, name)
        fact = fact_of(host, volume)
        wanted = size_mib * MIB
        if wanted < fact.capacity_bytes:
            raise StateError(
                f"{vm.printed_name}: {_shown(name)} has {format_mib(fact.capacity_bytes // MIB)} and cannot shrink to"
                f" {format_mib(size_mib)}: its guest would lose data",
                hint="make a smaller disk with `vgpuctl attach-disk`, and copy in the guest",
            )
        request = _with_size(vm.request, name, size_mib)
        if wanted > fact.capacity_bytes:
            refuse_snapshots(services, vm, "resize a disk of", disk=volume.label)
        if wanted > fact.capacity_bytes or request != vm.request:
            _grow(services, host, vm, request, volume, fact, wanted)
        elif volume.capacity_bytes != wanted:  # of a run that was killed when the disk had grown
            with services.store.transaction() as session:
                session.set_volume_size(volume, wanted)
        return DiskGrowth(vm.printed_name, name, fact.capacity_bytes, wanted)


def _grow(
    services: Services, host: HostSession, vm: Vm, request: VmRequest, volume: Volume, fact: VolumeFact, wanted: int
) -> None:
    with Undo(services.say, subject=vm.printed_name) as undoing:
        _note(services, vm, request, volume, fact.capacity_bytes, wanted)
        undoing.push(
            "size in the request", partial(_note, services, vm, vm.request, volume, wanted, fact.capacity_bytes)
        )
        if wanted > fact.capacity_bytes:
            disks = LiveDisks(host.hypervisor, vm.domain_name, uuid=vm.uuid)
            if disks.resize(fact.path, wanted) is LiveChange.NEXT_START:
                if disks.xml() is not None:
                    raise StateError(
                        f"{vm.printed_name} runs, and libvirt on {vm.host} cannot resize a disk in use",
                        hint="stop the VM first",
                    )
                grow_volume(host.hypervisor, volume.pool, volume.name, wanted)
            grown = fact_of(host, volume)
            if grown.capacity_bytes != wanted:
                raise VolumeRejected(
                    f"{volume} has {grown.capacity_bytes} bytes after it was resized to {wanted} on {vm.host}"
                )
        undoing.keep()
    with services.store.transaction() as session:
        session.set_volume_size(volume, wanted)


def _note(services: Services, vm: Vm, request: VmRequest, volume: Volume, before: int, after: int) -> None:
    with services.store.transaction() as session:
        session.set_vm_request(vm.uuid, request)
        if after > before:
            _refuse_over_quota(session, vm, volume)
        session.add_event(
            EventKind.DISK_RESIZED,
            vm.printed_name,
            _shown(volume.label or None),
            tenant=vm.request.tenant,
            host=vm.host,
            before={"bytes": before},
            after={"bytes": after},
        )


def _refuse_over_quota(session: Session, vm: Vm, volume: Volume) -> None:
    """Raise QuotaExceeded when what disks of the tenant are to grow by does not fit; others may grow just now too.

    A volume keeps its recorded size until it has grown: that is how one is known again after a kill.
    """
    tenant = vm.request.tenant
    recorded = {one.name: one.capacity_bytes or 0 for one in session.volumes(tenant=tenant)}
    coming = sum(
        max(0, (wanted.capacity_bytes or 0) - recorded[wanted.name])
        for other in session.vms(tenant=tenant)
        for wanted in wanted_volumes(other)
        if wanted.name in recorded
    )
    session.require_room(tenant, Resource.DISK, -(-coming // MIB), str(volume))


def _volume(services: Services, vm: Vm, name: str | None) -> Volume:
    kind = VolumeKind.DISK if name is None else VolumeKind.DATA
    with services.store.reading() as session:
        volumes = session.volumes(vm_uuid=vm.uuid, host=vm.host)
    found = next((one for one in volumes if one.kind is kind and one.label == (name or "")), None)
    if found is None and name is None:
        raise StateError(
            f"{vm.printed_name} has no first disk", hint="name a data disk with --disk; `vgpuctl list-disks` shows them"
        )
    if found is None or (name is not None and name not in {one.name for one in vm.request.data_disks}):
        names = [one.name for one in vm.request.data_disks]
        raise no_such_disk(f"VM {vm.request.name}", vm.request.tenant, name or "", names)
    return found


def _with_size(request: VmRequest, name: str | None, size_mib: int) -> VmRequest:
    if name is None:
        return request if request.disk is None else replace(request, disk=replace(request.disk, size_mib=size_mib))
    disks = tuple(
        replace(one, size_mib=size_mib) if one.name == name and one.size_mib is not None else one
        for one in request.data_disks
    )
    return replace(request, data_disks=disks)


def _shown(name: str | None) -> str:
    return "its first disk" if name is None else f"disk {name}"
