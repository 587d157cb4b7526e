# SPDX-License-Identifier: Apache-2.0
"""Bringing back what a host has lost: after a reboot the layout and the shares, then VMs by their restart policy.

VMs start in order of priority. One that cannot start is tried again after a back-off, which the store keeps, and is an
event with the reason each time that the reason changes.
"""

import threading

import msgspec

from vgpuctl.errors import CommandTimedOut, ConcurrentChange, HostUnreachable, Interrupted, InventoryError, VgpuctlError
from vgpuctl.guests.facts.domain_facts import DomainState
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.natural_order import natural_path
from vgpuctl.model.vm import RestartPolicy, Vm, VmState
from vgpuctl.usecases.declared.fleet_values import read_fleet_values
from vgpuctl.usecases.layout.layout_run import LayoutRun
from vgpuctl.usecases.layout.run_options import RunOptions
from vgpuctl.usecases.observed.observation_record import Seen
from vgpuctl.usecases.observed.observations import read_record
from vgpuctl.usecases.observed.restarts import Attempt, read_restarts, save_restarts
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.share.restore_shares import restore_shares
from vgpuctl.usecases.vm.start_vm import start_vm

STEADY_S = 600.0
"""A VM that ran so long since its last restart begins with FIRST_DELAY_S again."""
OFF = (DomainState.SHUT_OFF, DomainState.CRASHED)


def bring_back(services: Services, host: str, stop: threading.Event) -> str | None:
    """Start what should run on a host and does not. It was observed a moment ago; a silent host is left alone.

    Returns the id of the boot after which nothing is left to come back, None while something is.
    """
    with services.store.reading() as session:
        seen = read_record(session, host)
        restarts = read_restarts(session, host)
        vms = session.vms(host=host)
        now = session.now()
    if seen.silence is not None or seen.libvirt_silence is not None or seen.boot_id is None:
        return None
    # Before a controller has brought any boot back, VMs were started in the boot that the first reading saw.
    is_new_boot = (restarts.boot_id or seen.first_boot_id) not in (None, seen.boot_id)
    if is_new_boot:
        _restore(services, host, vms, stop)
        if stop.is_set():
            return None
    off = [vm for vm in vms if _is_off(vm, seen.vms.get(vm.uuid), now)]
    returning = {vm.uuid for vm in off if (_returns(vm) if is_new_boot else vm.uuid in restarts.returning)}
    if (restarts.boot_id, set(restarts.returning)) != (seen.boot_id, returning):
        with services.store.transaction() as session:
            kept = tuple(sorted(returning))
            save_restarts(
                session,
                host,
                msgspec.structs.replace(read_restarts(session, host), boot_id=seen.boot_id, returning=kept),
            )
    for vm in sorted(off, key=lambda one: (-one.request.priority, natural_path(one.printed_name))):
        before = restarts.vms.get(vm.uuid)
        if stop.is_set():
            return None
        is_wanted = vm.uuid in returning or _has_to_run(vm, seen.vms[vm.uuid])
        if is_wanted and (is_new_boot or before is None or before.is_over(now)):
            _restart(services, vm, before)
    return None if returning else seen.boot_id


def _is_off(vm: Vm, seen: Seen | None, now: float) -> bool:
    """True if a VM is declared running, its time is not over, and it was seen off."""
    is_over = vm.ends_at is not None and vm.ends_at <= now
    return (
        vm.state is VmState.RUNNING
        and vm.live_target is None
        and not is_over
        and seen is not None
        and seen.state in OFF
    )


def _returns(vm: Vm) -> bool:
    """True if a VM starts again after its host was booted."""
    return vm.request.autostart or vm.request.restart is not RestartPolicy.NEVER


def _has_to_run(vm: Vm, seen: Seen) -> bool:
    """True if the policy of a VM that is off starts it again, whatever its host did."""
    policy = vm.request.restart
    return policy is RestartPolicy.ALWAYS or (policy is RestartPolicy.ON_FAILURE and seen.has_failed)


def _restore(services: Services, host: str, vms: list[Vm], stop: threading.Event) -> None:
    """Bring a host back into its layout, then the shares of its VMs. Each failure is an event.

    Raises HostUnreachable, and ConcurrentChange where the layout has to wait: the next look tries it again. So does
    CommandTimedOut of a share, whose host may have been cut off.
    """
    declared = None
    try:
        declared = services.inventory.layout(host)
    except InventoryError as error:
        _tell(services, EventKind.LAYOUT_NOT_RESTORED, host, error, host=host)
    if declared is not None:
        options = RunOptions(boot=False, after_boot=True, reset=True)  # right after a boot nobody uses a GPU
        fleet = read_fleet_values(services)
        done = LayoutRun(services, host, declared, options, lambda _line: None, stop, fleet).take()
        if isinstance(done.error, (HostUnreachable, ConcurrentChange, Interrupted)):
            raise done.error
        if done.error is not None:
            _tell(services, EventKind.LAYOUT_NOT_RESTORED, host, done.error, host=host)
    for vm in vms:
        try:
            restore_shares(services, vm)
        except ConcurrentChange:
            continue  # A command is at work on it.
        except (HostUnreachable, CommandTimedOut):
            services.forget_host(host)
            raise  # The next look finds this boot not brought back yet.
        except VgpuctlError as error:
            _tell(services, EventKind.SHARE_NOT_RESTORED, vm.printed_name, error, host=host, tenant=vm.request.tenant)


def _restart(services: Services, vm: Vm, before: Attempt | None) -> None:
    now = services.store.now()
    is_steady = before is None or (before.problem is None and now - before.at > STEADY_S)
    count = 1 if is_steady or before is None else before.count + 1
    problem = None
    try:
        start_vm(services, [vm], still=VmState.RUNNING)
    except ConcurrentChange:
        return  # A command is at work on it, or has changed it since.
    except HostUnreachable:
        return  # The host's own event says so, and the next look decides.
    except VgpuctlError as error:
        problem = error.message
        if before is None or before.problem != problem:
            _tell(services, EventKind.VM_NOT_RESTARTED, vm.printed_name, error, host=vm.host, tenant=vm.request.tenant)
    with services.store.transaction() as session:
        restarts = read_restarts(session, vm.host)
        known = {one.uuid for one in session.vms(host=vm.host)}
        attempts = {uuid: one for uuid, one in restarts.vms.items() if uuid in known}
        attempts[vm.uuid] = Attempt(count, now, problem)
        left = tuple(uuid for uuid in restarts.returning if problem is not None or uuid != vm.uuid)
        save_restarts(session, vm.host, msgspec.structs.replace(restarts, vms=attempts, returning=left))


def _tell(
    services: Services, kind: EventKind, subject: str, error: VgpuctlError, *, host: str, tenant: str | None = None
) -> None:
    with services.store.transaction() as session:
        session.add_event(kind, subject, error.reason_of(subject), host=host, tenant=tenant)
