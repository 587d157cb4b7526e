# SPDX-License-Identifier: Apache-2.0
"""Soft sharing allocates at least what FGD does, on the same requests in the same order, knowing nothing beforehand."""

import random
import statistics
from collections.abc import Mapping

import pytest

from tests.bench.fgd import Fgd
from vgpuctl.scheduler.soft.host_state import WHOLE, Demand
from vgpuctl.scheduler.soft.soft_fleet import SoftFleet

HOSTS = [("A100", 96, 384, 8)] * 22 + [("T4", 104, 512, 2)] * 14 + [("P100", 16, 120, 2)] * 4
HOSTS += [("H100", 128, 768, 8)] * 2 + [("V100", 32, 128, 4)] * 2
"""Models, CPUs, memory in GiB and GPUs, near those of the public trace openb."""

SEEDS = range(3)
MARKS = (0.85, 0.9, 0.95, 1.0)
"""Arrived, as a part of the GPUs."""


def demand(cpu: int, gpus: int = 0, share: int = 0, boards: frozenset[str] = frozenset()) -> Demand:
    """A request; cpu in thousandths."""
    return Demand(cpu, 3 * cpu, gpus, share, 0, boards)


NEAR_OPENB = {
    demand(11300, 1, WHOLE): 40,
    demand(3200, 1, WHOLE): 10,
    demand(18700, 1, WHOLE): 4,
    demand(3200, 1, 810): 14,
    demand(10000, 1, 470): 9,
    demand(12000, 1, 650): 3,
    demand(4000, 1, 320): 4,
    demand(4000, 1, 230): 3,
    demand(12500): 5,
    demand(32000): 4,
    demand(88000, 8, WHOLE): 0.4,
    demand(120000, 8, WHOLE): 0.1,
    demand(32200, 4, WHOLE): 0.2,
}

Mix = Mapping[Demand, float]

MORE_MULTI: Mix = {one: count * (5 if one.gpus > 1 else 1) for one, count in NEAR_OPENB.items()}
MORE_SHARED: Mix = {one: count * (3 if one.share < WHOLE and one.gpus else 1) for one, count in NEAR_OPENB.items()}
MORE_CPUS: Mix = {
    (one._replace(cpu=13 * one.cpu // 10) if one.gpus == 1 else one): count for one, count in NEAR_OPENB.items()
}
MORE_MEMORY: Mix = {
    (one._replace(memory_mib=2 * one.memory_mib) if one.gpus == 1 else one): count for one, count in NEAR_OPENB.items()
}
BOUND: Mix = {
    **{one: 0.7 * count for one, count in NEAR_OPENB.items()},
    demand(11300, 1, WHOLE, frozenset({"A100"})): 12,
    demand(3200, 1, 810, frozenset({"T4"})): 3,
    demand(10000, 1, 470, frozenset({"T4"})): 3,
}
MIXES = {"openb": NEAR_OPENB, "multi": MORE_MULTI, "shared": MORE_SHARED, "cpus": MORE_CPUS}
MIXES |= {"memory": MORE_MEMORY, "bound": BOUND}


def allocated(mix: Mix, seed: int) -> list[tuple[float, float]]:
    """Part of the GPUs that is allocated, by soft sharing and by FGD, at each of MARKS."""
    chance = random.Random(seed)
    ours, fgd = SoftFleet(), Fgd({one: round(10 * count) for one, count in mix.items()})
    for number, (board, cpus, memory_gib, gpus) in enumerate(HOSTS):
        cpu, memory_mib = 1000 * cpus, 1024 * memory_gib
        ours.add_host(f"{number:03d}", board=board, cpu=cpu, memory_mib=memory_mib, gpus=[(WHOLE, 0)] * gpus)
        fgd.add_host(board, cpu, memory_mib, gpus)
    room = WHOLE * sum(gpus for *_, gpus in HOSTS)
    arrived = our_gpus = fgd_gpus = 0
    found = []
    for mark in MARKS:
        while arrived < mark * room:
            one = chance.choices(list(mix), list(mix.values()))[0]
            wanted = one.gpus * one.share
            arrived += wanted
            our_gpus += wanted * (ours.place(one) is not None)
            fgd_gpus += wanted * (fgd.place(one) is not None)
        found.append((our_gpus / room, fgd_gpus / room))
    return found


@pytest.mark.parametrize("name", MIXES)
def test_as_much_is_allocated_as_by_fgd(name: str) -> None:
    for of_seeds in zip(*(allocated(MIXES[name], seed) for seed in SEEDS), strict=True):
        ours, fgd = map(statistics.fmean, zip(*of_seeds, strict=True))
        assert ours >= fgd
