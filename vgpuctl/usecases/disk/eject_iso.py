# SPDX-License-Identifier: Apache-2.0
"""eject-iso: take the install media and the answers of the installation out of a VM's drives, now and later."""

from dataclasses import dataclass, replace

from vgpuctl.errors import DomainRejected
from vgpuctl.guests.facts.disk_facts import domain_disks
from vgpuctl.guests.live.disks import LiveDisks
from vgpuctl.guests.live.domain import LiveChange
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vm import Vm
from vgpuctl.model.volume import VolumeKind
from vgpuctl.usecases.domain.definition import define_again, refuse_fixed
from vgpuctl.usecases.found.find_vm import find_vm
from vgpuctl.usecases.image.answers import answers_of, drop_answers
from vgpuctl.usecases.running.operations import operation
from vgpuctl.usecases.running.services import HostSession, Services


@dataclass(frozen=True)
class Ejected:
    """The result of an ejection. media: paths of ejected media. left: media that the running guest keeps, and why."""

    vm: str
    changed: bool
    media: tuple[str, ...]
    left: tuple[str, ...]


def eject_iso(services: Services, vm: Vm) -> Ejected:
    """Take the install media and the answers out of a VM. Its seed stays in its drive. Repeatable.

    The VM boots from its disks afterwards. A medium that the running guest has locked stays until the VM is stopped.
    The answers go first: a medium without them asks before it writes.
    """
    refuse_fixed(vm, "eject media from")
    with operation(services, "eject-iso", vm):
        vm, _ = find_vm(services, vm.request.tenant, vm.request.name)
        host, had = services.host(vm.host), vm.request.install
        if had is not None:
            request = replace(vm.request, install=None)
            with services.store.transaction() as session:
                session.set_vm_request(vm.uuid, request)
                before = {"media": [name for name in (had.iso, had.drivers) if name is not None]}
                session.add_vm_event(EventKind.MEDIA_EJECTED, vm, before=before, after={"media": []})
            vm = replace(vm, request=request)
        media, left = _eject_live(services, host, vm)
        define_again(services, host, vm)
        drop_answers(services, vm)
        return Ejected(vm.printed_name, had is not None or bool(media), tuple(media), tuple(left))


def _eject_live(services: Services, host: HostSession, vm: Vm) -> tuple[list[str], list[str]]:
    """Empty every drive of the running domain but the seed's."""
    disks = LiveDisks(host.hypervisor, vm.domain_name, uuid=vm.uuid)
    with services.store.reading() as session:
        seeds = [one for one in session.volumes(vm_uuid=vm.uuid, host=vm.host) if one.kind is VolumeKind.SEED]
        answers = {one.path for one in answers_of(session, vm)}
    own = {one.path for one in seeds}
    live = disks.xml()
    media, left = [], []
    drives = [one for one in domain_disks(live) if one.is_cdrom] if live is not None else []
    for drive in sorted(drives, key=lambda one: one.path not in answers):
        if drive.path is None or drive.path in own:
            continue
        try:
            outcome = disks.eject(drive.path)
        except DomainRejected as refused:
            left.append(f"{drive.path}: {refused.message}")
            continue
        if outcome is LiveChange.DONE:
            media.append(drive.path)
        else:
            left.append(f"{drive.path}: it stays until the VM is stopped")
    return media, left
