# SPDX-License-Identifier: Apache-2.0
"""delete-disk: delete a data disk that no VM has."""

from vgpuctl.model.volume import Volume
from vgpuctl.usecases.disk.tenant_disks import TenantDisk, disk_operation, refuse_attached, settle_detach
from vgpuctl.usecases.image.volumes import remove_recorded
from vgpuctl.usecases.support.services import Services


def delete_disk(services: Services, disk: TenantDisk) -> Volume:
    """Delete a data disk with its record. Raises StateError, which names the VM that has it, and VolumeRejected."""
    with disk_operation(services, "delete-disk", disk.volume.tenant, disk.volume.label):
        free = settle_detach(services, disk)
        if free.state != "intended":
            refuse_attached(free, "delete")
        remove_recorded(services, services.host(free.volume.host), free.volume)
    return free.volume
