# SPDX-License-Identifier: Apache-2.0
"""Data disks that outlive their VMs: they are their tenant's, until one of its VMs takes them again by name."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from vgpuctl.errors import ConcurrentChange, StateError, UsageError
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.model.volume import KEPT, Volume, VolumeKind
from vgpuctl.store.store import Session
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.running.undo import Undo


def kept_disks(session: Session, tenant: str) -> list[Volume]:
    """The disks of a tenant that no VM has."""
    return session.volumes(vm_uuid=KEPT + tenant)


def refuse_shared_disks(requests: Sequence[VmRequest]) -> None:
    """Raise UsageError when two VMs of a tenant name the same data disk."""
    owners: dict[tuple[str, str], str] = {}
    for request in requests:
        for disk in request.data_disks:
            first = owners.setdefault((request.tenant, disk.name), request.name)
            if first != request.name:
                raise UsageError(
                    f"VMs {first} and {request.name} of tenant {request.tenant} both name the data disk {disk.name}",
                    hint="a disk belongs to one VM, and its name to one disk of the tenant: give each VM another name",
                )


def with_kept_disks(services: Services, requests: Sequence[VmRequest]) -> list[VmRequest]:
    """The requests, each on the host that has the kept disks which it names.

    Raises StateError for a disk that a VM of the tenant has, that is kept and asked for with a size, or that is neither
    there nor has a size; UsageError when its disks, or its `host`, are not of one host.
    """
    with services.store.reading() as session:
        return [_on_its_host(session, request) for request in requests]


def _on_its_host(session: Session, request: VmRequest) -> VmRequest:
    if not request.data_disks:
        return request
    own = session.volumes(tenant=request.tenant)
    kept = {one.label: one for one in own if one.is_kept}
    used = {one.label: one for one in own if one.kind is VolumeKind.DATA and not one.is_kept}
    hosts: dict[str, str] = {} if request.host is None else {request.host: "--host"}
    for disk in request.data_disks:
        holder = used.get(disk.name)
        if holder is not None and holder.vm_name != request.name:
            raise StateError(
                f"tenant {request.tenant} has its disk {disk.name} in VM {holder.vm_name} on {holder.host}",
                hint="a disk belongs to one VM: choose another name, or detach it there",
            )
        there = kept.get(disk.name)
        if there is None and disk.size_mib is None:
            raise StateError(
                f"tenant {request.tenant} has kept no disk {disk.name}, and {request.name} asks for it without a size",
                hint="give a size to make it; `vgpuctl list-disks` shows the disks of a tenant",
            )
        if there is not None and disk.size_mib is not None:
            raise StateError(
                f"tenant {request.tenant} has kept a disk {disk.name} on {there.host} already",
                hint="leave the size out to use it, or choose another name; `vgpuctl delete-disk` deletes it",
            )
        if there is not None:
            hosts.setdefault(there.host, f"disk {disk.name}")
    if len(hosts) > 1:
        told = ", ".join(f"{why} is of {host}" for host, why in hosts.items())
        raise UsageError(f"{request.name} cannot run on one host: {told}", hint="a disk is used on the host it is on")
    return replace(request, host=next(iter(hosts), None))


def take_kept(services: Services, vm: Vm, undoing: Undo) -> None:
    """Give the kept disks that a VM names to it. `undoing` gives them back to the tenant.

    Raises ConcurrentChange for one that another run took or deleted since the VM was planned.
    """
    wanted = {disk.name for disk in vm.request.data_disks if disk.size_mib is None}
    if not wanted:
        return
    with services.store.transaction() as session:
        found = [one for one in kept_disks(session, vm.request.tenant) if one.label in wanted]
        own = {one.label for one in session.volumes(vm_uuid=vm.uuid)}
        missing = sorted(wanted - own - {one.label for one in found})
        if missing:
            raise ConcurrentChange(
                f"another run took or deleted disk {missing[0]} of tenant {vm.request.tenant} meanwhile",
                hint=f"see `vgpuctl list-disks --tenant {vm.request.tenant}`",
            )
        for volume in found:
            session.take_volume(volume, vm.uuid, vm.request.name)
    for volume in found:
        taken = replace(volume, vm_uuid=vm.uuid, vm_name=vm.request.name, keep=True)
        undoing.push(f"disk {volume.label}", partial(_give_back, services, taken))


def _give_back(services: Services, volume: Volume) -> None:
    with services.store.transaction() as session:
        session.keep_volume(volume)


def keep_disks(services: Services, vm: Vm, volumes: Sequence[Volume]) -> list[Volume]:
    """Give the disks of a VM that is removed to its tenant, where they are to outlive it. Returns its other volumes.

    Of a VM that is still being created only disks that it took are kept, and none that was made for it.
    """
    is_rollback = vm.state is VmState.CREATING
    kept = [
        one
        for one in volumes
        if one.keep
        and one.kind is VolumeKind.DATA
        and one.is_made
        and not (is_rollback and one.name.startswith(vm.uuid))
    ]
    with services.store.transaction() as session:
        for volume in kept:
            session.keep_volume(volume)
            services.say(f"{vm.printed_name}: disk {volume.label} is kept on {volume.host}")
    return [one for one in volumes if one not in kept]


def vms_with_disks(session: Session) -> frozenset[str]:
    """UUIDs of the VMs with disks that are deleted with them."""
    kinds = (VolumeKind.DISK, VolumeKind.DATA)
    return frozenset(one.vm_uuid for one in session.volumes() if one.kind in kinds and not one.keep)
