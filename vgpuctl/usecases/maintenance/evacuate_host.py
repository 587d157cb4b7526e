# SPDX-License-Identifier: Apache-2.0
"""evacuate-host: the VMs of a dead host start on others, where their data is; the rest is said to be lost."""

import contextlib
from dataclasses import replace

from vgpuctl.errors import DataLost, VgpuctlError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.placement import Placement
from vgpuctl.model.plural import counted
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.usecases.cluster.leave_cluster import leave_cluster
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.domain.guest_state import refuse_losing_tpm
from vgpuctl.usecases.image.volumes import seed_made_again
from vgpuctl.usecases.maintenance.drain_host import (
    Drained,
    Verdict,
    as_planned,
    move_promises,
    not_started,
    promises_on,
    start_left,
    vms_of,
)
from vgpuctl.usecases.maintenance.fence_host import fence_host
from vgpuctl.usecases.maintenance.left_data import LeftData, find_data
from vgpuctl.usecases.network.ports import attachments_of
from vgpuctl.usecases.running.operations import operation
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.share.release import release_leases
from vgpuctl.usecases.vm.move_place import MoveSearch, refuse_staying
from vgpuctl.usecases.vm.move_plan import PlannedMove
from vgpuctl.usecases.vm.move_vm import restore_kept, settle_on
from vgpuctl.usecases.vm.move_volumes import VolumeMove, VolumeWay
from vgpuctl.usecases.vm.start_vm import start_vm

LOST = "lost: "
"""The beginning of the problem of a VM whose data was on the dead host alone."""


def plan_evacuation(services: Services, host: str, *, is_dead: bool) -> list[Drained]:
    """Say of every VM of a host what an evacuation would do now. Nothing is fenced and nothing is written.

    Raises what `evacuate_host` raises.
    """
    with services.rehearsed() as rehearsed:
        return as_planned(evacuate_host(rehearsed, host, is_dead=is_dead, reason="dry run"))


def evacuate_host(services: Services, host: str, *, is_dead: bool, reason: str) -> list[Drained]:
    """Fence a host, then start its VMs elsewhere, those of the highest priority first.

    A VM that was stopped changes its host and stays stopped. One whose data was on the host's own storage is stopped
    with a problem that names the volume, and holds no shares. Raises what `fence_host` raises.
    """
    fence_host(services, host, is_dead=is_dead, reason=reason)
    vms, promises = vms_of(services, host), promises_on(services, host)
    services.say(f"{host}: evacuating {counted(len(vms), 'VM')}")
    with services.asking_once():
        data = find_data(services, host, vms)
        done = [_evacuate(services, vm, data, reason) for vm in vms]
        done += start_left(services, host, vms)
    return [*done, *move_promises(services, promises, done)]


def _plan(services: Services, vm: Vm, data: LeftData) -> PlannedMove:
    refuse_staying(services, vm)
    volumes = data.volumes[vm.uuid]

    def look(placement: Placement) -> PlannedMove:
        guest.check_parts_now(services, replace(vm, host=placement.host))
        refuse_losing_tpm(services.host(placement.host), vm)
        moves = (VolumeMove(one, placement.host, data.way(vm, one, placement.host)) for one in volumes)
        return PlannedMove(vm, placement, tuple(moves))

    return MoveSearch(services, vm.host, data.answering).find(vm, look, among=data.hosts_of(vm))


def _evacuate(services: Services, vm: Vm, data: LeftData, reason: str) -> Drained:
    try:
        with operation(services, "evacuate-host", vm):
            leave_cluster(services, vm, "its host is dead", 0, detail=f"its host {vm.host} is dead: {reason}")
            moved, plan = _settle(services, vm, data, reason)
    except DataLost as error:
        _give_up(services, vm, error.message)
        return Drained(vm.printed_name, Verdict.LOST, reason=error.said_of(vm.printed_name), outcome="lost")
    except VgpuctlError as error:
        return Drained(vm.printed_name, Verdict.STAY, reason=error.reason_of(vm.printed_name), outcome="left")
    try:
        if vm.has_to_run:
            start_vm(services, [moved])
        else:
            restore_kept(services, moved)
    except VgpuctlError as error:
        return not_started(moved, error, plan.storage)
    services.say(f"{vm.printed_name}: {'runs' if vm.has_to_run else 'stopped'} on {moved.host}")
    return Drained(vm.printed_name, Verdict.MOVE, moved.host, plan.storage, outcome="moved")


def _settle(services: Services, vm: Vm, data: LeftData, reason: str) -> tuple[Vm, PlannedMove]:
    """Give a VM of the dead host its place elsewhere. Its old shares end with it, not before."""
    plan = _plan(services, vm, data)
    with services.store.reading() as session:
        leases = session.leases(vm_uuid=vm.uuid)
    with contextlib.ExitStack() as stack:
        if not services.goes_on and any(one.way is VolumeWay.MADE_AGAIN for one in plan.volumes):
            there = services.host(plan.placement.host)
            stack.enter_context(seed_made_again(services, there, vm, attachments_of(services, vm)))
        return settle_on(services, plan, f"{vm.host} is dead: {reason}", ending=leases), plan


def is_lost(vm: Vm) -> bool:
    """True if a VM was given up because its data was on a dead host alone."""
    return vm.state is VmState.STOPPED and (vm.problem or "").startswith(LOST)


def _give_up(services: Services, vm: Vm, why: str) -> None:
    """Stop a VM in the store whose data is lost: its shares and quota are free, and its row says why."""
    if is_lost(vm):
        return
    with operation(services, "evacuate-host", vm):
        with services.store.reading() as session:
            leases = session.leases(vm_uuid=vm.uuid)
        with services.store.transaction() as session:
            release_leases(session, leases)
            session.set_vm_state(vm.uuid, VmState.STOPPED, f"{LOST}{why}")
            session.add_vm_event(
                EventKind.VM_LOST, vm, why, before={"state": str(vm.state)}, after={"state": str(VmState.STOPPED)}
            )
    services.say(f"{vm.printed_name}: {LOST}{why}")
