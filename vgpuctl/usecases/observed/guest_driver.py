# SPDX-License-Identifier: Apache-2.0
"""The driver in a guest, as far as anything tells it, and the hosts' drivers that it works with (docs/upgrades.md)."""

from collections.abc import Mapping
from dataclasses import replace

from vgpuctl.agent.wire.readings import HostReadings
from vgpuctl.catalog.vgpu_versions import parse_driver
from vgpuctl.model.guest_driver import DriverSource
from vgpuctl.model.vm import VmRequest
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.readings import keep_reading
from vgpuctl.usecases.running.services import Services

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


def read_host(services: Services, name: str) -> HostReadings:
    """Read a host once, and keep the drivers of its guests. Raises as `AgentClient.readings`."""
    readings = services.host(name).agent.readings()
    keep_seen_drivers(services, {name: readings})
    return readings


def keep_seen_drivers(services: Services, readings: Mapping[str, HostReadings]) -> None:
    """Keep the drivers that guests were seen with, by host. Called with the readings of every command and the exporter.

    Nothing is written while they are the same as before. A host is believed about the VMs that are on it alone.
    """
    told = _told(readings)
    if not told:
        return
    with services.store.reading() as session:
        changed = _changed(session, told)
    if changed:
        keep_reading(services, "the driver of a guest", lambda session: note_seen_drivers(session, readings))


def note_seen_drivers(session: Session, readings: Mapping[str, HostReadings]) -> None:
    """Keep them in a transaction that is open already, as the controller's."""
    told = _told(readings)
    for uuid, version in _changed(session, told).items() if told else ():
        session.set_vm_guest_driver(uuid, version)


def _told(readings: Mapping[str, HostReadings]) -> dict[str, dict[str, str]]:
    return {name: drivers for name, of_host in readings.items() if (drivers := seen_drivers(of_host))}


def _changed(session: Session, told: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    vms = session.vms(host=next(iter(told))) if len(told) == 1 else session.vms()
    found = {vm.uuid: (told.get(vm.host, {}).get(vm.uuid.lower()), vm.guest_driver) for vm in vms}
    return {uuid: now for uuid, (now, before) in found.items() if now is not None and now != before}
