# SPDX-License-Identifier: Apache-2.0
"""controller: keeps the store true and the queue served. Any number may run; each may die anywhere.

It watches the hosts that it has claimed (watch_hosts.py, division.py) and, in rounds, ends VMs whose declared time is
over, deletes kept disks whose time is over, repairs what dead runs left, settles the nodes of clusters, answers VMs
that take their neighbours' time of a GPU, serves the queue (serve_queue.py), and tunes (telemetry/tune.py). The store
says what is to be done, and every step can be done again.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial

from vgpuctl.errors import ConcurrentChange, StoreNotTheSame, VgpuctlError
from vgpuctl.model.queue import QueueEntry
from vgpuctl.model.vm import Hold, Vm, VmState
from vgpuctl.quota.queue_order import has_aged
from vgpuctl.store.store import Session
from vgpuctl.usecases.disk.kept_vms import delete_overdue
from vgpuctl.usecases.node.settle_nodes import settle_nodes
from vgpuctl.usecases.observed.unlisted_hosts import forget_unlisted
from vgpuctl.usecases.operate.defrag_for_queue import QueueDefrag
from vgpuctl.usecases.operate.over_promise import answer_over_promise
from vgpuctl.usecases.operate.repair import repair
from vgpuctl.usecases.operate.serve_queue import Served, hosts_when_empty, serve
from vgpuctl.usecases.operate.watch_hosts import watching
from vgpuctl.usecases.placement.queue_order import ordered_queue
from vgpuctl.usecases.running.operations import may_run
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.vm.final_preemptions import finish_preemptions
from vgpuctl.usecases.vm.preemption_notice import withdraw_dead_notices
from vgpuctl.usecases.vm.stop_vm import Stop, stop_vm

Tune = Callable[[Services], Sequence[Served]]
"""A round of tuning (telemetry/tune.py)."""


def run(
    services: Services,
    stop: threading.Event,
    *,
    interval_s: float,
    shutdown_timeout_s: float,
    tell: Callable[[Sequence[Served]], None],
    room: QueueDefrag | None = None,
    tune: Tune | None = None,
) -> None:
    """Watch the hosts and work in rounds until `stop` is set. A round that fails is told and tried again.

    Raises StoreUnusable and StoreNotReconciled for a store that takes no change at the beginning, and StoreNotTheSame
    as soon as a newer vgpuctl has upgraded it, or another store is in its place: the hosts are left to the controllers
    of that one.
    """
    services.store.require_writable()
    with watching(services, stop):
        while not stop.is_set():
            try:
                tell(run_once(services, shutdown_timeout_s=shutdown_timeout_s, stop=stop, room=room, tune=tune))
            except StoreNotTheSame:
                raise
            except VgpuctlError as error:
                services.say(f"this round failed, the next is tried in {interval_s:g} s: {error.message}")
            stop.wait(interval_s)


def run_once(
    services: Services,
    *,
    shutdown_timeout_s: float,
    stop: threading.Event | None = None,
    room: QueueDefrag | None = None,
    tune: Tune | None = None,
) -> Sequence[Served]:
    """One round: end what is over, repair what dead runs left, then start what fits, in the queue's order.

    room: makes room for the first entry that waits for it, None to move no VM. tune: goes on with changes in trial.
    Raises StoreUnusable, StoreNotTheSame and StoreNotReconciled for a store that takes no change.
    """
    services.store.require_writable()
    done = [_end(services, vm, shutdown_timeout_s) for vm in _overdue(services)]
    done += [
        Served(kept.printed_name, "kept disks deleted" if error is None else f"failed: {error.message}")
        for kept, error in delete_overdue(services)
    ]
    done += _fix(services, shutdown_timeout_s)
    with services.store.transaction() as session:
        forgotten = forget_unlisted(session, services.inventory.hosts())
    done += [Served(host, "forgotten: no inventory lists it") for host in forgotten]
    settled = settle_nodes(services, shutdown_timeout_s=shutdown_timeout_s, stop=stop)
    done += [Served(one.name, one.outcome) for one in settled]
    done += answer_over_promise(services)
    with services.store.reading() as session:
        ordered = ordered_queue(session, session.now())
        settings = session.queue_settings()
    held_back: set[str] = set()
    without_room: QueueEntry | None = None
    for entry in ordered:
        if stop is not None and stop.is_set():
            break
        if held_back and any(one.gpus for one in entry.requests) and held_back & hosts_when_empty(services, entry):
            continue
        with services.store.claim(entry) as claim:
            if claim is None:
                waits_for_room = _is_queued(services, entry)  # another controller is just serving it
            else:
                served, waits_for_room = serve(services, entry, claim, shutdown_timeout_s)
                done.append(served)
        if waits_for_room and without_room is None:
            without_room = entry
        if waits_for_room and has_aged(entry, settings, services.store.now()):
            held_back |= hosts_when_empty(services, entry)
    if room is not None and without_room is not None and not (stop is not None and stop.is_set()):
        moved = room.move_one(services, without_room)
        done += [] if moved is None else [moved]
    if tune is not None and not (stop is not None and stop.is_set()):
        done += tune(services)
    return done


def _is_queued(services: Services, entry: QueueEntry) -> bool:
    with services.store.reading() as session:
        return any(one.id == entry.id for one in session.queue())


def _fix(services: Services, shutdown_timeout_s: float) -> list[Served]:
    """Finish or roll back what runs left that are known to be dead, and VMs of the queue that could not be built."""
    preempted = [
        Served(vm.printed_name, "repaired: stopped as decided" if error is None else f"failed: {error.message}")
        for vm, error in finish_preemptions(services, timeout_s=shutdown_timeout_s)
    ]
    with services.store.reading() as session:
        dead = [one for one in session.open_operations() if not may_run(one)]
        subjects = {one.subject for one in dead}
        queued = {(one.tenant, one.name) for entry in session.queue() for one in entry.requests}
        vms = [
            vm
            for vm in session.vms()
            if vm.uuid in subjects
            or (vm.state is VmState.RUNNING and vm.former_hosts)
            or (vm.state in (VmState.BROKEN, VmState.DELETING) and (vm.request.tenant, vm.request.name) in queued)
        ]
    repaired = [
        Served(one.subject, f"repaired: {one.found}: {one.outcome}")
        for vm in vms
        for one in repair(services, dry_run=False, only=vm)
    ]
    withdraw_dead_notices(services)
    there = {vm.uuid for vm in vms}
    with services.store.transaction() as session:
        for one in dead:
            if one.subject not in there:
                session.end_operation(one.id)
    return preempted + repaired


def _overdue(services: Services) -> list[Vm]:
    with services.store.reading() as session:
        over = session.vms_over_at(session.now())
    return [vm for vm in over if vm.state in (VmState.RUNNING, VmState.STOPPED)]


def _end(services: Services, vm: Vm, shutdown_timeout_s: float) -> Served:
    """Release the shares of a VM whose declared time, or the time to keep them, is over; its disk stays."""
    is_held = vm.state is VmState.STOPPED
    reason = "the time to keep its shares is over" if is_held else "its time is over"
    try:
        stop_vm(services, vm, Stop(Hold.RELEASE, shutdown_timeout_s, reason), first=partial(_check_still_over, vm))
    except VgpuctlError as error:
        return Served(vm.printed_name, f"failed: {error.message}")
    return Served(vm.printed_name, "released" if is_held else "ended")


def _check_still_over(vm: Vm, session: Session) -> None:
    """Raise ConcurrentChange when the VM was started, stopped or deleted since it was looked at."""
    now = session.vm(vm.request.tenant, vm.request.name)
    if now is None or (now.uuid, now.state, now.ends_at) != (vm.uuid, vm.state, vm.ends_at):
        raise ConcurrentChange(f"another run has just changed {vm.printed_name}", hint="the next round looks again")
