# SPDX-License-Identifier: Apache-2.0
"""predict: how long a job of a workload class takes on each GPU of the fleet, alone."""

from dataclasses import dataclass

from vgpuctl.errors import NotFound
from vgpuctl.model.vm import parse_workload
from vgpuctl.scheduler.predict import CardTime, predict_jobs
from vgpuctl.usecases.measured.performance import read_model
from vgpuctl.usecases.observed.capacities import cached_capacities
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class PredictedJob:
    """cards: the fastest first. fitted_at: seconds since the epoch, UTC."""

    workload: str
    size: float | None
    fitted_at: float
    cards: tuple[CardTime, ...]


def predict(services: Services, workload: str, size: float | None) -> PredictedJob:
    """Predict by the fitted times; hosts are taken as they were read last. No host is contacted.

    Raises NotFound where no job of the class was timed, UsageError for a name that is no class or a damaged file.
    """
    workload = parse_workload(workload, what="workload")
    model = read_model(services.performance())
    timed = [one.workload for one in model.times.classes if not one.is_read]
    if workload not in timed:
        names = ", ".join(timed)
        raise NotFound(
            f"no {workload} job was timed" + (f"; there are {names}" if names else ""),
            hint="give a table of sizes and seconds: `vgpuctl fit-performance --times FILE`",
        )
    with services.store.reading() as session:
        capacities = cached_capacities(session, services.inventory)
    cards = predict_jobs(model.times, workload, size, capacities)
    return PredictedJob(workload, size, model.made_at, tuple(cards))
