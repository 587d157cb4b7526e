# SPDX-License-Identifier: Apache-2.0
"""delete-vm: domain, volumes, devices and rows of a VM, in this order, each step repeatable."""

from collections.abc import Sequence

from vgpuctl.errors import StateError
from vgpuctl.model.disk_chain import chains, snapshot_of
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease
from vgpuctl.model.network import Backend
from vgpuctl.model.times import format_time
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.store.store import Session
from vgpuctl.usecases.cluster.leave_cluster import leave_cluster
from vgpuctl.usecases.disk.kept_disks import keep_disks
from vgpuctl.usecases.disk.kept_vms import refuse_keeping, restore_command, without_kept
from vgpuctl.usecases.disk.snapshots import delete_command
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.found.vm_values import values_of
from vgpuctl.usecases.image.volumes import recorded_volumes, remove_volumes
from vgpuctl.usecases.network.ports import disconnect
from vgpuctl.usecases.observed.fences import is_host_fenced
from vgpuctl.usecases.placement.queue_entries import note_left
from vgpuctl.usecases.running.operations import operation
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.share.held_shares import held_shares, release_all_held, release_held
from vgpuctl.usecases.share.release import as_off, release_leases, release_shares

SHUTDOWN_TIMEOUT_S = 30.0


def delete_vm(
    services: Services,
    vm: Vm,
    *,
    timeout_s: float = SHUTDOWN_TIMEOUT_S,
    keeps_disks: bool = True,
    drain_s: float | None = None,
    keep_s: float | None = None,
) -> None:
    """Shut `vm` down (forced off after timeout_s), undefine it and return every device to the pool.

    keeps_disks: False when its kept disks are to be deleted too, which the caller does: their snapshots then do not
    matter. drain_s: the longest wait for the work on a node of a cluster (leave_cluster), by default its pool's.
    keep_s: seconds for which its disks are kept, so that `restore-vm` can make it again; None for not at all.
    It leaves the queue first, with those it was to be created with: no controller creates or starts it again.
    Raises HostError or GuestError; what was done stays done, and the same command goes on from there. Raises, with
    nothing done, ConcurrentChange while a controller serves its entry of the queue, UsageError without an inventory,
    and InventoryError for one without its host.
    """
    with operation(services, "delete-vm", vm):
        if keeps_disks:
            refuse_kept_below(services, vm)
        is_fenced = is_host_fenced(services, vm.host)
        if not is_fenced:
            services.inventory.require(vm.host)
        leave_cluster(services, vm, "its VM is deleted", 0 if is_fenced else drain_s)
        with services.store.transaction() as session:
            _leave_queue(session, vm)
            session.set_vm_state(vm.uuid, VmState.DELETING)
            leases = session.leases(vm_uuid=vm.uuid)
            if keep_s is not None:
                refuse_keeping(session, vm)
                session.keep_vm(vm, until=session.now() + keep_s)
        if not is_fenced and not services.goes_on:
            _shut_down(services, vm, timeout_s)
        remove_vm(services, vm, leases, event=EventKind.VM_DELETED, text=f"on {vm.host}")
        services.say_done(vm.printed_name, "deleted")


def refuse_kept_below(services: Services, vm: Vm) -> None:
    """Raise StateError for a disk that outlives the VM and has snapshots: all that was written since would be lost."""
    for chain in chains(recorded_volumes(services, vm)):
        if chain.overlays and chain.disk.keep:
            newest = snapshot_of(chain.active)
            raise StateError(
                f"cannot delete {vm.printed_name}: its disk {chain.disk.label} is kept and has snapshots, "
                f"the newest {newest}",
                hint=f"delete them first: `{delete_command(vm, newest)}`",
            )


def check_keeping(services: Services, vm: Vm) -> None:
    """Raise StateError for a VM whose disks cannot be kept. Writes nothing."""
    with services.store.reading() as session:
        refuse_keeping(session, vm)


def _shut_down(services: Services, vm: Vm, timeout_s: float) -> None:
    host = services.host(vm.host)
    if host.hypervisor.domain(vm.uuid) is not None:
        services.say(f"{vm.printed_name}: shutting down")
        host.hypervisor.shutdown(vm.domain_name, timeout_s=timeout_s, uuid=vm.uuid)
        if host.hypervisor.has_shut_down(vm.domain_name, uuid=vm.uuid):
            with services.store.transaction() as session:
                session.note_licence_returned(vm.uuid)


def remove_vm(services: Services, vm: Vm, leases: Sequence[Lease], *, event: EventKind, text: str) -> None:
    """Remove the domain, addresses, volumes, devices and rows of a VM; what is gone already is passed over.

    event, text: noted for it. Of a VM on a fenced host the rows alone are removed; its volumes stay recorded, and
    `gc` deletes what is left when the host is trusted again. Raises HostError or GuestError.
    """
    if services.goes_on:
        kept_until = _as_removed(services, vm, leases)
    elif is_host_fenced(services, vm.host):
        disconnect(services, vm, only=[Backend.OVN])
        keep_disks(services, vm, recorded_volumes(services, vm))
        with services.store.transaction() as session:
            kept_until = session.kept_until(vm.uuid)
            release_leases(session, leases)
            release_all_held(session, vm)
        text += ", which is fenced: nothing was done there"
    else:
        host = services.host(vm.host)
        with services.store.reading() as session:
            kept_until = session.kept_until(vm.uuid)
        guest.remove_domain(host, vm, keeps_state=kept_until is not None)
        disconnect(services, vm)
        # Only now has no QEMU the disks that another VM may take.
        going = keep_disks(services, vm, recorded_volumes(services, vm))
        remove_volumes(services, host, going if kept_until is None else without_kept(going))
        release_shares(services, host, leases)
        with services.store.reading() as session:
            held = held_shares(session, vm)
        release_held(services, vm, held)
    if kept_until is not None:
        text += f"; its disks are kept until {format_time(kept_until)}"
        services.say(
            f"{vm.printed_name}: its disks stay on {vm.host} until {format_time(kept_until)} UTC;"
            f" `{restore_command(vm.request.tenant, vm.request.name)}` brings it back"
        )
    with services.store.transaction() as session:
        session.delete_vm(vm.uuid)
        session.add_vm_event(event, vm, text, before=values_of(vm, leases), after={"state": "gone"})


def _as_removed(services: Services, vm: Vm, leases: Sequence[Lease]) -> float | None:
    """In a dry run that goes on: end in the store what a VM holds. Returns until when its disks are kept."""
    going = keep_disks(services, vm, recorded_volumes(services, vm))
    is_fenced = is_host_fenced(services, vm.host)
    if not is_fenced:
        as_off(services, vm, leases)
        release_shares(services, services.host(vm.host), leases)
    with services.store.transaction() as session:
        kept_until = session.kept_until(vm.uuid)
        release_leases(session, leases if is_fenced else ())
        release_all_held(session, vm)
        for volume in going if kept_until is None else without_kept(going):
            session.forget_volume(volume)
    return kept_until


def _leave_queue(session: Session, vm: Vm) -> None:
    entry = session.queued(vm.request.tenant, vm.request.name)
    if entry is None:
        return
    if entry.kind.starts_again():
        session.refuse_while_served(entry.id)
        session.drop_start(vm.request.tenant, vm.request.name)
    else:
        session.leave_queue(entry.id)
    note_left(session, vm.request, entry, "it is deleted")
