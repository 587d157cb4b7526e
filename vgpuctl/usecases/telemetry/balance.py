# SPDX-License-Identifier: Apache-2.0
"""rebalance --above: moves that bring GPUs below a load, as far as the hosts and a budget allow."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf

from vgpuctl.agent.wire.measures import GPU
from vgpuctl.errors import NotFound
from vgpuctl.model.event import EventFilter
from vgpuctl.model.event_kind import EventKind
from vgpuctl.scheduler.advice.advice import Advice, AdviceKind, Confidence, Gain, advice_id
from vgpuctl.scheduler.advice.loaded import Samples, loaded_fleet
from vgpuctl.scheduler.advice.measured import UTILIZATION
from vgpuctl.scheduler.balance import BalancingMove, LoadedFleet, Place, find_balancing
from vgpuctl.scheduler.defrag.plan import DefragStep, WayKind
from vgpuctl.scheduler.rolling import WINDOW_S
from vgpuctl.usecases.maintenance.planned_moves import (
    MadeStep,
    MoveRules,
    StepOutcome,
    carry_out,
    likely_way,
    rehearse,
)
from vgpuctl.usecases.measured.measured_view import loads_of_kinds
from vgpuctl.usecases.observed.tuning_record import moves_vm
from vgpuctl.usecases.running.history import Past, open_past
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.telemetry.measured_fleet import Windows, read_fleet_measured
from vgpuctl.usecases.telemetry.rebalance import Rebalance

BY = "rebalance"
"""The subject of the events of its moves."""

_MOVING = "rebalance:moves"
_MOVED = (EventKind.VM_MOVED, EventKind.VM_MOVED_LIVE)
_TRIED = (EventKind.TUNING_BEGUN, EventKind.TUNING_ROLLED_BACK)
_RUNS = (EventKind.MOVES_BEGUN, EventKind.MOVES_ENDED)
_HOUR_S = 3600.0
_PROOF = (
    "the mean load of the last 15 minutes was added up with the VM moved, with the deviation of the last hour;"
    " placing was replayed with the rules of create-vm"
)


def plan_balance(
    services: Services,
    above_percent: float,
    *,
    most: int | None = None,
    per_hour: int | None = None,
    max_downtime_s: float = inf,
    tenant: str | None = None,
) -> Rebalance:
    """Plan moves that bring GPUs below a load, each as the best that the hosts allow: one that is refused is replaced.

    most: moves. per_hour: moves, with those that were made in the last hour. max_downtime_s: of VMs that are stopped,
    added up. tenant: whose VMs may move. Nothing is written. Raises NotFound for the tenant and without past readings,
    StoreUnusable, PrometheusUnusable.
    """
    if tenant is not None:
        with services.store.reading() as session:
            session.tenant(tenant)
    fleet = _read(services)
    left = inf if most is None else most
    if per_hour is not None:
        left = min(left, per_hour - moved_lately(services))
    search = _BalanceSearch(services, fleet, tenant, max_downtime_s)
    while search.goes_on(above_percent, left):
        pass
    return Rebalance(tuple(search.advice), tuple(search.steps), tuple(search.refused))


def carry_out_moves(
    services: Services, steps: Sequence[DefragStep], rules: MoveRules, *, per_hour: int | None = None
) -> list[MadeStep]:
    """Make the moves of a plan, one run of rebalance at a time, so that the runs of an hour keep to one budget.

    per_hour: as of `plan_balance`, counted again: another run may have moved VMs since. Raises ConcurrentChange while
    another run moves VMs.
    """
    with moving_alone(services, BY, "the moves of its plan"):
        most = inf if per_hour is None else per_hour - moved_lately(services)
        return carry_out(services, BY, steps, replace(rules, most=most))


@contextlib.contextmanager
def moving_alone(services: Services, kind: str, what: str) -> Iterator[None]:
    """Move VMs for load in the block, and nobody else. Raises ConcurrentChange while another run does."""
    with services.store.operation(kind, _MOVING, what, exclusive=True, takes_over=True):
        yield


def moved_lately(services: Services) -> int:
    """How many VMs runs of rebalance and trials of controllers have moved in the last hour, by their events.

    A run that has not ended counts one more, which it may move now, or `repair` after it was killed. A trial counts
    when it begins, and again when it was rolled back.
    """
    since = services.store.now() - _HOUR_S
    with services.store.reading() as session:
        moved = session.events(None, EventFilter(kinds=_MOVED, command=BY, since=since))
        runs = session.events(None, EventFilter(subjects=(BY,), kinds=_RUNS, since=since))
        trials = session.events(None, EventFilter(kinds=_TRIED, since=since))
    kinds = [one.kind for one in sorted(runs, key=lambda one: one.id)]
    ends = [*kinds[1:], EventKind.MOVES_BEGUN]  # runs do not overlap, so the event after a begin is its end
    unended = sum(pair == (EventKind.MOVES_BEGUN,) * 2 for pair in zip(kinds, ends, strict=False))
    return len(moved) + unended + sum(moves_vm(one) for one in trials)


class _BalanceSearch:
    """Plans until no host refuses. A host is not asked the same again."""

    def __init__(self, services: Services, fleet: LoadedFleet, tenant: str | None, max_downtime_s: float) -> None:
        self._services, self._fleet, self._max_downtime_s = services, fleet, max_downtime_s
        self._staying = {one.vm_uuid for one in fleet.leases if tenant not in (None, one.tenant)}
        self._barred: dict[str, set[str]] = {}
        self._said: dict[tuple[str, str, str], MadeStep] = {}
        self.advice: list[Advice] = []
        self.steps: list[MadeStep] = []
        self.refused: list[MadeStep] = []

    def goes_on(self, above_percent: float, most: float) -> bool:
        """Plan; True if another plan is needed, because a host refuses a VM that was planned to go there."""
        self.advice, self.steps, spent_s = [], [], 0.0
        moves = find_balancing(self._fleet, above_percent, barred=self._barred, staying=self._staying)
        for move in moves:
            if len(self.steps) >= most:
                return False
            made = self._asked(move)
            if made is None or (made.downtime_s or 0.0) + spent_s > self._max_downtime_s:
                self._staying.add(move.vm.vm_uuid)
                return True
            if made.outcome is StepOutcome.FAILED:
                self.refused.append(made)
                self._barred.setdefault(move.vm.vm_uuid, set()).add(move.placement.host)
                return True
            spent_s += made.downtime_s or 0.0
            self.steps.append(made)
            self.advice.append(_advice(move))
        return False

    def _asked(self, move: BalancingMove) -> MadeStep | None:
        """The move as its host says; None for a VM that is elsewhere by now or cannot leave its host."""
        lease = move.lease
        key = (lease.vm_uuid, *move.to_place)
        if key in self._said:
            return self._said[key]
        with self._services.store.reading() as session:
            vm = next((one for one in session.vms(host=lease.host) if one.uuid == lease.vm_uuid), None)
        way = None if vm is None else likely_way(self._services, vm)
        if vm is None or way is None or way.kind is WayKind.PINNED:
            return None
        step = DefragStep(
            vm.uuid, vm.printed_name, way.kind, way.downtime_s, vm.host, (lease.share.gpu,), move.placement
        )
        (self._said[key],) = rehearse(self._services, [step])
        return self._said[key]


def _read(services: Services) -> LoadedFleet:
    """The fleet and the readings of the last hour. Raises NotFound without any, StoreUnusable, PrometheusUnusable."""
    with open_past(services.past()) as opened:
        if opened.past is None:
            raise NotFound(
                opened.problem or "there is no history of readings",
                hint="moves for load need measurements: run `vgpuctl serve exporter`, or name --prometheus",
            )
        measured = read_fleet_measured(services, opened.past, Windows(0.0, {UTILIZATION: WINDOW_S}))
        return loaded_fleet(measured, _of_gpus(opened.past, measured.now), loads_of_kinds(opened.past, measured.now))


def _of_gpus(past: Past, now: float) -> dict[Place, Samples]:
    found: dict[Place, list[tuple[float, float]]] = {}
    for subject, samples in past.series(GPU, "utilization_ratio", since=now - WINDOW_S, until=now + 60).items():
        found.setdefault((subject.host, subject.gpu), []).extend((one.at, one.mean) for one in samples)
    return dict(found)


def _advice(move: BalancingMove) -> Advice:
    lease, (before, after), (_, there) = move.lease, move.source, move.target
    place, target = (" ".join(one) for one in (move.from_place, move.to_place))
    name = f"{lease.tenant}/{lease.vm_name}"
    return Advice(
        id=advice_id(AdviceKind.REBALANCE, lease.vm_uuid, *move.from_place),
        kind=AdviceKind.REBALANCE,
        host=lease.host,
        gpu=lease.share.gpu,
        tenant=lease.tenant,
        vm=lease.vm_name,
        text=f"{place} has a load of {before.percent:.0f} %, and {before.high_percent:.0f} % at times",
        before={f"{name} place": place},
        after={f"{name} place": target},
        commands=(f"vgpuctl move-vm {name} --to {move.placement.host}",),
        gain=Gain(
            f"without {name} it has {after.percent:.0f} %, and {target} has {there.percent:.0f} % with it",
            before.percent - max(after.percent, there.percent),
            "percent of a GPU",
        ),
        proof=_PROOF,
        confidence=Confidence.of(WINDOW_S / _HOUR_S),
        measured_hours=WINDOW_S / _HOUR_S,
    )
