# SPDX-License-Identifier: Apache-2.0
"""A running VM goes on on another host: prepared there, moved by libvirt, verified, and released where it was.

Its new shares are held by a reservation and their devices are made before anything moves. One transaction then changes
its host and its leases; the old shares stay held until their devices have passed the health gate. What libvirt calls a
success is verified: QEMU resets a GPU whose state could not be loaded, and goes on (docs/moves.md).
A run that dies leaves a VM whose problem names the other host; live_move_end.py finds out where it runs.
"""

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.steps import Step
from vgpuctl.errors import StateError, VgpuctlError
from vgpuctl.guests.domain.moved import copied_disks, moved_xml
from vgpuctl.guests.facts.domain_facts import DomainState
from vgpuctl.guests.libvirtd.migration import Migrated, Migration, MigrationOrder, MigrationProgress, running_xml
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease
from vgpuctl.model.move_link import MoveLink, MoveNetwork
from vgpuctl.model.network import Attachment
from vgpuctl.model.vm import Vm, VmState, moves_live_to
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.domain.carried_state import CarriedState, add_loss, state_after_failure
from vgpuctl.usecases.image.image_gate import images_on
from vgpuctl.usecases.network.ports import attachments_of, connect
from vgpuctl.usecases.observed.capacities import rules_of
from vgpuctl.usecases.observed.promise_record import known_kept, recorded
from vgpuctl.usecases.running.operations import in_turn_with_others, operation
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.running.undo import Undo
from vgpuctl.usecases.share.cpu_pins import floating_on
from vgpuctl.usecases.share.health_gate import refuse_sick
from vgpuctl.usecases.share.held_shares import HeldFor, hold, release_held_for
from vgpuctl.usecases.share.partitions import activate_partition
from vgpuctl.usecases.share.release import as_off, release_ended
from vgpuctl.usecases.share.shares import build_shares, check_leases, leases_of, plan_leases, rehearse_steps
from vgpuctl.usecases.vm.live_move_end import (
    MovedLive,
    Whereabouts,
    change_host,
    find_out,
    finish,
    go_on,
    note_settled,
)
from vgpuctl.usecases.vm.move_plan import PlannedMove
from vgpuctl.usecases.vm.move_volumes import VolumeWay, drop_copies, make_volumes_there

_NO_CONNECTION = re.compile(
    "(?:unable|failed) to (?:connect|resolve)|no route to host|connection (?:refused|timed out)", re.I
)
_NOT_LOADED = "load of migration failed"
"""What QEMU on the target ends with. libvirt 9.1 and newer also tell what the source said before."""
_SAID_EVERY_S = 10.0
_LONGEST_WAIT_S = 3600.0


def link_between(services: Services, source: str, target: str) -> tuple[MoveLink, str]:
    """How a VM moves from one host to another, and the target's address for it.

    Raises StateError for hosts whose inventory declares no network for moves, or two different kinds, and
    InventoryError for a target whose address for moves another host has too.
    """
    links = {name: services.inventory.move_link(name) for name in (source, target)}
    for name, link in links.items():
        if link.network is None:
            raise StateError(
                f"running VMs do not move to or from {name}: its inventory names no network for that",
                hint=f"declare `vgpu_moves: {{network: trusted}}` (or tls) for {name}: docs/moves.md",
            )
    here, there = links[source], links[target]
    if here.network is not there.network:
        raise StateError(
            f"{source} moves VMs over a network that is {here.network}, {target} over one that is {there.network}",
            hint="declare the same `network` in `vgpu_moves` of both",
        )
    limits = [one.bandwidth_mbps for one in links.values() if one.bandwidth_mbps is not None]
    return replace(there, bandwidth_mbps=min(limits, default=None)), services.inventory.move_address(target)


def carry_out_live(
    services: Services, plan: PlannedMove, *, reason: str, max_downtime_s: float | None
) -> MovedLive | None:
    """Move a running VM as planned, within the operation that planned it. None in a dry run, where nothing is verified.

    Raises the errors of both hosts, after which the VM runs where it was, or `repair` finds out where it runs.
    """
    vm, target = plan.vm, plan.placement.host
    link, address = link_between(services, vm.host, target)
    with operation(services, "move-vm", vm):
        here, there = services.host(vm.host), services.host(target)
        if here.hypervisor.state(vm.domain_name, uuid=vm.uuid) is not DomainState.RUNNING:
            raise StateError(f"{vm.printed_name} does not run on {vm.host}", hint=f"vgpuctl show-vm {vm.printed_name}")
        services.say(f"{vm.printed_name}: moves from {vm.host} to {target} while it runs")
        moved = replace(vm, request=plan.wanted, host=target, numa=plan.placement.numa)
        leases = leases_of(moved, plan.placement)
        if services.goes_on:
            _rehearse(services, plan, moved, leases, reason)
            return None
        stayed: list[CarriedState] = []
        undoing = Undo(services.say, subject=vm.printed_name, settle=lambda undo: _settle(services, vm, undo, stayed))
        with services.store.reading() as session:
            kept = known_kept(recorded(session, vm))
        migrated = None
        try:
            with undoing:
                _begin(services, vm, target, leases)
                order = _prepare(services, plan, moved, leases, undoing)
                order = replace(
                    order,
                    address=address,
                    bandwidth_mbps=link.bandwidth_mbps,
                    is_encrypted=link.network is MoveNetwork.TLS,
                    max_downtime_s=max_downtime_s,
                )
                with _on_free_links(services, vm.host, target):
                    migrated, interrupted = _migrate(services, here, there, vm, order, undoing, stayed)
        except BaseException as error:
            undoing.finish(error)
            raise
        change_host(services, vm, moved, plan.volumes, leases, migrated, reason)
        done = finish(services, moved, here.name, leases, migrated, kept)
        if interrupted is not None:
            raise interrupted
        return done


def _rehearse(services: Services, plan: PlannedMove, moved: Vm, leases: Sequence[Lease], reason: str) -> None:
    """In a dry run that goes on: the checks of a live move and its change of the store, as if all went well."""
    vm, here, there = plan.vm, services.host(plan.vm.host), services.host(moved.host)
    with services.store.reading() as session:
        old = session.leases(vm_uuid=vm.uuid)
    _begin(services, vm, moved.host, leases)
    parts = _look(services, plan, moved, leases)
    rehearse_steps(services, there, parts.steps)
    as_off(services, vm, old, f"move domain {vm.domain_name} to {moved.host} while it runs")
    volumes = [replace(one, way=VolumeWay.SHARED) for one in plan.volumes]  # as if all were there already
    change_host(services, vm, moved, volumes, parts.leases, None, reason)
    release_ended(services, here, old)
    with services.store.transaction() as session:
        release_held_for(session, moved, HeldFor.MOVE_FROM)
        note_settled(session, moved, None)


@contextlib.contextmanager
def _on_free_links(services: Services, *hosts: str) -> Iterator[None]:
    """Wait until no other VM moves to or from these hosts: two at once would halt both for longer."""
    with contextlib.ExitStack() as held:
        for name in sorted(hosts):
            turn = in_turn_with_others(services, "move-vm", f"move-link:{name}", limit_s=_LONGEST_WAIT_S)
            held.enter_context(turn)
        yield


def _begin(services: Services, vm: Vm, target: str, leases: Sequence[Lease]) -> None:
    """Note in one transaction where the VM moves, and keep its shares there from others."""
    with services.store.transaction() as session:
        if leases:
            hold(session, vm, HeldFor.MOVE, target, [one.share for one in leases])
        session.set_vm_state(vm.uuid, VmState.RUNNING, moves_live_to(target))


def _settle(services: Services, vm: Vm, undoing: Undo, stayed: Sequence[CarriedState]) -> None:
    """Forget a move that was rolled back. Where a part could not be, `repair` goes on: the rows stay.

    stayed: what its old host says of the state of its vGPUs, if the move failed there.
    """
    if undoing.failures:
        return
    with services.store.transaction() as session:
        release_held_for(session, vm, HeldFor.MOVE)
        doubts = [one.doubt_of_stayed for one in stayed]
        note_settled(session, vm, next(filter(None, doubts), vm.problem))
        for one in stayed:
            add_loss(session, vm, one.lost)
        detail = undoing.cause or "it was rolled back"
        session.add_vm_event(EventKind.VM_MOVE_ENDED, vm, detail, before={}, after={"host": vm.host})


@dataclass(frozen=True)
class _LookedAt:
    """What a VM gets on its new host. steps, undo: for the devices of its leases."""

    leases: Sequence[Lease]
    facts: HostFacts
    attachments: Sequence[Attachment]
    steps: Sequence[Step]
    undo: Sequence[Step]


def _look(services: Services, plan: PlannedMove, moved: Vm, leases: Sequence[Lease]) -> _LookedAt:
    """Look at the new host once more. Raises what speaks against the VM there."""
    there = services.host(moved.host)
    facts, health = there.agent.facts_and_health()
    leases = check_leases(leases, moved.request.gpus, facts, rules_of(services, moved.host))
    refuse_sick(services, there, leases, health)
    attachments = attachments_of(services, moved)
    guest.check_nodes(moved, facts)
    guest.check_parts(moved, facts, attachments)
    guest.refuse_other_domain(there, moved)
    steps, undo = plan_leases(moved, leases, facts, rules_of(services, moved.host))
    return _LookedAt(leases, facts, attachments, steps, undo)


def _prepare(
    services: Services, plan: PlannedMove, moved: Vm, leases: Sequence[Lease], undoing: Undo
) -> MigrationOrder:
    """Make the devices and volumes of a VM on its new host, and the XML with which it goes on there."""
    vm, here, there = plan.vm, services.host(plan.vm.host), services.host(moved.host)
    looked = _look(services, plan, moved, leases)
    leases, facts, attachments = looked.leases, looked.facts, looked.attachments
    build_shares(there, looked.steps, looked.undo, undoing)
    activate_partition(services, there, moved, leases, facts, undoing)
    images = images_on(services, there, moved, remember=True)
    undoing.push("volumes", lambda: drop_copies(services, vm, [moved.host]))
    volumes, paths = make_volumes_there(services, here, there, plan.volumes, images.base)
    connect(services, [one.network for one in attachments])
    floating = floating_on(services, moved.host, facts)
    parts = guest.DomainParts(moved, leases, facts, attachments, images, volumes, floating, variables=plan.variables)
    definition = guest.render(there, parts)
    running = running_xml(here.hypervisor, vm.domain_name, vm.uuid)
    disks = copied_disks(running, paths)
    shared = any(one.way is VolumeWay.SHARED and not one.volume.kind.is_written() for one in plan.volumes)
    xml = moved_xml(running, definition)
    return MigrationOrder(vm.domain_name, vm.uuid, xml, definition, "", disks, has_shared_disks=shared)


def _migrate(
    services: Services,
    here: HostSession,
    there: HostSession,
    vm: Vm,
    order: MigrationOrder,
    undoing: Undo,
    stayed: list[CarriedState],
) -> tuple[Migrated | None, BaseException | None]:
    """Have libvirt move the VM. Returns what it says, and the interrupt that came when the VM was there already.

    An error is believed only after both hosts were looked at. Raises it when the VM runs where it was, which the undo
    stack then cleans up after. That stack does nothing once the VM is there, or while nobody can say where it is: not
    after any error, nor an interrupt. Adds to `stayed` whether QEMU has reset a vGPU there.
    """
    said_at = time.monotonic()

    def show(progress: MigrationProgress) -> None:
        nonlocal said_at
        if time.monotonic() - said_at > _SAID_EVERY_S:
            said_at = time.monotonic()
            services.say(f"{vm.printed_name}: {progress}")

    with undoing.unknown():
        failure, where = None, Whereabouts.TARGET
        try:
            beside = here.beside()
            try:
                cut = partial(services.forget_host, here.name)
                migrated = Migration(here.hypervisor, there.hypervisor, beside.hypervisor, order, cut).run(show)
                undoing.keep()
            finally:
                beside.let_go()
        except BaseException as error:  # noqa: BLE001 (raised below, once it is known where the VM is)
            migrated, failure = None, error
            where = _where_it_is(services, vm, there.name, error)
        if failure is None or where in (Whereabouts.TARGET, Whereabouts.ARRIVED):
            undoing.keep()
            return migrated, failure if isinstance(failure, KeyboardInterrupt) else None
    if where is not Whereabouts.NOWHERE:
        stayed.append(state_after_failure(services, services.host(vm.host), vm, failure))
        if isinstance(failure, VgpuctlError) and failure.hint is None:
            failure.hint = _hint(failure.message, vm, there.name, order)
    elif isinstance(failure, VgpuctlError):
        failure.hint = f"its domain has ended on {here.name}: `vgpuctl repair` notes that"
    raise failure


def _hint(said: str, vm: Vm, target: str, order: MigrationOrder) -> str:
    """Say what helps against an error of libvirt or QEMU that ended a move."""
    log = f"/var/log/libvirt/qemu/{vm.domain_name}.log"
    if _NO_CONNECTION.search(said):
        return f"{vm.host} must reach {order.address} at the ports of moves (docs/moves.md)"
    if _NOT_LOADED in said:
        return (
            f"QEMU on {target} did not take its state: see {log} there and on {vm.host}, and compare the versions of"
            " QEMU and of the GPU's driver on both"
        )
    return f"see {log} on {vm.host} and {target}"


def _where_it_is(services: Services, vm: Vm, target: str, error: BaseException) -> Whereabouts:
    """Find out where a VM is after a move that failed, and let it go on there. Raises the error if nobody can say."""
    try:
        where = find_out(services, vm, target)
        go_on(services, vm, target, where)
    except VgpuctlError as silent:
        services.say(f"{vm.printed_name}: where it runs could not be found out: {silent.message}")
        if isinstance(error, VgpuctlError):
            error.hint = f"run `vgpuctl repair` when {vm.host} and {target} answer"
        raise error from silent
    return where
