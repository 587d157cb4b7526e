# SPDX-License-Identifier: Apache-2.0
"""Measurements for placing: the load of the last hour, and the fitted model of throughput."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vgpuctl.agent.wire.measures import GPU
from vgpuctl.errors import NotFound, VgpuctlError
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.policy import PolicyName
from vgpuctl.model.vm import Vm, VmRequest
from vgpuctl.scheduler.performance.model import PerformanceModel
from vgpuctl.scheduler.rolling import WINDOW_S, RollingLoad, rolling_load
from vgpuctl.scheduler.scorer import FleetView, policies_of, view_of
from vgpuctl.store.session import Session
from vgpuctl.usecases.support.history import PAST_PROBLEMS, Past, open_past
from vgpuctl.usecases.support.performance import read_model
from vgpuctl.usecases.support.services import Services

Place = tuple[str, str]
"""Host and address of a GPU."""


@dataclass(frozen=True)
class GpuLoad:
    """The load of one GPU that `least-utilised` went by. rolling: None where the last reading counted."""

    host: str
    gpu: str
    percent: int
    rolling: RollingLoad | None = None


@dataclass(frozen=True)
class PlacingMeasurements:
    """loads: of the last hour, by place. model: None where no policy asks for it or there is none.

    loads_problem, model_problem: why there is none, in one line.
    """

    loads: Mapping[Place, RollingLoad] = field(default_factory=dict)
    model: PerformanceModel | None = None
    loads_problem: str | None = None
    model_problem: str | None = None

    def view(
        self, request: VmRequest, capacities: Sequence[HostCapacity], last_host: str | None, vms: Sequence[Vm]
    ) -> FleetView:
        """The inputs of the request's policies."""
        return view_of(request, capacities, last_host, loads=self.loads, model=self.model, workloads=workloads_of(vms))

    def loads_of(self, view: FleetView) -> list[GpuLoad]:
        """The loads that counted, by host and address."""
        return [
            GpuLoad(host, gpu, round(percent), self.loads.get((host, gpu)))
            for (host, gpu), percent in sorted(view.utilisation_percent.items())
        ]


def read_measurements(
    services: Services, request: VmRequest, capacities: Sequence[HostCapacity]
) -> PlacingMeasurements:
    """Read what the request's policies ask for. A missing one is a problem, and placing goes on without it."""
    named = policies_of(request, capacities)
    loads: Mapping[Place, RollingLoad] = {}
    model, loads_problem, model_problem = None, None, None
    if PolicyName.LEAST_UTILISED in named:
        with open_past(services.past()) as opened:
            if opened.past is None:
                loads_problem = opened.problem
            else:
                try:
                    loads = rolling_loads(opened.past, services.store.now(), capacities)
                except PAST_PROBLEMS as error:
                    loads_problem = error.message
    if PolicyName.PREDICTED in named:
        try:
            model = read_model(services.performance())
        except NotFound as error:
            model_problem = f"{error.message}, so policy predicted knows nothing; {error.hint}"
        except VgpuctlError as error:
            model_problem = error.message
    return PlacingMeasurements(loads, model, loads_problem, model_problem)


def rolling_loads(past: Past, now: float, capacities: Sequence[HostCapacity]) -> dict[Place, RollingLoad]:
    """The load of the last hour of every GPU that was measured enough. Raises one of PAST_PROBLEMS."""
    known = {(one.name, gpu.address) for one in capacities for gpu in one.facts.gpus}
    found: dict[Place, RollingLoad] = {}
    for subject, samples in past.series(GPU, "utilization_ratio", since=now - WINDOW_S, until=now + 60).items():
        place = (subject.host, subject.gpu)
        load = rolling_load([(one.at, one.mean, one.high) for one in samples], now)
        if place in known and load is not None and (place not in found or load.age_s < found[place].age_s):
            found[place] = load
    return found


def workloads_of(vms: Sequence[Vm]) -> dict[str, str]:
    """The workload class of each VM that declares one, by UUID."""
    return {vm.uuid: vm.request.workload for vm in vms if vm.request.workload is not None}


def last_view(
    session: Session, measured: PlacingMeasurements, request: VmRequest, capacities: Sequence[HostCapacity]
) -> FleetView:
    """The view of a request with what the store knows now."""
    vms = session.vms() if measured.model is not None else []
    return measured.view(request, capacities, session.last_placed_host(), vms)
