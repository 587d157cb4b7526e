# SPDX-License-Identifier: Apache-2.0
"""fit-performance: fits the model of throughput from the kept history or a table, and keeps it beside the store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.measures import VGPU
from vgpuctl.errors import NotFound
from vgpuctl.model.vm import Vm
from vgpuctl.scheduler.performance.episodes import Track, cut_into_episodes, measure, time_alone
from vgpuctl.scheduler.performance.fit import fit
from vgpuctl.scheduler.performance.interval import Unpredictable
from vgpuctl.scheduler.performance.job_times import TimedClass, TimedJob, fit_times
from vgpuctl.scheduler.performance.measurement import UNLABELLED, Measurement
from vgpuctl.scheduler.performance.model import FEWEST_MEASUREMENTS, FEWEST_VMS, ClassModel, PerformanceModel
from vgpuctl.scheduler.scorer import BEST_EFFORT, MIG
from vgpuctl.specs.job_times_table import read_job_times_table
from vgpuctl.specs.performance_table import read_performance_table
from vgpuctl.usecases.measured.performance import DamagedModel, read_model, write_model
from vgpuctl.usecases.running.history import open_past
from vgpuctl.usecases.running.services import Services

if TYPE_CHECKING:
    from vgpuctl.telemetry.history import Sample, Subject

_WIDTH = 1.645
"""Standard deviations of a 90 % interval."""


@dataclass(frozen=True)
class FittedCost:
    """The cost of one class of neighbours for one class of VMs, in slowdown; 90 % are between low and high.

    is_used: True if there is enough to predict with.
    """

    isolation: str
    workload: str
    neighbour: str
    cost: float
    low: float
    high: float
    measurements: int
    vms: int
    is_used: bool


@dataclass(frozen=True)
class FittedSpeed:
    """The speed of one board for one class, against the fastest; 90 % are between low and high.

    is_timed: True for jobs of a table, False for readings. reason: why a speed is missing.
    """

    workload: str
    board: str
    speed: float | None
    low: float | None
    high: float | None
    measurements: int
    is_timed: bool
    reason: str | None = None


@dataclass(frozen=True)
class FittedPerformance:
    """costs: by isolation, class and neighbour. speeds: by class and board.

    path: of the model's file; written: False for a dry run.
    """

    model: PerformanceModel
    costs: tuple[FittedCost, ...]
    speeds: tuple[FittedSpeed, ...]
    measurements: int
    path: Path
    written: bool


def fit_performance(
    services: Services,
    *,
    table: Path | None,
    since_s: float,
    times: Path | None = None,
    workload: str | None = None,
    dry_run: bool = False,
) -> FittedPerformance:
    """Fit from a table, from timed jobs, or from the last `since_s` seconds of the history. The rest of the file stays.

    times: a table of job sizes and seconds on each card, of this workload class where its rows name none.
    Raises NotFound where nothing was measured, UsageError for a bad table, StoreUnusable, PrometheusUnusable.
    """
    now, path = services.store.now(), services.performance()
    before = _kept(services, path)
    if times is not None:
        jobs = read_job_times_table(times, workload=workload)
        model, count = replace(before, made_at=now, times=before.times.with_later(fit_times(jobs))), len(jobs)
        if table is None:
            return _finished(model, count, f"table {times.name}", path, dry_run=dry_run)
        before = model
    if table is not None:
        found, jobs, source = read_performance_table(table), [], f"table {table.name}"
    else:
        found, jobs = _measured(services, now, since_s)
        source = "history"
    if not found:
        raise NotFound(
            "nothing measured that a model could be fitted from",
            hint="VMs must share a GPU for ten minutes and be alone on it for ten minutes, while"
            " `vgpuctl serve exporter` runs; or give measurements of your own with --table",
        )
    fitted = fit(found, made_at=now, source=source)
    model = replace(fitted, times=before.times.with_later(fit_times(jobs)))
    return _finished(model, len(found), source, path, dry_run=dry_run)


def _kept(services: Services, path: Path) -> PerformanceModel:
    """The model that is kept; an empty one where there is none. That a damaged file is replaced is said.

    Raises UsageError for a file that cannot be opened, and for one of another vgpuctl.
    """
    try:
        return read_model(path)
    except NotFound:
        return PerformanceModel()
    except DamagedModel as error:
        services.say(f"warning: {error.message}; what it had is lost, and it is made anew")
        return PerformanceModel()


def _finished(model: PerformanceModel, count: int, source: str, path: Path, *, dry_run: bool) -> FittedPerformance:
    if not dry_run:
        write_model(path, model)
    costs = tuple(cost for one in model.classes for cost in _costs(one))
    speeds = tuple(speed for one in model.times.classes for speed in _speeds(one))
    return FittedPerformance(replace(model, source=source), costs, speeds, count, path, not dry_run)


def _speeds(one: TimedClass) -> list[FittedSpeed]:
    found = []
    for board, count in one.boards.items():
        speed = one.speed(board)
        if isinstance(speed, Unpredictable):
            found.append(FittedSpeed(one.workload, board, None, None, None, count, not one.is_read, speed.reason))
        else:
            found.append(FittedSpeed(one.workload, board, speed.speed, speed.low, speed.high, count, not one.is_read))
    return found


def _measured(services: Services, now: float, since_s: float) -> tuple[list[Measurement], list[TimedJob]]:
    with services.store.reading() as session:
        vms = session.vms()
        facts = {name: known.facts for name, known in session.all_facts().items()}
    with open_past(services.past()) as opened:
        if opened.past is None:
            raise NotFound(opened.problem or "there is no history of readings", hint="run `vgpuctl serve exporter`")
        episodes = []
        for host in sorted(facts):  # the minutes of one host at a time: a fleet's would fill the memory
            used = opened.past.series(VGPU, "utilization_ratio", since=now - since_s, until=now, host=host)
            episodes += cut_into_episodes(tracks_of(used, vms, facts), unknown=UNLABELLED)
    boards = {
        (name, gpu.address): board.key
        for name, one in facts.items()
        for gpu in one.gpus
        if (board := catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)) is not None
    }
    return measure(episodes), time_alone(episodes, boards)


def tracks_of(
    used: "Mapping[Subject, Sequence[Sample]]", vms: Sequence[Vm], facts: Mapping[str, HostFacts]
) -> list[Track]:
    """The tracks of the vGPUs. facts: by host, whose schedulers count as they are now."""
    workloads = {(vm.request.tenant, vm.request.name): vm.request.workload or UNLABELLED for vm in vms}
    schedulers = {
        (name, gpu.address): gpu.scheduler.policy
        for name, one in facts.items()
        for gpu in one.gpus
        if gpu.scheduler is not None
    }
    return [
        Track(
            vm=f"{subject.tenant}/{subject.vm}" if subject.vm else subject.object,
            place=(subject.host, subject.gpu),
            isolation=MIG
            if catalog.is_mig_backed(subject.profile)
            else schedulers.get((subject.host, subject.gpu), BEST_EFFORT),
            workload=workloads.get((subject.tenant, subject.vm)),
            profile=subject.profile,
            use={int(one.at): one.mean for one in samples},
        )
        for subject, samples in used.items()
    ]


def _costs(one: ClassModel) -> list[FittedCost]:
    is_used = one.measurements >= FEWEST_MEASUREMENTS and one.vms >= FEWEST_VMS
    found = []
    for neighbour, count in one.pairs.items():
        mean, deviation = one.cost_of(neighbour)
        low, high = mean - _WIDTH * deviation, mean + _WIDTH * deviation
        found.append(FittedCost(one.isolation, one.workload, neighbour, mean, low, high, count, one.vms, is_used))
    return found
