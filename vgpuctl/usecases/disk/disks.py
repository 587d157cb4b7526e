# SPDX-License-Identifier: Apache-2.0
"""Data disks that tenants keep."""

from collections.abc import Sequence

from vgpuctl.errors import UsageError
from vgpuctl.model.kept_vm import KeptVm
from vgpuctl.model.times import format_time
from vgpuctl.model.vm import printed_name
from vgpuctl.model.volume import Volume
from vgpuctl.store.store import Session
from vgpuctl.usecases.disk.kept_vms import delete_kept
from vgpuctl.usecases.disk.tenant_disks import (
    TenantDisk,
    disk_operation,
    find_disk,
    named_disk,
    refuse_attached,
    settle_detach,
    tenant_disks,
)
from vgpuctl.usecases.found.deletion import Deletion
from vgpuctl.usecases.image.volumes import remove_recorded
from vgpuctl.usecases.running.services import Services


def deletable_disk(session: Session, tenant: str, name: str) -> TenantDisk | KeptVm:
    """The data disk of a tenant with this name, or the deleted VM of this name whose disks are kept.

    The disks of a VM are not kept while its tenant has a data disk of its name. Raises NotFound with near names.
    """
    kept = session.kept_vm(tenant, name)
    disk = find_disk(session, tenant, name)
    if kept is not None and disk is not None:
        raise UsageError(
            f"{tenant}/{name} is a data disk on {disk.volume.host}, and also a deleted VM whose disks are kept",
            hint=f"restore that VM first: `vgpuctl restore-vm {tenant}/{name} --no-start`",
        )
    return kept if kept is not None else named_disk(session, tenant, name)


def delete_disk(services: Services, disk: TenantDisk) -> Volume:
    """Delete a data disk with its record. Raises StateError, which names the VM that has it, and VolumeRejected."""
    with disk_operation(services, "delete-disk", disk.volume.tenant, disk.volume.label):
        free = settle_detach(services, disk)
        if free.state != "intended":
            refuse_attached(free, "delete")
        remove_recorded(services, services.host(free.volume.host), free.volume)
    return free.volume


def _names(session: Session, tenant: str) -> Sequence[str]:
    kept = [one.request.name for one in session.kept_vms() if one.request.tenant == tenant]
    return [*dict.fromkeys([*kept, *(one.volume.label for one in tenant_disks(session, tenant))])]


def _printed(found: TenantDisk | KeptVm) -> str:
    return (
        printed_name(found.request.tenant, found.request.name)
        if isinstance(found, KeptVm)
        else printed_name(found.volume.tenant, found.volume.label)
    )


def _describe(found: TenantDisk | KeptVm) -> str:
    if isinstance(found, KeptVm):
        return (
            f"disks of the deleted VM {found.request.name} on {found.host}, kept until {format_time(found.until)} UTC"
        )
    return f"disk {found.volume.label}: {found.state}, {found.volume.name} on {found.volume.host}"


def _delete(services: Services, found: TenantDisk | KeptVm) -> None:
    """Raises what `delete_disk` and `delete_kept` raise."""
    if isinstance(found, KeptVm):
        delete_kept(services, found, "deleted by command")
    else:
        delete_disk(services, found)


DELETION = Deletion(find=deletable_disk, names=_names, printed=_printed, describe=_describe, delete=_delete)
