# SPDX-License-Identifier: Apache-2.0
"""The driver in a guest, as far as anything tells it, and the hosts' drivers that it works with (docs/upgrades.md)."""

from collections.abc import Mapping
from dataclasses import replace

from vgpuctl.agent.wire.readings import HostReadings
from vgpuctl.catalog.vgpu_versions import parse_driver
from vgpuctl.model.guest_driver import DriverSource
from vgpuctl.model.vm import VmRequest
from vgpuctl.store.store import Session

_OF_IMAGE = (DriverSource.NONE, DriverSource.IMAGE)


def with_image_driver(session: Session, request: VmRequest) -> VmRequest:
    """The request with the driver's version that its image is registered with, where the request says none.

    A driver that is installed at the first boot takes the place of the image's.
    """
    driver, base = request.guest_driver, None if request.disk is None else request.disk.base_image
    if not request.gpus or base is None or driver.version is not None or driver.source not in _OF_IMAGE:
        return request
    image = session.find_image(base)
    if image is None or image.guest_driver is None:
        return request
    return replace(request, guest_driver=replace(driver, version=image.guest_driver))


def seen_drivers(readings: HostReadings) -> dict[str, str]:
    """The driver of each guest that its vGPU tells, by the UUID of its VM. Other texts are left out."""
    found = {}
    for vgpu in readings.vgpus:
        version = vgpu.measured.label("guest_driver_info")
        if vgpu.vm_uuid is not None and version is not None and parse_driver(version) is not None:
            found[vgpu.vm_uuid.lower()] = version
    return found


def note_drivers(session: Session, found: Mapping[str, str]) -> None:
    """Note the drivers that guests were seen with, by the UUID of the VM."""
    for vm in session.vms():
        version = found.get(vm.uuid.lower())
        if version not in (None, vm.guest_driver):
            session.set_vm_guest_driver(vm.uuid, str(version))
