# SPDX-License-Identifier: Apache-2.0
"""Decisions per second of the scheduler's soft sharing against the size of the fleet.

`python -m tests.bench.decisions [--policy P] [--gpus 1000,10000,50000] [--shapes N]`: hosts of four models are filled
to 90 % of their GPUs with requests of N different shapes and then replaced one by one; the second is what is timed.
CPU time of this process, so that a busy machine disturbs less.
"""

import argparse
import random
import time

from vgpuctl.model.policy import parse_policy
from vgpuctl.scheduler.soft.host_state import WHOLE, Demand
from vgpuctl.scheduler.soft.soft_fleet import SoftFleet, SoftPlacement

HOSTS = [("A40", 96, 384, 8), ("A100", 128, 1024, 8), ("L40S", 64, 512, 4), ("T4", 48, 256, 2)]
MOST_SHAPES = 56
SHARES = [100, 125, 200, 250, 333, 400, 500, 750, 1000, 1000, 1000]


def shapes_of(number: int, chance: random.Random) -> list[Demand]:
    """Requests as a price list has them: so many CPUs and so much memory for so much GPU."""
    found: list[Demand] = []
    while len(found) < number:
        share = chance.choice(SHARES)
        gpus = chance.choice([1, 1, 1, 2, 4]) if share == WHOLE else 1
        cpus = max(1, gpus * share * chance.choice([4, 8, 12]) // WHOLE)
        memory_gib = cpus * chance.choice([4, 8])
        demand = Demand(cpus * 1000, memory_gib * 1024, gpus, share, share * 40)
        if demand not in found:
            found.append(demand)
    return found


def measure(policy: str, gpus: int, shapes: int, decisions: int) -> tuple[int, float, float]:
    """Hosts, decisions per second of CPU time, and the allocated part of the GPUs in percent."""
    chance = random.Random(1)
    demands = shapes_of(shapes, chance)
    fleet = SoftFleet(parse_policy(policy), dict.fromkeys(demands, 1))
    there = hosts = 0
    while there < gpus:
        board, cpus, memory_gib, count = HOSTS[hosts % len(HOSTS)]
        fleet.add_host(
            f"host-{hosts:06d}",
            board=board,
            cpu=cpus * 1000,
            memory_mib=memory_gib * 1024,
            gpus=[(WHOLE, 40 * WHOLE)] * count,
        )
        hosts += 1
        there += count
    placed: list[tuple[SoftPlacement, Demand]] = []
    used = misses = 0
    while used < 0.9 * there * WHOLE:
        demand = chance.choice(demands)
        placement = fleet.place(demand)
        if placement is None:
            misses += 1
            if misses > 100:
                break
            continue
        placed.append((placement, demand))
        used += demand.gpus * demand.share
    spent = 0.0
    for _ in range(decisions):
        at = chance.randrange(len(placed))
        placed[at], placed[-1] = placed[-1], placed[at]
        old = placed.pop()
        fleet.release(*old)
        used -= old[1].gpus * old[1].share
        demand = chance.choice(demands)
        began = time.process_time()
        placement = fleet.place(demand)
        spent += time.process_time() - began
        if placement is not None:
            placed.append((placement, demand))
            used += demand.gpus * demand.share
    return hosts, decisions / spent, 100 * used / (there * WHOLE)


def main() -> None:
    """Print one line per size of the fleet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="fragmentation")
    parser.add_argument("--gpus", default="1000,10000,50000")
    parser.add_argument("--shapes", type=int, default=20, choices=range(1, MOST_SHAPES + 1), metavar="1..56")
    parser.add_argument("--decisions", type=int, default=3000)
    arguments = parser.parse_args()
    for gpus in (int(text) for text in arguments.gpus.split(",")):
        hosts, speed, used = measure(arguments.policy, gpus, arguments.shapes, arguments.decisions)
        print(f"{arguments.policy:14} GPUs {gpus:6} hosts {hosts:6} {speed:9.0f} decisions/s  allocated {used:.1f} %")


if __name__ == "__main__":
    main()
