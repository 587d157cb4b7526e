# SPDX-License-Identifier: Apache-2.0
"""Measurements for placing: the load of the last hour, and the fitted model of throughput."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.measures import GPU, VGPU
from vgpuctl.errors import NotFound, VgpuctlError
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.policy import PolicyName
from vgpuctl.model.vm import Vm, VmRequest
from vgpuctl.scheduler.performance.model import PerformanceModel
from vgpuctl.scheduler.rolling import WINDOW_S, RollingLoad, rolling_load
from vgpuctl.scheduler.scorer import FleetView, policies_of, view_of
from vgpuctl.scheduler.unmeasured import UnmeasuredLoad, seen_part
from vgpuctl.sharing.occupancy import gpu_at
from vgpuctl.store.session import Session
from vgpuctl.usecases.measured.performance import read_model
from vgpuctl.usecases.running.history import PAST_PROBLEMS, Past, open_past
from vgpuctl.usecases.running.services import Services

Place = tuple[str, str]
"""Host and address of a GPU."""


@dataclass(frozen=True)
class GpuLoad:
    """The load of one GPU that `least-utilised` went by. rolling: None where the last reading counted.

    added_percent: of shares that came after the reading; it is not in percent.
    """

    host: str
    gpu: str
    percent: int
    rolling: RollingLoad | None = None
    added_percent: int = 0


@dataclass(frozen=True)
class PlacingMeasurements:
    """loads: of the last hour, by place. model: None where no policy asks for it or there is none.

    kinds: mean load of a share by vGPU type, in percent of a GPU, over the last hour; None where no policy asks for it.
    loads_problem, model_problem: why there is none, in one line.
    """

    loads: Mapping[Place, RollingLoad] = field(default_factory=dict)
    kinds: Mapping[str, float] | None = None
    model: PerformanceModel | None = None
    loads_problem: str | None = None
    model_problem: str | None = None

    def view(
        self,
        request: VmRequest,
        capacities: Sequence[HostCapacity],
        last_host: str | None,
        vms: Sequence[Vm],
        seen: Mapping[str, float] | None = None,
    ) -> FleetView:
        """The inputs of the request's policies. seen: as in UnmeasuredLoad."""
        unmeasured = None if self.kinds is None else UnmeasuredLoad(seen or {}, self.kinds)
        return view_of(
            request,
            capacities,
            last_host,
            loads=self.loads,
            unmeasured=unmeasured,
            model=self.model,
            workloads=workloads_of(vms),
        )

    def seen(self, session: Session) -> dict[str, float]:
        """The part of each share's load that the reading of its GPU has, of those that it has seen at all.

        A share that was kept while its VM was off is seen since the VM runs again. A reading of the host that did not
        tell the use of a GPU has seen no share of it.
        """
        if self.kinds is None:
            return {}
        now, found = session.now(), {}
        running_since = session.running_since()
        for one in session.intervals(now, now + 1):
            rolling = self.loads.get((one.host, one.gpu))
            cached = session.facts(one.host) if rolling is None else None
            if cached is not None and not _tells_use(cached.facts, one.gpu):
                continue
            read_at = now - rolling.age_s if rolling is not None else cached.read_at if cached is not None else now
            begun_at = max(one.begun_at, running_since.get(one.lease_id, one.begun_at))
            found[one.lease_id] = seen_part(begun_at, read_at, is_rolling=rolling is not None)
        return {lease: part for lease, part in found.items() if part}

    def loads_of(self, view: FleetView, leases: Sequence[Lease], capacities: Sequence[HostCapacity]) -> list[GpuLoad]:
        """The loads that counted, by host and address."""
        found = []
        for one in sorted(capacities, key=lambda one: one.name):
            for gpu in sorted(one.facts.gpus, key=lambda gpu: gpu.address):
                place = (one.name, gpu.address)
                there = [lease for lease in leases if (lease.host, lease.share.gpu) == place]
                added = 0 if view.unmeasured is None else round(view.unmeasured.percent(there, gpu))
                if place in view.utilisation_percent or added:
                    percent = round(view.utilisation_percent.get(place, 0.0))
                    found.append(GpuLoad(*place, percent, self.loads.get(place), added))
        return found


def _tells_use(facts: HostFacts, address: str) -> bool:
    gpu = gpu_at(facts, address)
    return gpu is not None and gpu.utilisation_percent is not None


def read_measurements(
    services: Services, request: VmRequest, capacities: Sequence[HostCapacity]
) -> PlacingMeasurements:
    """Read what the request's policies ask for. A missing one is a problem, and placing goes on without it."""
    named = policies_of(request, capacities)
    loads: Mapping[Place, RollingLoad] = {}
    kinds: Mapping[str, float] | None = None
    model, loads_problem, model_problem = None, None, None
    if PolicyName.LEAST_UTILISED in named:
        kinds = {}
        with open_past(services.past()) as opened:
            if opened.past is None:
                loads_problem = opened.problem
            else:
                try:
                    now = services.store.now()
                    loads = rolling_loads(opened.past, now, capacities)
                    kinds = loads_of_kinds(opened.past, now)
                except PAST_PROBLEMS as error:
                    loads_problem = error.message
    if PolicyName.PREDICTED in named:
        try:
            model = read_model(services.performance())
        except NotFound as error:
            model_problem = f"{error.message}, so policy predicted knows nothing; {error.hint}"
        except VgpuctlError as error:
            model_problem = error.message
    return PlacingMeasurements(loads, kinds, model, loads_problem, model_problem)


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


def loads_of_kinds(past: Past, now: float) -> dict[str, float]:
    """The mean load of one share of each vGPU type over the last hour, in percent of a GPU. Raises as above."""
    found: dict[str, list[float]] = {}
    series = past.series(VGPU, "utilization_ratio", since=now - WINDOW_S, until=now + 60)
    for subject, samples in series.items():
        load = rolling_load([(one.at, one.mean, one.high) for one in samples], now)
        if load is not None:
            found.setdefault(subject.profile, []).append(100 * load.mean)
    return {profile: fmean(percents) for profile, percents in found.items()}


def workloads_of(vms: Sequence[Vm]) -> dict[str, str]:
    """The workload class of each VM that declares one, by UUID."""
    return {vm.uuid: vm.request.workload for vm in vms if vm.request.workload is not None}


def last_view(
    session: Session, measured: PlacingMeasurements, request: VmRequest, capacities: Sequence[HostCapacity]
) -> FleetView:
    """The view of a request with what the store knows now."""
    vms = session.vms() if measured.model is not None else []
    return measured.view(request, capacities, session.last_placed_host(), vms, measured.seen(session))
