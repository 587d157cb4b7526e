# SPDX-License-Identifier: Apache-2.0
"""detach-disk: take a data disk from a VM. The tenant keeps it, and it is free when the guest has let go of it."""

from dataclasses import replace

from vgpuctl.errors import StateError
from vgpuctl.guests.live.disks import LiveDisks
from vgpuctl.guests.live.domain import LiveChange
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vm import Vm
from vgpuctl.model.volume import VolumeKind, VolumeState
from vgpuctl.usecases.disk.attach_disk import DiskChange
from vgpuctl.usecases.disk.snapshots import refuse_snapshots
from vgpuctl.usecases.disk.tenant_disks import find_disk, no_such_disk, note_disk, settle_detach
from vgpuctl.usecases.domain.definition import define_again, refuse_fixed
from vgpuctl.usecases.found.find_vm import find_vm
from vgpuctl.usecases.running.operations import operation
from vgpuctl.usecases.running.services import Services

_FIRST_DISK = ("disk", "root", "vda", "sda")


def detach_disk(services: Services, vm: Vm, name: str, *, timeout_s: float) -> DiskChange:
    """Take a data disk from a VM, and wait up to timeout_s for its running guest to let go of it.

    A guest that keeps it leaves the outcome `pending`: the disk is not in the VM's definition any more, and belongs to
    the VM until its guest lets go or is stopped; the same command again looks again. Raises NotFound, and StateError
    for the VM's first disk.
    """
    refuse_fixed(vm, "detach a disk from")
    with operation(services, "detach-disk", vm):
        vm, _ = find_vm(services, vm.request.tenant, vm.request.name)
        with services.store.reading() as session:
            disk = find_disk(session, vm.request.tenant, name)
        has_it = any(one.name == name for one in vm.request.data_disks)
        is_detaching = disk is not None and disk.vm == vm and disk.volume.state is VolumeState.DETACHING
        if not has_it and disk is not None and disk.vm is None:
            return DiskChange(vm.printed_name, name, False, LiveChange.DONE)
        if disk is None or not (has_it or is_detaching):
            _refuse_first(vm, name)
            raise no_such_disk(
                f"VM {vm.request.name}", vm.request.tenant, name, [one.name for one in vm.request.data_disks]
            )
        host = services.host(vm.host)
        if has_it:
            refuse_snapshots(services, vm, "detach a disk from", disk=name)
            vm = _begin(services, vm, name)
        define_again(services, host, vm)
        outcome = LiveDisks(host.hypervisor, vm.domain_name, uuid=vm.uuid).detach(name, timeout_s=timeout_s)
        if outcome is LiveChange.DONE:
            with services.store.reading() as session:
                detaching = find_disk(session, vm.request.tenant, name)
            if detaching is not None:
                settle_detach(services, detaching)
        return DiskChange(vm.printed_name, name, has_it or outcome is LiveChange.DONE, outcome)


def _begin(services: Services, vm: Vm, name: str) -> Vm:
    """Record, before anything is done, that the disk leaves the VM and stays with the tenant."""
    request = replace(vm.request, data_disks=tuple(one for one in vm.request.data_disks if one.name != name))
    with services.store.transaction() as session:
        volumes = session.volumes(vm_uuid=vm.uuid, host=vm.host)
        volume = next(one for one in volumes if one.kind is VolumeKind.DATA and one.label == name)
        session.set_vm_request(vm.uuid, request)
        detaching = session.begin_detach(volume)
        note_disk(session, EventKind.DISK_DETACHING, detaching, vm)
    return replace(vm, request=request)


def _refuse_first(vm: Vm, name: str) -> None:
    if name in _FIRST_DISK and vm.request.disk is not None:
        raise StateError(
            f"cannot detach {name!r} from {vm.printed_name}: its first disk stays with the VM",
            hint="only data disks can be detached: see `vgpuctl list-disks`",
        )
