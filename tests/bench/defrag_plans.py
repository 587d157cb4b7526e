# SPDX-License-Identifier: Apache-2.0
"""How good plans of moves are, and how long they take: `python -m tests.bench.defrag_plans [--seeds 3] [--vms 200]`.

64 A40s on 16 hosts, on 64, and 64 MIG cards with a host each. VMs come until nothing more fits, then random ones go.
For each goal: the room before and after, the most that is proven possible, moves, the proven least, gap and seconds.
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.mig_moves import Fleet as MigFleet
from tests.bench.mig_policy import NAMES
from tests.unit.fleet_factory import a40_host, lease, vm
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity
from vgpuctl.scheduler.capacity import PlacedVm, count_more
from vgpuctl.scheduler.defrag.plan import Goal, MovableVm, VmWay, WayKind, plan_defrag
from vgpuctl.scheduler.defrag.search import NO_LIMITS
from vgpuctl.scheduler.defrag.solve import solve
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.guest_place import footprint_of
from vgpuctl.scheduler.host_memory import with_promised

SIZES = ("A40-4Q", "A40-8Q", "A40-12Q", "A40-24Q", "A40-48Q")
WEIGHTS = (4, 6, 3, 3, 1)
GOALS: tuple[tuple[str | None, int | None], ...] = (
    ("A40-48Q", 1),
    ("A40-24Q", 4),
    ("A40-8Q", 12),
    ("2*A40-48Q", 1),
    (None, None),
)
MIG_GOALS: tuple[tuple[str | None, int | None], ...] = (("7g.80gb", 1), ("3g.40gb", 2), (None, None))
LEFT = (0.5, 0.7, 0.85)
"""Part of the VMs that is still there."""


def a40_fleet(
    hosts: int, cards: int, most: int, left: float, seed: int
) -> tuple[list[HostCapacity], list[Lease], list[PlacedVm]]:
    """Hosts with VMs: their capacities, leases and VMs."""
    dice = random.Random(seed)
    capacities = []
    for number in range(hosts):
        one = a40_host(f"host-{number:02}", cards=cards)
        node = replace(one.facts.numa_nodes[0], memory_mib=1 << 21, cpus="0-511")
        facts = replace(one.facts, memory_mib=1 << 21, memory_available_mib=1 << 21, cpus=512, numa_nodes=(node,))
        capacities.append(replace(one, facts=facts))
    fleet, vms = Fleet(capacities), list[PlacedVm]()
    while True:
        request = vm(dice.choices(SIZES, WEIGHTS)[0], name=f"vm-{len(vms):03}")
        placement = fleet.place(request)
        if placement is None:
            break
        held = [replace(lease(placement.host, one, vm_name=request.name), id=request.name) for one in placement.shares]
        footprint = footprint_of(request, placement)
        fleet.take(placement.host, held, footprint)
        vms.append(PlacedVm(f"uuid-of-{request.name}", request.name, request, placement.host, footprint, tuple(held)))
    dice.shuffle(vms)
    vms = vms[: min(most, int(left * len(vms)))]
    for index, one in enumerate(capacities):
        capacities[index] = with_promised(one, more=[vm.footprint for vm in vms if vm.host == one.name])
    return capacities, [one for vm in vms for one in vm.leases], vms


def mig_fleet(cards: int, left: float, seed: int) -> MigFleet:
    """MIG cards that were full before some VMs went."""
    dice, fleet = random.Random(seed), MigFleet([0] * cards, 0)
    number = 0
    while fleet.accept(number, dice.choice(NAMES)):
        number += 1
    for gone in dice.sample(sorted(fleet.live), int((1 - left) * len(fleet.live))):
        fleet.release(gone)
    return fleet


class Row(NamedTuple):
    """One plan. most, least: what is proven of its room and its moves."""

    fleet: str
    vms: int
    goal: str
    before: int
    after: int
    most: int
    moves: int
    least: int
    seconds: float


def rows(seed: int, most: int) -> Iterator[Row]:
    """A plan for each fleet and goal."""
    for hosts, cards in ((16, 4), (64, 1)):
        for left in LEFT:
            capacities, leases, vms = a40_fleet(hosts, cards, most, left, seed)
            names = frozenset(one.name for one in capacities)
            movable = [MovableVm(one, VmWay(WayKind.COLD, 30.0)) for one in vms]
            for text, more in GOALS if cards > 1 else (*GOALS[:3], GOALS[-1]):
                request = None if text is None else vm(text, name="new")
                now = 0 if request is None else count_more(request, capacities, leases).total()
                goal = Goal(request, None if more is None else now + more, names)
                began = time.perf_counter()
                plan = plan_defrag(goal, capacities, leases, movable)
                took = time.perf_counter() - began
                what = text or "unused"
                moves = (len(plan.steps), plan.fewest_moves)
                yield Row(f"{hosts}x{cards} A40", len(vms), what, plan.before, plan.after, plan.most, *moves, took)
    for left in LEFT:
        fleet = mig_fleet(64, left, seed)
        for text, more in MIG_GOALS:
            board, numbers = fleet.board(text)
            began = time.perf_counter()
            found = solve(board, None if more is None else board.room() + more, NO_LIMITS)
            took = time.perf_counter() - began
            moves = (len(found.steps), found.fewest_moves)
            what = text or "unused"
            yield Row("64 MIG", len(numbers), what, found.before, found.room, found.most_room, *moves, took)


def main() -> None:
    """Print each plan, and how many are proven to be the best."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--vms", type=int, default=200)
    given = parser.parse_args()
    found: list[Row] = []
    print("fleet      VMs goal       before after most  moves least  s")
    for seed in range(given.seeds):
        for row in rows(seed, given.vms):
            print("{:10} {:3} {:10} {:6} {:5} {:4} {:6} {:5} {:5.1f}".format(*row), flush=True)
            found.append(row)
    best = sum(one.after >= one.most and one.moves <= one.least for one in found)
    times = sorted(one.seconds for one in found)
    print(
        f"{len(found)} plans: {best} proven to be the best, {sum(one <= 10 for one in times)} within 10 s;"
        f" median {times[len(times) // 2]:.2f} s, longest {times[-1]:.1f} s"
    )


if __name__ == "__main__":
    main()
