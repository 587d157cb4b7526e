# SPDX-License-Identifier: Apache-2.0
"""Moves of a plan, one after the other, each to the GPUs that the plan names; the first surprise ends the run.

What is left is planned anew by the next run, from what is there then. A plan is checked before by a rehearsal of it:
each host says of the one step that goes there whether the VM can run on meanwhile.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf

from vgpuctl.errors import StateError, VgpuctlError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import without_leaving
from vgpuctl.model.move_verdict import MoveKind
from vgpuctl.model.times import format_duration, format_time
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.scheduler.defrag.plan import DefragStep, VmWay, WayKind
from vgpuctl.scheduler.defrag.search import Limits
from vgpuctl.usecases.placement.defrag import Defrag, defrag
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.vm.move_place import COLD_DOWNTIME_S, asked_elsewhere, cold_way
from vgpuctl.usecases.vm.move_vm import DoneMove, MoveOptions, MoveWay, move_vm

_PLANS = 6
"""Plans that are made before the last one is shown with the step that its host refuses."""


class StepOutcome(StrEnum):
    """What became of a step."""

    PLANNED = "planned"
    MOVED = "moved"
    FAILED = "failed"
    LEFT = "left"


@dataclass(frozen=True)
class MadeStep:
    """A step of a plan and what became of it.

    way: how the VM moved, or would. downtime_s: how long the guest is halted: measured by libvirt, else estimated;
    None where that is not known. reason: why it failed, or was left, or did not move live.
    """

    step: DefragStep
    outcome: StepOutcome
    way: WayKind
    downtime_s: float | None
    reason: str = ""

    @property
    def as_asked(self) -> DefragStep:
        """The step with the way that its host named."""
        return replace(self.step, way=self.way, downtime_s=self.downtime_s or 0.0, reason=self.reason)


@dataclass(frozen=True)
class MoveRules:
    """why: the purpose of the moves, for events. allows_cold: a VM may be stopped that was to move live.

    until: seconds since the epoch after which no step begins. max_downtime_s: of all steps, added up. timeout_s: for
    each guest that is stopped to shut down. most: moves that are left of an hour's.
    """

    why: str
    allows_cold: bool = False
    until: float = inf
    max_downtime_s: float = inf
    timeout_s: float = 120.0
    most: float = inf


_ANY_WAY = MoveRules("", allows_cold=True)
_ENDED = "the run ended before it"


def make_steps(
    steps: Iterable[DefragStep],
    rules: MoveRules,
    move: Callable[[DefragStep], MadeStep],
    now: Callable[[], float],
) -> Iterator[MadeStep]:
    """Make steps in their order until one is not made as planned, the time is over, or the downtime is used up.

    move: makes one. It raises VgpuctlError, and answers FAILED for a VM that moved and is not whole. Every other step
    is LEFT, and the first of these says why.
    """
    stopped, spent_s, moved = "", 0.0, 0
    for step in steps:
        if not stopped and now() >= rules.until:
            stopped = f"no move begins after {format_time(rules.until)} UTC"
        elif not stopped and moved >= rules.most:
            stopped = "the moves of this hour are used up"
        elif not stopped and spent_s + step.downtime_s > rules.max_downtime_s:
            stopped = f"it would exceed the downtime of {format_duration(rules.max_downtime_s)} in all"
        if stopped:
            yield MadeStep(step, StepOutcome.LEFT, step.way, step.downtime_s, stopped)
            stopped = _ENDED
            continue
        try:
            done = move(step)
        except VgpuctlError as error:
            done = MadeStep(step, StepOutcome.FAILED, step.way, step.downtime_s, error.reason_of(step.name))
        spent_s += done.downtime_s or 0.0
        moved += 1
        stopped = _ENDED if done.outcome is StepOutcome.FAILED else ""
        yield done


def carry_out(services: Services, kind: str, steps: Sequence[DefragStep], rules: MoveRules) -> list[MadeStep]:
    """Move VMs as planned. Begin and end are events; so is each move, with the purpose as its reason.

    kind: the command. An interrupt ends the move at work, and leaves the others.
    """
    made: list[MadeStep] = []
    with services.store.transaction() as session:
        session.add_event(EventKind.MOVES_BEGUN, kind, rules.why, after={"moves": len(steps)})
    try:
        with services.asking_once():
            turns = services.in_turn(steps, "move")
            for one in make_steps(
                turns, rules, lambda step: _move(services, step, f"{kind}: {rules.why}", rules), services.store.now
            ):
                made.append(one)
    finally:
        moved, failed = (sum(one.outcome is end for one in made) for end in (StepOutcome.MOVED, StepOutcome.FAILED))
        counts = {"moved": moved, "failed": failed, "left": len(steps) - moved - failed}
        with services.store.transaction() as session:
            session.add_event(EventKind.MOVES_ENDED, kind, rules.why, after=counts)
    return made


def _move(services: Services, step: DefragStep, reason: str, rules: MoveRules) -> MadeStep:
    """Make one step. Raises StateError where the VM is not as the plan had it, and what `move_vm` raises."""
    vm = _planned_vm(services, step)
    may_stop = rules.allows_cold or (step.way is WayKind.COLD and step.downtime_s > 0)
    options = MoveOptions(MoveWay.KINDEST if may_stop else MoveWay.LIVE, rules.timeout_s, reason)
    target = step.placement
    done = move_vm(services, vm, options, to=target.host, gpus=[one.gpu for one in target.shares])
    doubt = None if done.live is None else done.live.state.doubt
    if doubt is not None:
        return replace(_made(step, vm, done), outcome=StepOutcome.FAILED, reason=f"it is on {target.host}, but {doubt}")
    return _made(step, vm, done)


def _made(step: DefragStep, vm: Vm, done: DoneMove) -> MadeStep:
    if done.kind is MoveKind.LIVE:
        measured = done.way.verdict.downtime_s if done.live is None and done.way.verdict else None
        measured = done.live.downtime_s if done.live is not None else measured
        return MadeStep(step, StepOutcome.MOVED, WayKind.LIVE, measured)
    limits = () if done.way.verdict is None else done.way.verdict.limits
    down_s = COLD_DOWNTIME_S if vm.state is VmState.RUNNING else 0.0
    return MadeStep(step, StepOutcome.MOVED, WayKind.COLD, down_s, limits[0].limit if limits else "")


def _planned_vm(services: Services, step: DefragStep) -> Vm:
    """The VM of a step, where the plan found it. Raises StateError."""
    with services.store.reading() as session:
        vm = next((one for one in session.vms() if one.uuid == step.vm_uuid), None)
        leases = sorted(without_leaving(session.leases(vm_uuid=step.vm_uuid)), key=lambda one: one.index)
    gpus = tuple(one.share.gpu for one in leases)
    if vm is None or (vm.host, gpus) != (step.host, step.gpus):
        found = "is gone" if vm is None else f"is on {vm.host} {' '.join(gpus)}".rstrip()
        raise StateError(
            f"{step.name} was to leave {step.host} {' '.join(step.gpus)}, and {found} now", hint="plan again"
        )
    return vm


def rehearse(services: Services, steps: Sequence[DefragStep]) -> list[MadeStep]:
    """What each step would do: the way of each by its host, and the first that is refused. Nothing is written."""
    with services.rehearsed() as asked:
        made = list(make_steps(steps, _ANY_WAY, lambda step: _move(asked, step, "", _ANY_WAY), services.store.now))
    return [replace(one, outcome=StepOutcome.PLANNED) if one.outcome is StepOutcome.MOVED else one for one in made]


@dataclass(frozen=True)
class PlannedRoom:
    """A plan whose steps are as their hosts say, and the steps from the first that is refused, if one is."""

    found: Defrag
    steps: tuple[MadeStep, ...]
    refused: tuple[MadeStep, ...] = ()


def plan_room(
    services: Services,
    request: VmRequest | None,
    count: int | None,
    limits: Limits,
    *,
    tenant: str | None = None,
    refresh: bool = False,
    only_live: bool = False,
    room_on: Collection[str] | None = None,
) -> PlannedRoom:
    """Plan moves that make room, and ask the hosts of the steps about each. Nothing is written.

    A VM that a host refuses does not go there in the next plan; one that cannot move live counts with the downtime of
    a cold move, or stays where only_live. room_on: as of `defrag`. Raises what `defrag` raises.
    """
    known: dict[str, VmWay] = {}

    def way_of(vm: Vm) -> VmWay:
        way = known.get(vm.uuid) or likely_way(services, vm)
        return VmWay(WayKind.PINNED, reason="it does not move live") if only_live and way.kind is WayKind.COLD else way

    barred: defaultdict[str, set[str]] = defaultdict(set)
    for _ in range(_PLANS):
        found = defrag(
            services,
            request,
            count,
            limits,
            ways=way_of,
            asked=lambda vm, own: asked_elsewhere(services, vm, own, None, vm.request),
            barred=barred,
            room_on=room_on,
            tenant=tenant,
            refresh=refresh,
        )
        refresh = False
        made = rehearse(services, found.plan.steps)
        known.update(
            (one.step.vm_uuid, VmWay(one.way, one.downtime_s or 0.0, one.reason))
            for one in made
            if one.outcome is StepOutcome.PLANNED
        )
        failed = next((one for one in made if one.outcome is StepOutcome.FAILED), None)
        if failed is not None:
            barred[failed.step.vm_uuid].add(failed.step.placement.host)
        elif sum(one.downtime_s or 0.0 for one in made) <= limits.downtime_s and not (
            only_live and any(one.way is WayKind.COLD for one in made)
        ):
            break
    planned = tuple(one for one in made if one.outcome is StepOutcome.PLANNED)
    steps = tuple(one.as_asked for one in planned)
    refused = tuple(one for one in made if one.outcome is not StepOutcome.PLANNED)
    return PlannedRoom(replace(found, plan=replace(found.plan, steps=steps)), planned, refused)


def likely_way(services: Services, vm: Vm) -> VmWay:
    """How a VM may move, before a host is asked: live where its own host names a network for that."""
    way = cold_way(services, vm)
    is_likely = vm.state is VmState.RUNNING and services.inventory.move_link(vm.host).network is not None
    return VmWay(WayKind.LIVE) if way.kind is WayKind.COLD and is_likely else way
