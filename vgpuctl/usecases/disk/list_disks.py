# SPDX-License-Identifier: Apache-2.0
"""list-disks: the data disks of tenants. It contacts no host."""

from dataclasses import dataclass

from vgpuctl.model.volume import VolumeKind
from vgpuctl.usecases.disk.tenant_disks import tenant_disks
from vgpuctl.usecases.running.services import Services


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
