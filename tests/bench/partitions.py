# SPDX-License-Identifier: Apache-2.0
"""Partitions of NVSwitch fabrics over arrival traces: the scheduler, the lowest number first, and the exact optimum.

VMs with 1, 2, 4 or 8 GPUs arrive (Poisson), stay (exponential) and are refused where no partition is free. The optimum
knows the whole trace and searches every choice of partitions for one board; it refuses none that it can place, as the
others. For several boards there is no optimum. The boards are read by the agent from simulated hosts.

`python -m tests.bench.partitions [--traces 40] [--arrivals 80]`
"""

import argparse
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.agent.simulated import Machine
from tests.unit.fleet_factory import vm
from vgpuctl.agent.dispatch import read_facts
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.gang import promised_leases_of

BOARDS = {"HGX H100": ("h100-sxm5", "H100"), "HGX B200": ("b200", "B200")}
LOADS = (0.7, 0.9, 1.1)
SIZES = {1: 4, 2: 2, 4: 2, 8: 1}
"""GPUs of a VM, and how often it arrives with so many."""
LARGE = 4
_MOST_STATES = 200_000

Modules = frozenset[int]
Taken = frozenset[tuple[float, Modules]]
"""VMs by the time of their end and the GPUs that they have."""


@dataclass(frozen=True)
class Arrival:
    """One VM: when it comes and goes, and its GPUs."""

    at: float
    end: float
    gpus: int


def trace(dice: random.Random, count: int, load: float, gpus: int) -> list[Arrival]:
    """Arrivals that would keep this part of the GPUs busy."""
    mean = sum(size * weight for size, weight in SIZES.items()) / sum(SIZES.values())
    found, now = [], 0.0
    for _ in range(count):
        now += dice.expovariate(load * gpus / mean)
        size = dice.choices(list(SIZES), list(SIZES.values()))[0]
        found.append(Arrival(now, now + dice.expovariate(1), size))
    return found


def by_scheduler(facts: HostFacts, model: str, boards: int, arrivals: Sequence[Arrival]) -> list[Arrival]:
    """The VMs that the scheduler places."""
    fleet = Fleet([HostCapacity(f"h{number}", facts) for number in range(boards)])
    running: list[tuple[float, str, list[Lease]]] = []
    placed = []
    for number, one in enumerate(arrivals):
        for _end, host, leases in (each for each in running if each[0] <= one.at):
            fleet.release(host, leases)
        running = [each for each in running if each[0] > one.at]
        placement = fleet.place(vm(f"passthrough:{model}*{one.gpus}"))
        if placement is not None:
            leases = [replace(lease, id=f"{number}-{lease.index}") for lease in promised_leases_of(placement, 0)]
            fleet.take(placement.host, leases)
            running.append((one.end, placement.host, leases))
            placed.append(one)
    return placed


def by_number(partitions: Sequence[Modules], boards: int, arrivals: Sequence[Arrival]) -> list[Arrival]:
    """The VMs that are placed on the first board with a free partition, the one of the lowest number."""
    running: list[tuple[float, int, Modules]] = []
    placed = []
    for one in arrivals:
        running = [each for each in running if each[0] > one.at]
        for board in range(boards):
            taken = frozenset().union(*(each[2] for each in running if each[1] == board))
            found = next((each for each in partitions if len(each) == one.gpus and not each & taken), None)
            if found is not None:
                running.append((one.end, board, found))
                placed.append(one)
                break
    return placed


def most(partitions: Sequence[Modules], arrivals: Sequence[Arrival], counts: Callable[[Arrival], bool]) -> int:
    """The most VMs of a kind that any choice of partitions places on one board, knowing all arrivals."""
    states: dict[Taken, int] = {frozenset(): 0}
    for one in arrivals:
        after: dict[Taken, int] = {}
        for state, value in states.items():
            running = frozenset(each for each in state if each[0] > one.at)
            taken = frozenset().union(*(each[1] for each in running))
            fitting = [each for each in partitions if len(each) == one.gpus and not each & taken]
            choices: Sequence[Modules | None] = fitting or [None]
            for choice in choices:
                then = running if choice is None else running | {(one.end, choice)}
                gained = value + (choice is not None and counts(one))
                after[then] = max(gained, after.get(then, -1))
        states = after
        if len(states) > _MOST_STATES:
            raise SystemExit(f"more than {_MOST_STATES} states: use fewer GPUs")
    return max(states.values())


def is_large(one: Arrival) -> bool:
    """True for the VMs that broken boards cannot take."""
    return one.gpus >= LARGE


def rows(traces: int, arrivals: int) -> Iterator[str]:
    """A line for each board and load."""
    for name, (board, model) in BOARDS.items():
        with tempfile.TemporaryDirectory() as folder:
            facts = read_facts(Machine(Path(folder), f"{board}/passthrough~fabric-shared*8").host)
        manager = facts.fabric_manager
        assert manager is not None and manager.partitions is not None
        partitions = [one.modules for one in manager.partitions]
        for boards in (1, 4):
            for load in LOADS:
                ours, first, best, large_of = [0, 0], [0, 0], [0, 0], [0, 0]
                for seed in range(traces):
                    asked = trace(random.Random(seed), arrivals * boards, load, 8 * boards)
                    placed = by_scheduler(facts, model, boards, asked), by_number(partitions, boards, asked)
                    for found, one in zip((ours, first), placed, strict=True):
                        found[0] += len(one)
                        found[1] += sum(map(is_large, one))
                    if boards == 1:
                        best[0] += most(partitions, asked, lambda _one: True)
                        best[1] += most(partitions, asked, is_large)
                    large_of[0] += len(asked)
                    large_of[1] += sum(map(is_large, asked))
                told = [
                    f"{part[0] / large_of[0]:.1%} / {part[1] / large_of[1]:.1%}" if any(part) else "-"
                    for part in (first, ours, best)
                ]
                yield f"| {name} | {boards} | {load} | {' | '.join(told)} |"


def main() -> None:
    """Print a table: of all VMs, and of those with 4 or 8 GPUs, the part that is placed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=40)
    parser.add_argument("--arrivals", type=int, default=80)
    asked = parser.parse_args()
    print("| board | boards | load | lowest number first | scheduler | optimum |\n|---|---|---|---|---|---|")
    for row in rows(asked.traces, asked.arrivals):
        print(row, flush=True)


if __name__ == "__main__":
    main()
