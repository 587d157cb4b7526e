# SPDX-License-Identifier: Apache-2.0
"""Measurements of throughput from the kept history: what each vGPU used while its neighbours stayed the same.

The host sees no work done, only the GPU time that a vGPU used. It stands for work: throughput is the time used beside
neighbours against the time that the same VM used alone. A VM that never was alone is held against others of its class.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from vgpuctl.scheduler.performance.job_times import TimedJob
from vgpuctl.scheduler.performance.measurement import UNLABELLED, Measurement

MINUTE_S = 60
FEWEST_MINUTES, MOST_MINUTES = 10, 60
"""An episode is at least ten minutes, and a longer one is cut into hours."""

LEAST_USE = 0.02
"""A VM that uses less alone does nothing that neighbours could slow down."""

MOST_USE = 0.9
"""A VM that uses more alone may want still more, so that its use does not compare GPUs."""

MOST_THROUGHPUT = 2.0
"""Beyond this the VM's own demand has changed, and the episode says nothing about its neighbours."""

FEWEST_ALONE = 3
"""VMs of a class that must have been alone, to stand for one that was not."""


@dataclass(frozen=True)
class Track:
    """The use of a GPU by one vGPU. place: host and GPU. use: part of the GPU's time by minute.

    workload: None for a VM that is gone, whose class nobody knows; it only counts as a neighbour.
    """

    vm: str
    place: tuple[str, str]
    isolation: str
    workload: str | None
    profile: str
    use: Mapping[int, float]


@dataclass(frozen=True)
class Episode:
    """A time in which the neighbours of a vGPU stayed the same. use: the mean part of the GPU's time.

    place: host and GPU.
    """

    vm: str
    isolation: str
    workload: str | None
    profile: str
    neighbours: tuple[str, ...]
    use: float
    place: tuple[str, str] = ("", "")


def cut_into_episodes(tracks: Iterable[Track], *, unknown: str) -> list[Episode]:
    """Cut the tracks of whole GPUs where a vGPU comes or goes. unknown: the class of VMs that are gone."""
    by_place: defaultdict[tuple[str, str], list[Track]] = defaultdict(list)
    for track in tracks:
        by_place[track.place].append(track)
    return [one for place in sorted(by_place) for one in _episodes_at(by_place[place], unknown)]


def measure(episodes: Sequence[Episode]) -> list[Measurement]:
    """Compare each episode with the VM alone, or with others of its class."""
    alone: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
    for one in episodes:
        if not one.neighbours:
            alone[one.vm, one.isolation, one.profile].append(one.use)
    of_vm = {key: fmean(uses) for key, uses in alone.items()}
    of_class = _of_classes(episodes, of_vm)
    found = []
    for one in episodes:
        usual = of_vm.get((one.vm, one.isolation, one.profile))
        if usual is None:
            usual = of_class.get((one.isolation, one.workload or "", one.profile))
        if usual is None or usual < LEAST_USE or one.workload is None:
            continue
        throughput = one.use / usual
        if 0 < throughput <= MOST_THROUGHPUT:
            found.append(Measurement(one.vm, one.isolation, one.workload, one.profile, one.neighbours, throughput))
    return found


def time_alone(episodes: Iterable[Episode], boards: Mapping[tuple[str, str], str]) -> list[TimedJob]:
    """One job for each VM of a class and board: the part of the GPU's time that its work takes alone.

    boards: of GPUs, by place. The same demand takes less of a faster GPU. A VM that uses all of a GPU tells nothing:
    nobody knows how much it does.
    """
    uses: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    for one in episodes:
        if not one.neighbours and one.workload not in (None, UNLABELLED) and one.place in boards:
            uses[one.workload or "", boards[one.place], one.vm].append(one.use)
    means = {key: fmean(found) for key, found in sorted(uses.items())}
    return [
        TimedJob(workload, board, None, mean, is_read=True)
        for (workload, board, _), mean in means.items()
        if LEAST_USE <= mean <= MOST_USE
    ]


def _of_classes(
    episodes: Sequence[Episode], of_vm: Mapping[tuple[str, ...], float]
) -> dict[tuple[str, str, str], float]:
    """The mean use alone by isolation, class and profile, of those with enough VMs."""
    classes: defaultdict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    for one in episodes:
        usual = of_vm.get((one.vm, one.isolation, one.profile))
        if usual is not None and one.workload is not None:
            classes[one.isolation, one.workload, one.profile][one.vm] = usual
    return {key: fmean(uses.values()) for key, uses in classes.items() if len(uses) >= FEWEST_ALONE}


def _episodes_at(tracks: Sequence[Track], unknown: str) -> list[Episode]:
    """The episodes of one GPU: its vGPUs by minute, cut where any of them comes or goes."""
    by_minute: defaultdict[int, list[int]] = defaultdict(list)
    for number, track in enumerate(tracks):
        for minute in track.use:
            by_minute[minute].append(number)
    minutes = sorted(by_minute)
    starts = {
        now for before, now in pairwise(minutes) if now - before > 2 * MINUTE_S or by_minute[now] != by_minute[before]
    }
    runs: list[list[int]] = []
    for minute in minutes:
        if not runs or minute in starts or len(runs[-1]) == MOST_MINUTES:
            runs.append([])
        runs[-1].append(minute)
    found = []
    for run in runs:
        company = by_minute[run[0]]
        # The minute in which a VM came or went belongs to both companies.
        whole = [minute for minute in run[1:-1] if minute not in starts]
        if len(whole) < FEWEST_MINUTES - 2:
            continue
        for number in company:
            others = Counter(tracks[other].workload or unknown for other in company if other != number)
            use = fmean(max(0.0, tracks[number].use[minute]) for minute in whole)
            own = tracks[number]
            neighbours = tuple(sorted(others.elements()))
            found.append(Episode(own.vm, own.isolation, own.workload, own.profile, neighbours, use, own.place))
    return found
