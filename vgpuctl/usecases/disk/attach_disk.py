# SPDX-License-Identifier: Apache-2.0
"""attach-disk: give a VM one more disk, a new one or one that the tenant has; at once where the guest runs."""

from dataclasses import dataclass, replace
from functools import partial

from vgpuctl.catalog.guest_os import with_os_defaults
from vgpuctl.errors import StateError, UsageError
from vgpuctl.guests.facts.disk_facts import has_scsi_controller
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.guests.live.disks import LiveDisks
from vgpuctl.guests.live.domain import LiveChange
from vgpuctl.model.disk import DataDisk, DiskBus
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.units import format_mib
from vgpuctl.model.vm import Vm, VmRequest
from vgpuctl.model.volume import Volume, VolumeKind, wanted_volumes
from vgpuctl.specs.vm_devices import check_devices
from vgpuctl.usecases.disk.tenant_disks import (
    TenantDisk,
    disk_operation,
    find_disk,
    note_disk,
    refuse_attached,
    settle_detach,
)
from vgpuctl.usecases.domain.definition import define_again, refuse_fixed
from vgpuctl.usecases.found.find_vm import find_vm
from vgpuctl.usecases.image.answers import answers_of
from vgpuctl.usecases.image.volumes import make_volume, remove_recorded
from vgpuctl.usecases.running.operations import operation
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.running.undo import Undo


@dataclass(frozen=True)
class DiskChange:
    """A change to one disk of a VM. outcome: when the running guest has it."""

    vm: str
    disk: str
    changed: bool
    outcome: LiveChange


def attach_disk(services: Services, vm: Vm, wanted: DataDisk) -> DiskChange:
    """Give a VM a data disk: a new one of the wanted size, or the tenant's own of that name.

    The same disk again changes nothing, and finishes what an interrupted run left. When anything fails, the VM is as it
    was: a disk that was made for it is deleted, one that was there is free again. Raises StateError for a disk of
    another VM or on another host, UsageError for a new one without a size.
    """
    refuse_fixed(vm, "attach a disk to")
    with (
        operation(services, "attach-disk", vm),
        disk_operation(services, "attach-disk", vm.request.tenant, wanted.name),
    ):
        vm, _ = find_vm(services, vm.request.tenant, vm.request.name)
        with services.store.reading() as session:
            known = find_disk(session, vm.request.tenant, wanted.name)
            if answers_of(session, vm):
                raise StateError(
                    f"cannot attach disk {wanted.name} to {vm.printed_name}: its unattended installation may still run,"
                    " and could take the disk for the one that it wipes",
                    hint=f"when it is over, first run `vgpuctl eject-iso {vm.printed_name}`",
                )
        known = None if known is None else settle_detach(services, known)
        there = next((one for one in vm.request.data_disks if one.name == wanted.name), None)
        if there is not None:
            _refuse_other(vm, there, wanted)
            outcome = _attach(services, services.host(vm.host), vm, wanted.name)
            return DiskChange(vm.printed_name, wanted.name, False, outcome)
        live = LiveDisks(services.host(vm.host).hypervisor, vm.domain_name, uuid=vm.uuid).xml()
        disk = _decided(vm.request, wanted, known, on_scsi=live is not None and has_scsi_controller(live))
        _refuse_unfit(vm, disk, known)
        request = replace(vm.request, data_disks=(*vm.request.data_disks, disk))
        check_devices(request)
        with services.store.reading() as session:
            request = session.with_usual(request, vm.request)
            session.require_below(request, vm.request)
        return _add(services, vm, request.data_disks[-1], None if known is None else known.volume)


def _add(services: Services, vm: Vm, disk: DataDisk, known: Volume | None) -> DiskChange:
    host = services.host(vm.host)
    request = replace(vm.request, data_disks=(*vm.request.data_disks, disk))
    new = replace(vm, request=request)
    with Undo(services.say, subject=vm.printed_name) as undoing:
        if known is None or not known.is_made:
            if known is not None:
                remove_recorded(services, host, known)
            known = _make(services, host, new, disk, undoing)
        with services.store.transaction() as session:
            if known.vm_uuid != vm.uuid:
                session.take_volume(known, vm.uuid, vm.request.name)
            session.set_vm_request(vm.uuid, request)
            note_disk(session, EventKind.DISK_ATTACHED, known, vm)
        undoing.push("request of the VM", partial(_forget, services, vm, known))
        outcome = _attach(services, host, new, disk.name, undoing=undoing, before=vm)
        undoing.keep()
    return DiskChange(vm.printed_name, disk.name, True, outcome)


def _make(services: Services, host: HostSession, vm: Vm, disk: DataDisk, undoing: Undo) -> Volume:
    """Make a new disk. It is recorded before, and deleted when the run fails."""
    (volume,) = (one for one in wanted_volumes(vm) if (one.kind, one.label) == (VolumeKind.DATA, disk.name))
    storage = Storage(host.hypervisor)
    assert disk.size_mib is not None
    size_mib = disk.size_mib
    storage.check_disk(volume.pool, size_mib, None)
    services.say(f"{vm.printed_name}: making disk {disk.name} of {format_mib(size_mib)}")
    undoing.push(f"disk {disk.name}", partial(_remove, services, host, volume))
    make_volume(services, volume, lambda: storage.create_disk(volume.pool, volume.name, size_mib))
    return _recorded(services, volume)


def _attach(
    services: Services,
    host: HostSession,
    vm: Vm,
    name: str,
    *,
    undoing: Undo | None = None,
    before: Vm | None = None,
) -> LiveChange:
    """Define the domain with the disk, and attach it to the running one. before: the VM without it, to roll back to."""
    if undoing is not None and before is not None:
        undoing.push("definition", partial(define_again, services, host, before))
    xml = define_again(services, host, vm)
    return LiveDisks(host.hypervisor, vm.domain_name, uuid=vm.uuid).attach(xml, name)


def _forget(services: Services, vm: Vm, volume: Volume) -> None:
    """Take the disk from the request. One that the tenant had kept is the tenant's again."""
    with services.store.transaction() as session:
        session.set_vm_request(vm.uuid, vm.request)
        if volume.is_kept:
            session.keep_volume(replace(volume, vm_uuid=vm.uuid, vm_name=vm.request.name))
        note_disk(session, EventKind.DISK_DETACHED, volume, vm)


def _remove(services: Services, host: HostSession, volume: Volume) -> None:
    with services.store.reading() as session:
        left = [one for one in session.volumes(host=host.name, tenant=volume.tenant) if one.name == volume.name]
    for one in left:
        remove_recorded(services, host, one)


def _recorded(services: Services, volume: Volume) -> Volume:
    with services.store.reading() as session:
        return next(
            one
            for one in session.volumes(host=volume.host, tenant=volume.tenant)
            if (one.pool, one.name) == (volume.pool, volume.name)
        )


def _decided(request: VmRequest, wanted: DataDisk, known: TenantDisk | None, *, on_scsi: bool) -> DataDisk:
    """The disk with everything decided: its bus is SCSI where the VM has that, else as its operating system has it.

    on_scsi: the running guest has a SCSI controller, on which a disk needs no port.
    """
    if known is not None and known.volume.is_kept:
        wanted = replace(wanted, pool=known.volume.pool, keep=True)
    buses = {one.bus for one in (*request.data_disks, request.disk) if one is not None}
    if wanted.bus is None and (on_scsi or DiskBus.SCSI in buses):
        wanted = replace(wanted, bus=DiskBus.SCSI)
    return with_os_defaults(replace(request, data_disks=(wanted,))).data_disks[0]


def _refuse_unfit(vm: Vm, disk: DataDisk, known: TenantDisk | None) -> None:
    is_there = known is not None and known.volume.is_made
    if not is_there and disk.size_mib is None:
        raise UsageError(
            f"tenant {vm.request.tenant} has no disk {disk.name!r} to attach to {vm.request.name}",
            hint=f"give a size to make a new one: {disk.name},size=100GiB",
        )
    if known is None:
        return
    volume = known.volume
    refuse_attached(known, "attach")
    if volume.host != vm.host:
        raise StateError(
            f"cannot attach disk {disk.name} to {vm.request.name}: the disk is on {volume.host}, the VM on {vm.host}",
            hint=f"move the VM: `vgpuctl move-vm {vm.printed_name} --to {volume.host}`",
        )
    if volume.is_kept and disk.size_mib is not None:
        raise StateError(
            f"tenant {vm.request.tenant} has kept a disk {disk.name} already",
            hint="leave the size out to attach it, or choose another name; `vgpuctl delete-disk` deletes it",
        )


def _refuse_other(vm: Vm, there: DataDisk, wanted: DataDisk) -> None:
    """Raise StateError when the VM has a disk of the name that is not as wanted."""
    plain = DataDisk(wanted.name)
    names = ("size_mib", "pool", "bus", "cache", "iops", "mbps", "keep")
    differing = [
        f"{name}: {getattr(there, name)} there, {getattr(wanted, name)} wanted"
        for name in names
        if getattr(wanted, name) not in (getattr(plain, name), getattr(there, name))
    ]
    if differing:
        raise StateError(
            f"{vm.printed_name} has disk {wanted.name} otherwise",
            context=differing,
            hint="detach it, then attach it as wanted; `vgpuctl resize-vm --disk-iops` and `--disk-mbps` change its"
            " limits",
        )
