# SPDX-License-Identifier: Apache-2.0
"""The answers of an unattended installation end with the VM's first run.

Only `create-vm` ever defines a domain with them, and defines it without them as soon as it runs. So no later start has
them, from whatever host, backup of the store or hand; what is left here is to take their medium out and delete it.
"""

from vgpuctl.errors import VgpuctlError
from vgpuctl.model.vm import Vm
from vgpuctl.model.volume import Volume, VolumeKind
from vgpuctl.store.store import Session
from vgpuctl.usecases.image.volumes import remove_volumes
from vgpuctl.usecases.running.services import Services


def answers_of(session: Session, vm: Vm) -> list[Volume]:
    """The medium with the answers of a VM; none where it has no such installation, or no longer."""
    return [one for one in session.volumes(vm_uuid=vm.uuid, host=vm.host) if one.kind is VolumeKind.ANSWERS]


def drop_answers(services: Services, vm: Vm) -> bool:
    """Delete the medium with the answers of a VM, which its domain no longer has. Returns True if there was one.

    A medium that cannot be deleted now stays recorded. No start uses it; the next stop, start or deletion tries again.
    """
    with services.store.reading() as session:
        left = answers_of(session, vm)
    if not left:
        return False
    try:
        remove_volumes(services, services.host(vm.host), left)
    except VgpuctlError as error:
        services.say(f"{vm.printed_name}: the answers of its installation are not deleted yet: {error.message}")
    return True
