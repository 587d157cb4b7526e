# SPDX-License-Identifier: Apache-2.0
"""render-vm: the domain XML a request would get, or that an existing VM has in libvirt. Writes nothing."""

from vgpuctl.errors import GuestError
from vgpuctl.model.vm import Vm, VmRequest
from vgpuctl.usecases.found.find_vm import find_vm
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.vm.create_vm import create_together


def render_vm(services: Services, request: VmRequest, *, existing: bool = False) -> str:
    """The XML that `create-vm` would define for `request` now, or that the VM of this name has in libvirt.

    existing: only the latter. Raises NotFound for a VM that does not exist, and what create_together raises.
    """
    if existing:
        return _xml_of(services, find_vm(services, request.tenant, request.name)[0])
    with services.rehearsed() as rehearsed:
        (created,) = create_together(rehearsed, [request])
    return created.xml or _xml_of(services, created.vm)


def _xml_of(services: Services, vm: Vm) -> str:
    xml = services.host(vm.host).hypervisor.xml(vm.domain_name)
    if xml is None:
        raise GuestError(f"{vm.printed_name} has no domain on {vm.host}", hint="run `vgpuctl repair`")
    return xml
