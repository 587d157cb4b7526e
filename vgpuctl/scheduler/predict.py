# SPDX-License-Identifier: Apache-2.0
"""The predicted throughput of a VM on each GPU that takes one of its shares, and the time of a job on every GPU."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.policy import parse_policy
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.host_rules import refuse_host
from vgpuctl.scheduler.performance.interval import Unpredictable
from vgpuctl.scheduler.performance.job_times import BoardSpeed, JobTime, JobTimes
from vgpuctl.scheduler.performance.measurement import UNLABELLED, Neighbour
from vgpuctl.scheduler.performance.model import Impact
from vgpuctl.scheduler.request_class import share_requests_of
from vgpuctl.scheduler.scorer import FleetView, Scorer, board_name, impact_of, speed_of
from vgpuctl.sharing.gate import constraints_of
from vgpuctl.sharing.offer import Refusal
from vgpuctl.sharing.offers import ask


@dataclass(frozen=True)
class GpuPrediction:
    """One GPU that takes a share. neighbours: workload class and profile of what is there.

    impact: what the VM would get, and cost its neighbours. reason: why nothing can be predicted, where impact is None.
    speed: of the GPU for its class; None where nobody measured or declared one, or speed_reason says why.
    """

    host: str
    gpu: str
    profile: str
    neighbours: tuple[Neighbour, ...]
    impact: Impact | None
    reason: str | None = None
    speed: BoardSpeed | None = None
    speed_reason: str | None = None

    @property
    def lost(self) -> float:
        """The loss against the VM alone on the fastest GPU; a whole VM where it is not known."""
        if self.impact is None or self.speed_reason is not None:
            return 1.0
        return self.impact.lost + self.impact.own.throughput * (1 - (1.0 if self.speed is None else self.speed.speed))


def predict_candidates(
    request: VmRequest, capacities: Sequence[HostCapacity], leases: Sequence[Lease], view: FleetView
) -> list[GpuPrediction]:
    """Predict for the first of each kind of share that the request asks for; what loses least comes first.

    view: with the model and the workload classes.
    """
    if view.model is None:
        return []
    fleet, scorer = Fleet(capacities, leases, view=view), Scorer(parse_policy("predicted"), model=view.model)
    workload = request.workload or UNLABELLED
    found = []
    for name, host in sorted(fleet.hosts.items()):
        if request.host not in (None, name) or refuse_host(request, host.capacity, host.cells) is not None:
            continue
        for state in host.states:
            for share_request in dict.fromkeys(share_requests_of(request)):
                answer = ask(share_request, state)
                if isinstance(answer, Refusal):
                    continue
                share = scorer.in_order(answer, {state.gpu.address: state}, by_size=True)[0].share
                impact = impact_of(view.model, workload, share, state)
                speed = speed_of(view.model, workload, state)
                found.append(
                    GpuPrediction(
                        name,
                        state.gpu.address,
                        share.profile,
                        state.neighbours,
                        impact if isinstance(impact, Impact) else None,
                        None if isinstance(impact, Impact) else impact.reason,
                        speed if isinstance(speed, BoardSpeed) else None,
                        speed.reason if isinstance(speed, Unpredictable) else None,
                    )
                )
    return sorted(found, key=lambda one: (one.impact is None, one.lost))


@dataclass(frozen=True)
class CardTime:
    """How long a job takes on one GPU, alone. time: None where reason says why nobody can tell.

    board: as tables of job times name it. is_declared: the inventory declares the GPU's speed, which counts.
    """

    host: str
    gpu: str
    board: str
    time: JobTime | None
    reason: str | None = None
    is_declared: bool = False


def _at_speed(fastest: JobTime | Unpredictable, speed: float) -> JobTime | Unpredictable:
    """The time on a GPU whose speed is declared against the fastest board."""
    if isinstance(fastest, Unpredictable):
        return fastest
    return replace(fastest, seconds=fastest.seconds / speed, low=fastest.low / speed, high=fastest.high / speed)


def predict_jobs(
    times: JobTimes, workload: str, size: float | None, capacities: Sequence[HostCapacity]
) -> list[CardTime]:
    """Predict one job on every GPU, the fastest first. A declared speed is against the fastest board that was timed."""
    cards = [
        (capacity.name, gpu.address, board_name(gpu), constraints_of(gpu, capacity.constraints).speed)
        for capacity in capacities
        for gpu in capacity.facts.gpus
    ]
    answers = {board: times.predict(workload, board, size) for board in {one[2] for one in cards}}
    fastest = times.fastest(workload, size)
    found = []
    for host, address, board, speed in cards:
        answer: JobTime | Unpredictable = answers[board]
        if speed is not None:
            answer = _at_speed(fastest, speed)
        is_known = isinstance(answer, JobTime)
        found.append(
            CardTime(
                host,
                address,
                board,
                answer if isinstance(answer, JobTime) else None,
                answer.reason if isinstance(answer, Unpredictable) else None,
                is_known and speed is not None,
            )
        )
    return sorted(found, key=lambda one: (one.time is None, one.time.seconds if one.time else 0.0, one.host, one.gpu))
