# SPDX-License-Identifier: Apache-2.0
"""restore-vm: make a deleted VM again from its stored request, with the disks that were kept of it."""

import difflib
from dataclasses import dataclass, replace

from vgpuctl.errors import ConcurrentChange, NotFound, StateError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.kept_vm import KeptVm
from vgpuctl.model.times import format_time
from vgpuctl.model.vm import Vm
from vgpuctl.model.volume import VolumeKind
from vgpuctl.store.store import Session
from vgpuctl.usecases.disk.kept_disks import kept_disks
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.domain.definition import define_again
from vgpuctl.usecases.found.vm_values import values_of
from vgpuctl.usecases.image.volumes import has_volumes
from vgpuctl.usecases.network.ports import networks_of, take_ports
from vgpuctl.usecases.observed.fences import is_host_fenced
from vgpuctl.usecases.placement.quota import refuse_over_quota
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.vm.preemption_consent import Consent
from vgpuctl.usecases.vm.start_vm import refuse_closed, start_vm


@dataclass(frozen=True)
class RestoredVm:
    """A VM that is there again, or would be. without: the data disks that it does not get back, with the reasons."""

    vm: Vm
    kept_until: float
    without: tuple[str, ...] = ()


def find_kept(services: Services, tenant: str, name: str) -> KeptVm:
    """The deleted VM of this name whose disks are kept. Raises NotFound with near names."""
    with services.store.reading() as session:
        session.tenant(tenant)
        kept = session.kept_vm(tenant, name)
        names = [one.request.name for one in session.kept_vms(tenant=tenant)]
        is_there = session.vm(tenant, name) is not None
    if kept is not None:
        return kept
    if is_there:
        raise NotFound(f"VM {tenant}/{name} is not deleted", hint=f"see `vgpuctl show-vm {tenant}/{name}`")
    near = difflib.get_close_matches(name, names, n=3) or names[:3]
    hint = f"kept are {', '.join(near)}" if near else "`vgpuctl delete-vm --keep-disk` keeps disks for a time"
    raise NotFound(f"no disk of a deleted VM {tenant}/{name} is kept", hint=hint)


def restore_vm(services: Services, kept: KeptVm, *, starts: bool = True, consent: Consent | None = None) -> RestoredVm:
    """Make the VM again on the host that has its disks, and start it there with new shares.

    consent: on what terms it may preempt other VMs. Raises StateError for a VM of the name, missing disks and a closed
    host, QuotaExceeded, HostError. When it cannot start (NoCapacity), it stays stopped with its own disks.
    """
    label = f"{kept.request.tenant}/{kept.request.name}"
    with services.store.operation("restore-vm", kept.uuid, kept.printed_name, exclusive=True, takes_over=True):
        vm = kept.as_vm()
        if is_host_fenced(services, kept.host):
            raise StateError(
                f"{label} cannot be restored: its disks are on {kept.host}, which is fenced",
                hint=f"trust the host again: `vgpuctl uncordon-host {kept.host}`",
            )
        refuse_closed(services, vm)
        host = services.host(kept.host)
        with services.store.reading() as session:
            is_whole = any(one.kind is VolumeKind.DISK for one in session.volumes(vm_uuid=kept.uuid, host=kept.host))
        if not is_whole or not has_volumes(services, host, vm):
            raise StateError(
                f"{label} cannot be restored: {kept.host} does not have its disks as they were kept",
                hint=f"look at them with `virsh vol-list` there; `vgpuctl delete-disk {label}` deletes what is left",
            )
        guest.refuse_other_domain(host, vm)
        networks = networks_of(services, kept.request)
        with services.store.transaction() as session:
            vm, without = _decided(session, kept)
            session.add_vm(vm)
            wanted = {disk.name for disk in vm.request.data_disks}
            for volume in kept_disks(session, vm.request.tenant):
                if volume.label in wanted and volume.host == vm.host:
                    session.take_volume(volume, vm.uuid, vm.request.name)
            take_ports(services, session, vm, networks)
            session.drop_kept_vm(kept.uuid)
            session.add_vm_event(EventKind.VM_RESTORED, vm, f"on {vm.host}", after=values_of(vm, ()))
        define_again(services, host, vm)
    services.say(f"{vm.printed_name}: restored on {vm.host}")
    for why in without:
        services.say(f"{vm.printed_name}: {why}")
    if starts:
        ((vm, _),) = start_vm(services, [vm], consent=consent)
    return RestoredVm(vm, kept.until, without)


def _decided(session: Session, kept: KeptVm) -> tuple[Vm, tuple[str, ...]]:
    """The VM with the data disks that are still its own, and why it does not get others back.

    Raises ConcurrentChange when another run was faster, StateError for a VM of the name, QuotaExceeded.
    """
    request = kept.request
    if session.kept_until(kept.uuid) is None:
        raise ConcurrentChange(f"another run has just restored {kept.printed_name}, or deleted its disks")
    there = session.vm(request.tenant, request.name)
    if there is not None:
        raise StateError(
            f"{request.tenant}/{request.name} cannot be restored: there is a new VM of this name on {there.host}",
            hint=f"rename that one first; the kept disks stay until {format_time(kept.until)}",
        )
    own = {one.label for one in session.volumes(vm_uuid=kept.uuid, host=kept.host)}
    free = {one.label: one for one in kept_disks(session, request.tenant)}
    disks, without = [], []
    for disk in request.data_disks:
        if disk.name in own or (disk.name in free and free[disk.name].host == kept.host):
            disks.append(disk)
        else:
            where = f"is on {free[disk.name].host}" if disk.name in free else "is another VM's, or deleted"
            without.append(f"its data disk {disk.name} {where}: it comes back without it")
    vm = replace(kept.as_vm(), request=session.with_usual(replace(request, data_disks=tuple(disks))))
    session.require_below(vm.request, is_kept=True)
    refuse_over_quota(session, vm.request, (), has_disks=True)
    return vm, tuple(without)
