# SPDX-License-Identifier: Apache-2.0
"""list-disks: the data disks of tenants. It contacts no host."""

from dataclasses import dataclass

from vgpuctl.usecases.disk.tenant_disks import tenant_disks
from vgpuctl.usecases.support.services import Services


@dataclass(frozen=True)
class ListedDisk:
    """One data disk. vm: the VM that has it, None when none does. keep: it outlives its VM."""

    tenant: str
    name: str
    state: str
    vm: str | None
    host: str
    pool: str
    volume: str
    size_bytes: int | None
    keep: bool


def list_disks(services: Services, tenant: str | None) -> list[ListedDisk]:
    """The data disks of a tenant, or of all, by tenant and name. Raises NotFound for an unknown tenant."""
    with services.store.reading() as session:
        if tenant is not None:
            session.tenant(tenant)
        found = tenant_disks(session, tenant)
    return [
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
