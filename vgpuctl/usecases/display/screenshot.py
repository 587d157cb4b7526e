# SPDX-License-Identifier: Apache-2.0
"""screenshot: a picture of a running VM's screen."""

from vgpuctl.guests.libvirtd.screenshot import Screenshot
from vgpuctl.model.vm import Vm
from vgpuctl.usecases.display.view import note_view, running_xml
from vgpuctl.usecases.running.services import Services


def screenshot(services: Services, vm: Vm, *, screen: int = 0) -> Screenshot:
    """Take a picture of a VM's screen, and note who did. screen: the head, from 0.

    Raises StateError for a VM that does not run or has no screen, GuestError when libvirt gives no picture.
    """
    running_xml(services, vm, needs_picture=True)
    taken = services.host(vm.host).hypervisor.screenshot(vm.domain_name, uuid=vm.uuid, screen=screen)
    note_view(services, vm, "screenshot")
    return taken
