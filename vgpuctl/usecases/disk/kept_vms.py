# SPDX-License-Identifier: Apache-2.0
"""Deleted VMs whose disks stay for a time: what is refused, and the end of the disks.

Their volumes, UEFI variables and TPM stay recorded under the UUID of the VM, which is the restored VM's again. Data
disks with `keep` are not among them: they are their tenant's as soon as the VM is deleted.
"""

from collections.abc import Sequence

from vgpuctl.errors import StateError, VgpuctlError, VolumeRejected
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.kept_vm import KeptVm
from vgpuctl.model.times import format_time
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.model.volume import Volume, VolumeKind
from vgpuctl.store.store import Session
from vgpuctl.usecases.domain.guest_state import drop_state
from vgpuctl.usecases.image.volumes import remove_volumes
from vgpuctl.usecases.observed.fences import is_host_fenced
from vgpuctl.usecases.running.services import Services

_LASTING = (VolumeKind.DISK, VolumeKind.DATA, VolumeKind.OVERLAY, VolumeKind.SEED)


def restore_command(tenant: str, name: str) -> str:
    """The command that makes a deleted VM again, for hints."""
    return f"vgpuctl restore-vm {tenant}/{name}"


def refuse_keeping(session: Session, vm: Vm) -> None:
    """Raise StateError for a VM whose disks cannot be kept under its name."""
    request = vm.request
    why = hint = None
    other = session.kept_vm(request.tenant, request.name)
    if other is not None and other.uuid != vm.uuid:
        why = f"the disks of an earlier VM of this name are kept on {other.host} until {format_time(other.until)}"
        hint = f"delete them with `vgpuctl delete-disk {request.tenant}/{request.name}`, or rename this VM"
    elif vm.is_adopted:
        why, hint = "it was adopted, and vgpuctl never deletes its disks", "delete it without --keep-disk"
    elif vm.state not in (VmState.RUNNING, VmState.STOPPED) and other is None:
        why, hint = f"it is {vm.state}", "run `vgpuctl repair`"
    elif session.node_of_vm(vm.uuid) is not None:
        why, hint = "it is a node of a cluster, which is made anew", "delete it without --keep-disk"
    elif request.disk is None:
        why, hint = "it has no disk", "delete it without --keep-disk"
    elif any(one.label == request.name for one in session.volumes(tenant=request.tenant)):
        why = f"tenant {request.tenant} has a data disk of this name, and `delete-disk` would not know which is meant"
        hint = "rename the VM, or delete it without --keep-disk"
    if why is not None:
        raise StateError(f"the disk of {request.tenant}/{request.name} cannot be kept: {why}", hint=hint)


def without_kept(volumes: Sequence[Volume]) -> list[Volume]:
    """Of the volumes of a VM whose disks are kept, those that go with it: answers, and what was never made."""
    return [one for one in volumes if one.kind not in _LASTING or not one.is_made]


def delete_kept(services: Services, kept: KeptVm, why: str) -> bool:
    """Delete the kept disks of a VM with their records. Returns False when another run was faster.

    Raises StateError for a fenced host, ConcurrentChange while the VM is restored, HostError and VolumeRejected; the
    same again goes on.
    """
    if is_host_fenced(services, kept.host):
        raise StateError(
            f"the kept disks of {kept.printed_name} are on {kept.host}, which is fenced",
            hint="trust the host again with `vgpuctl uncordon-host`, or give it up with `vgpuctl forget-host`",
        )
    with services.store.operation("delete-disk", kept.uuid, kept.printed_name, exclusive=True, takes_over=True):
        with services.store.reading() as session:
            if session.kept_until(kept.uuid) is None:
                return False
            volumes = session.volumes(vm_uuid=kept.uuid)
        host = services.host(kept.host)
        left = remove_volumes(services, host, volumes)
        if left:
            raise VolumeRejected(left[0])
        drop_state(host, kept.as_vm())
        with services.store.transaction() as session:
            forget_kept(session, kept, why)
    return True


def forget_kept(session: Session, kept: KeptVm, why: str) -> None:
    """Delete the record of a VM whose kept disks are gone, or are given up with their host."""
    if session.drop_kept_vm(kept.uuid):
        before = {"kept_until": format_time(kept.until)}
        tenant = kept.request.tenant
        session.add_event(
            EventKind.KEPT_DISKS_DELETED, kept.printed_name, why, tenant=tenant, host=kept.host, before=before
        )


def delete_overdue(services: Services) -> list[tuple[KeptVm, VgpuctlError | None]]:
    """Delete the kept disks whose time is over, except on fenced hosts. Returns each with its error."""
    with services.store.reading() as session:
        overdue = session.kept_vms_over_at(session.now())
    outcomes: list[tuple[KeptVm, VgpuctlError | None]] = []
    for kept in overdue:
        if is_host_fenced(services, kept.host):
            continue
        try:
            if delete_kept(services, kept, "their time is over"):
                outcomes.append((kept, None))
        except VgpuctlError as error:
            services.forget_host(kept.host)
            outcomes.append((kept, error))
    return outcomes
