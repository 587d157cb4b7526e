# SPDX-License-Identifier: Apache-2.0
"""render-vm: the domain XML a request would get, or that an existing VM has in libvirt. Writes nothing."""

from vgpuctl.errors import GuestError
from vgpuctl.model.vm import Vm, VmRequest
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.vm.create_vm import create_vm


def render_request(services: Services, request: VmRequest) -> str:
    """The XML that `create-vm` would define for `request` now, or the existing VM's."""
    created = create_vm(services, request, dry_run=True)
    return created.xml or render_existing(services, created.vm)


def render_existing(services: Services, vm: Vm) -> str:
    """The XML of a VM's domain as libvirt has it."""
    xml = services.host(vm.host).hypervisor.xml(vm.domain_name)
    if xml is None:
        raise GuestError(f"{vm.domain_name} has no domain on {vm.host}", hint="run `vgpuctl repair`")
    return xml
