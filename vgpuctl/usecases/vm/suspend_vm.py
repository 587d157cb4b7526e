# SPDX-License-Identifier: Apache-2.0
"""suspend-vm: a running VM's memory and the state of its vGPUs go to its host's disk, and its QEMU ends.

The VM is off then, and its shares are kept or released as for one that was stopped; resume-vm and start-vm let it go on
where it was, with other devices of the same types where it has them. Its host must be the same, which has the state.
"""

from collections.abc import Sequence
from dataclasses import replace

from vgpuctl.errors import StateError, VgpuctlError
from vgpuctl.guests.facts.domain_facts import DomainState
from vgpuctl.guests.libvirtd.saved_state import SavedState
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.vm import SUSPENDED, Vm, VmState
from vgpuctl.sharing.kinds import kind_of
from vgpuctl.usecases.cluster.leave_cluster import STOPPED, leave_cluster
from vgpuctl.usecases.domain.carried_state import add_loss, state_after_failure
from vgpuctl.usecases.found.find_vm import refuse_unfinished
from vgpuctl.usecases.found.vm_values import values_of
from vgpuctl.usecases.observed.observations import note_state
from vgpuctl.usecases.running.operations import operation
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.share.partitions import end_partitions
from vgpuctl.usecases.share.release import as_off, release_shares
from vgpuctl.usecases.vm.pending_gpus import is_pending
from vgpuctl.usecases.vm.stop_vm import Stop, stop_vm


def suspend_vm(services: Services, vm: Vm, how: Stop) -> tuple[Vm, bool]:
    """Suspend a running VM to disk. Returns it as it is now, and whether anything changed.

    how: what becomes of its shares, and why; its guest is not asked, so it has no timeout. Raises StateError for a VM
    whose state cannot be saved, and DomainRejected when QEMU says so: its guest goes on then.
    """
    refuse_unfinished(vm)
    its_state_stays = replace(how, problem=SUSPENDED)
    if vm.is_suspended:
        return stop_vm(services, vm, its_state_stays) if how.releases or how.keep_s is not None else (vm, False)
    with services.store.reading() as session:
        leases = session.leases(vm_uuid=vm.uuid)
    _refuse_unsavable(vm, leases)
    with operation(services, "suspend-vm", vm):
        host = services.host(vm.host)
        saved = SavedState(host.hypervisor, vm.domain_name, vm.uuid)
        runs = host.hypervisor.state(vm.domain_name, uuid=vm.uuid) is DomainState.RUNNING
        if not runs and saved.xml() is None:  # with a saved state, a run died right after it had saved it
            raise StateError(f"{vm.printed_name} does not run on {vm.host}", hint=f"vgpuctl show-vm {vm.printed_name}")
        if runs:
            _refuse_without_state(host, vm, leases)
            leave_cluster(services, vm, STOPPED, how.drain_s, detail=how.problem or "it is suspended")
        if services.goes_on:
            as_off(services, vm, leases)
        elif runs:
            services.say(f"{vm.printed_name}: suspending to the disk of {vm.host}")
            _save(services, host, vm)
        _record(services, vm, leases, how)
    if how.releases:
        return stop_vm(services, _as_stored(services, vm), its_state_stays)[0], True
    services.say_done(vm.printed_name, "suspended, shares kept")
    return _as_stored(services, vm), True


def _save(services: Services, host: HostSession, vm: Vm) -> None:
    """Save a VM. Raises what libvirt says, and whether QEMU has reset the vGPU of a VM that runs on."""
    try:
        SavedState(host.hypervisor, vm.domain_name, vm.uuid).save()
    except VgpuctlError as error:
        state = state_after_failure(services, host, vm, error)
        if state.doubt_of_stayed is not None:
            with services.store.transaction() as session:
                session.set_vm_state(vm.uuid, VmState.RUNNING, state.doubt_of_stayed)
                add_loss(session, vm, state.lost)
        raise


def _as_stored(services: Services, vm: Vm) -> Vm:
    with services.store.reading() as session:
        return session.vm(vm.request.tenant, vm.request.name) or vm


def _refuse_unsavable(vm: Vm, leases: Sequence[Lease]) -> None:
    """Raise StateError for a VM that cannot be suspended, whatever its host says."""
    if vm.state is not VmState.RUNNING:
        raise StateError(f"cannot suspend {vm.printed_name}: it is {vm.state}", hint="only a running VM is suspended")
    if vm.is_adopted:
        raise StateError(
            f"{vm.printed_name}: cannot be suspended: its domain {vm.domain_name} is adopted",
            hint=f"use `virsh managedsave {vm.domain_name}` on {vm.host}",
        )
    if vm.must_restart:
        raise StateError(
            f"{vm.printed_name}: cannot be suspended: what would be saved is a vGPU that was reset: {vm.problem}",
            hint=f"`vgpuctl restart-vm {vm.printed_name}` gives its guest a vGPU that works",
        )
    for lease in leases:
        if kind_of(lease.share.sharing).is_bound_by_libvirt:
            # Some versions of QEMU write the memory of such a guest, and then never end (day2 2, UPC/ravada#2138).
            raise StateError(
                f"{vm.printed_name}: cannot be suspended: its GPU {lease.share.function} is {lease.share.sharing}, and"
                " no driver saves its state",
                hint="stop the VM instead",
            )


def _refuse_without_state(host: HostSession, vm: Vm, leases: Sequence[Lease]) -> None:
    """Raise StateError where the host's driver says that the state of one of the vGPUs cannot be saved."""
    if not leases:
        return
    by_address = {gpu.address: gpu.migration for gpu in host.agent.facts().gpus}
    for lease in leases:
        told = by_address.get(lease.share.gpu)
        if told is None:
            continue
        own = [one.can_migrate for one in told.vgpus if one.is_of(vm.uuid, lease.share.device)]
        if False in (told.can_migrate, *own):
            raise StateError(
                f"{vm.printed_name}: cannot be suspended: the driver of {host.name} does not save the state of"
                f" {lease.share.profile} on {lease.share.function}",
                hint="stop the VM instead; `vgpuctl move-vm --check` says what else that forbids",
            )


def _record(services: Services, vm: Vm, leases: Sequence[Lease], how: Stop) -> None:
    kept_until = None if how.keep_s is None else services.store.now() + how.keep_s
    with services.store.transaction() as session:
        session.set_vm_state(vm.uuid, VmState.STOPPED, SUSPENDED, kept_until=kept_until)
        note_state(session, vm, DomainState.SHUT_OFF)
        for lease in leases:
            if not is_pending(lease, was_running=True):
                session.set_lease_state(lease.id, LeaseState.BUILT)
        before, after = values_of(vm, leases), values_of(vm, leases, VmState.STOPPED)
        session.add_vm_event(EventKind.VM_SUSPENDED, vm, how.problem or "", before=before, after=after)
    end_partitions(services, services.host(vm.host), leases)
    leaving = [one for one in leases if one.state is LeaseState.RELEASING]
    if leaving:
        release_shares(services, services.host(vm.host), leaving)
