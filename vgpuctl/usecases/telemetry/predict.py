# SPDX-License-Identifier: Apache-2.0
"""predict: how long a job of a workload class takes on each GPU of the fleet, alone."""

from dataclasses import dataclass

from vgpuctl.errors import NotFound, UsageError
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

    A host that was never read, or with an error in the inventory, is left out, which is said.

    Raises NotFound where no job of the class was timed, or nothing is known of this size on any GPU; UsageError for a
    name that is not a class, for a size that is missing or of a class without sizes, and for a damaged file.
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
    has_sizes = any(one.sizes for one in model.times.classes if one.workload == workload)
    if has_sizes and size is None:
        raise UsageError(f"{workload} was timed with sizes", hint="name the size of the job with --size")
    if not has_sizes and size is not None:
        raise UsageError(f"{workload} was timed without sizes", hint="leave --size out")
    with services.store.reading() as session:
        capacities = cached_capacities(session, services.inventory, services.say)
        unread = set(services.inventory.select(None)) - session.all_facts().keys()
    for name in sorted(unread):
        services.say(f"{name} is left out: it was never read; `vgpuctl list-gpus --refresh` reads it")
    cards = predict_jobs(model.times, workload, size, capacities)
    reasons = sorted({one.reason for one in cards if one.reason is not None})
    if cards and all(one.time is None for one in cards):
        of_size = "" if size is None else f" of size {size:g}"
        raise NotFound(
            f"nothing is known of a {workload} job{of_size} on any GPU",
            context=reasons,
            hint="add jobs near this size to the table: `vgpuctl fit-performance --times FILE`",
        )
    return PredictedJob(workload, size, model.made_at, tuple(cards))
