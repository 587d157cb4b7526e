# SPDX-License-Identifier: Apache-2.0
"""quarantine-gpu --evacuate: the VMs on a GPU get another one, each in the kindest way that is possible.

Live on another host; suspended to disk, and resumed with another card of its host; restarted with one; cold on another
host. The two ways on its own host are rehearsed first: a VM that would find no card there is not stopped for it.
"""

from collections.abc import Mapping, Sequence

from vgpuctl.errors import VgpuctlError
from vgpuctl.model.move_verdict import MoveKind
from vgpuctl.model.natural_order import natural_path
from vgpuctl.model.vm import RESTARTING, Hold, Vm, VmState
from vgpuctl.usecases.maintenance.drain_host import (
    CardWay,
    Drained,
    DrainOptions,
    Verdict,
    as_moved,
    came_before,
    held_for_moves,
)
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.vm.move_vm import MoveOptions, MoveWay, move_vm, runs_on, settled
from vgpuctl.usecases.vm.start_vm import start_vm
from vgpuctl.usecases.vm.stop_vm import Stop, stop_vm
from vgpuctl.usecases.vm.suspend_vm import suspend_vm

_WAYS = (MoveKind.LIVE, CardWay.SUSPEND, CardWay.RESTART, MoveKind.COLD)


def evacuate_gpu(services: Services, host: str, address: str, options: DrainOptions, *, reason: str) -> list[Drained]:
    """Move the VMs from a GPU or VF that is in quarantine, the most important first. Returns what became of each.

    options: of them the times count. A VM that is off stays, and one that fails hides none of the others. Shares that a
    move keeps there for its VM are named.
    """
    why = f"{address} of {host} is in quarantine: {reason}"
    with services.asking_once():
        vms = services.in_turn(vms_on(services, host, address), "VM")
        done = [_leave(services, vm, address, options, why) for vm in vms]
    return done + held_for_moves(services, host, address)


def vms_on(services: Services, host: str, address: str) -> Sequence[Vm]:
    """The VMs that have a GPU or VF, the most important first."""
    with services.store.reading() as session:
        users = {one.vm_uuid for one in session.leases(host=host) if address in (one.share.gpu, one.share.function)}
        found = [vm for vm in session.vms(host=host) if vm.uuid in users]
    return sorted(found, key=lambda vm: (-vm.request.priority, natural_path(vm.printed_name)))


def _leave(services: Services, vm: Vm, address: str, options: DrainOptions, why: str) -> Drained:
    host = vm.host
    try:
        if vm.has_to_run:
            vm, _was_cut_short = settled(services, vm)
    except VgpuctlError as error:
        return Drained(vm.printed_name, Verdict.STAY, reason=error.reason_of(vm.printed_name), outcome="left")
    if vm.uuid not in {one.uuid for one in vms_on(services, host, address)}:
        return came_before(vm)
    if vm.state is VmState.STOPPED and not vm.is_on_its_way:
        kept = f"it is off; `vgpuctl stop-vm {vm.printed_name} --hold release` lets it start with another GPU"
        return Drained(vm.printed_name, Verdict.STAY, reason=kept, outcome="stays stopped")
    against: dict[MoveKind | CardWay, str] = {}
    for way in _WAYS:
        try:
            done = _go(services, vm, way, options, why, against)
        except VgpuctlError as error:
            against[way] = error.reason_of(vm.printed_name)
            if way is MoveKind.LIVE and error.details:
                against[way] = error.details[0]
            services.say(f"{vm.printed_name}: {way}: {error.said_of(vm.printed_name)}")
            with services.store.reading() as session:
                now = session.vm(vm.request.tenant, vm.request.name) or vm
            if (now.uuid, now.host, now.state, now.live_target) != (vm.uuid, vm.host, vm.state, None):
                outcome = f"failed: it is {now.problem or now.state} on {now.host}: {against[way]}"
                return Drained(vm.printed_name, Verdict.STAY, way=way, outcome=outcome)
        else:
            return done
    here, elsewhere = against[CardWay.RESTART], against[MoveKind.COLD]
    return Drained(
        vm.printed_name, Verdict.STAY, reason=f"on {vm.host}: {here}; elsewhere: {elsewhere}", outcome="left"
    )


def _go(
    services: Services,
    vm: Vm,
    way: MoveKind | CardWay,
    options: DrainOptions,
    why: str,
    against: Mapping[MoveKind | CardWay, str],
) -> Drained:
    """Move a VM in one way. Raises VgpuctlError; the VM runs where it was then, unless the store says otherwise."""
    if isinstance(way, MoveKind):
        allowed = MoveWay.LIVE if way is MoveKind.LIVE else MoveWay.COLD
        done = move_vm(services, vm, MoveOptions(allowed, options.timeout_s, why, options.drain_s))
        return as_moved(vm, done, not_live=against.get(MoveKind.LIVE))
    with services.rehearsed() as rehearsed:
        _take_other_card(rehearsed, vm, way, options, why)
    _take_other_card(services, vm, way, options, why)
    not_live = against.get(MoveKind.LIVE)
    return Drained(vm.printed_name, Verdict.MOVE, vm.host, "none", outcome="moved", way=way, not_live=not_live)


def _take_other_card(services: Services, vm: Vm, way: CardWay, options: DrainOptions, why: str) -> None:
    """Stop or suspend a VM, and start it with the shares that its host gives it then."""
    # After a run that dies, `repair` starts a VM whose problem is RESTARTING.
    problem = why if way is CardWay.SUSPEND else RESTARTING
    how = Stop(Hold.RELEASE, options.timeout_s, problem, drain_s=options.drain_s)
    if way is CardWay.SUSPEND:
        off, _changed = suspend_vm(services, vm, how)
    else:
        try:
            off, _changed = stop_vm(services, vm, how)
        except BaseException:
            runs_on(services, vm)
            raise
    start_vm(services, [off])
