# SPDX-License-Identifier: Apache-2.0
"""The data disks of tenants: which there are, which VM has each, and when one that was detached is free.

A data disk is recorded as a volume, whose label is its name. It belongs to the VM that its record names, else to the
tenant alone. While it is `detaching`, its VM's running domain may still have it.
"""

import contextlib
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vgpuctl.errors import NotFound, StateError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vm import Vm
from vgpuctl.model.volume import Volume, VolumeKind, VolumeState
from vgpuctl.store.store import Session
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class TenantDisk:
    """One data disk. vm: the VM that has it, None when none does."""

    volume: Volume
    vm: Vm | None

    @property
    def state(self) -> str:
        """Its use: `attached`, `detaching`, `free`, or `intended` when its creation did not end."""
        if self.volume.state is VolumeState.INTENDED:
            return "intended"
        if self.vm is None:
            return "free"
        return "detaching" if self.volume.state is VolumeState.DETACHING else "attached"


def tenant_disks(session: Session, tenant: str | None = None) -> list[TenantDisk]:
    """All data disks of a tenant, or of all, by tenant and name; without those kept with a deleted VM."""
    vms = {vm.uuid: vm for vm in session.vms(tenant=tenant)}
    deleted = {kept.uuid for kept in session.kept_vms(tenant=tenant)}
    volumes = [
        one for one in session.volumes(tenant=tenant) if one.kind is VolumeKind.DATA and one.vm_uuid not in deleted
    ]
    found = [
        TenantDisk(one, _holder(one, vms.get(one.vm_uuid)))
        for one in volumes
        if not _is_copy(one, vms.get(one.vm_uuid))
    ]
    return sorted(found, key=lambda disk: (disk.volume.tenant, disk.volume.label, disk.volume.host))


@dataclass(frozen=True)
class ListedDisk:
    """One data disk, or a disk that is kept of a deleted VM, by that VM's name.

    vm: the VM that has it, or had it; None when none does. keep: it outlives its VM. until: when it is deleted
    (seconds since the epoch, UTC), None for never.
    """

    tenant: str
    name: str
    state: str
    vm: str | None
    host: str
    pool: str
    volume: str
    size_bytes: int | None
    keep: bool
    until: float | None = None


def list_disks(services: Services, tenant: str | None) -> list[ListedDisk]:
    """The data disks of a tenant, or of all, and the kept disks of deleted VMs; by tenant and name.

    Raises NotFound for an unknown tenant.
    """
    with services.store.reading() as session:
        if tenant is not None:
            session.tenant(tenant)
        found = tenant_disks(session, tenant)
        deleted = [(kept, session.volumes(vm_uuid=kept.uuid)) for kept in session.kept_vms(tenant=tenant)]
    listed = [
        ListedDisk(
            tenant=one.volume.tenant,
            name=one.volume.label,
            state=one.state,
            vm=None if one.vm is None else one.vm.request.name,
            host=one.volume.host,
            pool=one.volume.pool,
            volume=one.volume.name,
            size_bytes=one.volume.capacity_bytes,
            keep=bool(one.volume.keep),
        )
        for one in found
    ]
    listed += [
        ListedDisk(
            tenant=kept.request.tenant,
            name=one.label or kept.request.name,
            state="kept",
            vm=kept.request.name,
            host=one.host,
            pool=one.pool,
            volume=one.name,
            size_bytes=one.capacity_bytes,
            keep=True,
            until=kept.until,
        )
        for kept, volumes in deleted
        for one in volumes
        if one.kind in (VolumeKind.DISK, VolumeKind.DATA)
    ]
    return sorted(listed, key=lambda one: (one.tenant, one.name, one.host))


def find_disk(session: Session, tenant: str, name: str) -> TenantDisk | None:
    """The data disk of a tenant with this name; None when there is none. Raises NotFound for an unknown tenant."""
    session.tenant(tenant)
    return next((disk for disk in tenant_disks(session, tenant) if disk.volume.label == name), None)


def named_disk(session: Session, tenant: str, name: str) -> TenantDisk:
    """The data disk of a tenant with this name. Raises NotFound with near names."""
    found = find_disk(session, tenant, name)
    if found is None:
        names = [disk.volume.label for disk in tenant_disks(session, tenant)]
        raise no_such_disk(f"tenant {tenant}", tenant, name, names)
    return found


def no_such_disk(owner: str, tenant: str, name: str, names: Sequence[str]) -> NotFound:
    """The error for a name that no data disk has."""
    near = difflib.get_close_matches(name, names, n=3)
    hint = f"did you mean {', '.join(near)}?" if near else f"see `vgpuctl list-disks --tenant {tenant}`"
    return NotFound(f"{owner} has no data disk {name!r}", hint=hint)


@contextlib.contextmanager
def disk_operation(services: Services, kind: str, tenant: str, name: str) -> Iterator[None]:
    """Keep other runs from a name of a tenant's disks. Raises ConcurrentChange when one of them is at work on it."""
    subject = f"disk:{tenant}/{name}"
    with services.store.operation(kind, subject, subject, exclusive=True, takes_over=True):
        yield


def settle_detach(services: Services, disk: TenantDisk) -> TenantDisk:
    """Free a disk that was being detached, when the running domain of its VM has let go of it.

    A VM that is off has no running domain. A run that was killed may not have come to the definition, so that is made
    again first where it still names the disk. The disk comes back as it is now.
    """
    if disk.vm is None or not has_let_go(services, disk):
        return disk
    from vgpuctl.guests.facts.disk_facts import disk_of  # not needed to list disks
    from vgpuctl.usecases.domain.definition import define_again

    host = services.host(disk.vm.host)
    definition = host.hypervisor.definition(disk.vm.domain_name, uuid=disk.vm.uuid)
    if definition is not None and disk_of(definition, disk.volume.label) is not None:
        define_again(services, host, disk.vm)
    with services.store.transaction() as session:
        session.keep_volume(disk.volume)
        note_disk(session, EventKind.DISK_DETACHED, disk.volume, disk.vm)
        free = find_disk(session, disk.volume.tenant, disk.volume.label)
    assert free is not None
    return free


def has_let_go(services: Services, disk: TenantDisk) -> bool:
    """True for a disk that is being detached and that the running domain of its VM no longer has."""
    if disk.vm is None or disk.volume.state is not VolumeState.DETACHING:
        return False
    from vgpuctl.guests.facts.disk_facts import disk_of
    from vgpuctl.guests.live.disks import LiveDisks

    live = LiveDisks(services.host(disk.vm.host).hypervisor, disk.vm.domain_name, uuid=disk.vm.uuid).xml()
    return live is None or disk_of(live, disk.volume.label) is None


def refuse_attached(disk: TenantDisk, what: str) -> None:
    """Raise StateError, which names the VM, for a disk that a VM has. what: `delete`."""
    if disk.vm is None:
        return
    name, vm = disk.volume.label, disk.vm
    if disk.volume.state is VolumeState.DETACHING:
        raise StateError(
            f"cannot {what} disk {name}: VM {vm.request.name} of tenant {vm.request.tenant} on {vm.host} has not"
            " released it yet",
            hint=f"unmount it in the guest, run `{detach_command(vm, name)}` again, or stop the VM",
        )
    raise StateError(
        f"cannot {what} disk {name}: it is attached to VM {vm.request.name} of tenant {vm.request.tenant} on {vm.host}",
        hint=f"detach it first: `{detach_command(vm, name)}`",
    )


def detach_command(vm: Vm, disk: str) -> str:
    """The command that detaches a disk, for hints."""
    return f"vgpuctl detach-disk {vm.printed_name} {disk}"


def note_disk(session: Session, kind: EventKind, volume: Volume, vm: Vm) -> None:
    """Add the event of a change to a data disk of a VM."""
    after = {"disk": volume.label, "pool": volume.pool, "name": volume.name, "state": str(volume.state)}
    session.add_event(
        kind, vm.printed_name, f"disk {volume.label}", tenant=vm.request.tenant, host=vm.host, after=after
    )


def _holder(volume: Volume, vm: Vm | None) -> Vm | None:
    """The VM that has a disk; None for a disk of which a killed run had not yet told its VM."""
    if vm is None or volume.state is VolumeState.DETACHING:
        return vm
    return vm if any(one.name == volume.label for one in vm.request.data_disks) else None


def _is_copy(volume: Volume, vm: Vm | None) -> bool:
    """True for the volume that a move has made, or left, on a host where the VM is not."""
    return vm is not None and vm.host != volume.host
