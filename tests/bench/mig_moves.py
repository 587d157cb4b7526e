# SPDX-License-Identifier: Apache-2.0
"""How many more MIG instances are accepted when a request that fits nowhere may move others: churn, as mig_bench.py.

`python tests/bench/mig_moves.py BENCH [-m MIX] [-s SEEDS] [-a ARRIVALS] [--rho 0.95] [--most 3]`

BENCH is the folder of the placement benchmarks; its arrivals, lifetimes and random numbers are used as they are.
--most: moves for one request; 0 is the placement alone. `repack` of the benchmark moves everything at every arrival.
Percent of requests and of slices accepted after the first quarter, and moves for each accepted request.
"""

import argparse
import heapq
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.mig_policy import NAMES, SHAPES
from tests.bench.placement_benchmarks import load
from vgpuctl.scheduler.defrag.board import HeldPart, MoveBoard, Piece, WantedRoom
from vgpuctl.scheduler.defrag.search import Limits, RoomSearch
from vgpuctl.scheduler.soft.mig_fits import InstanceProfile, MigFits

FITS = MigFits({name: InstanceProfile(name, *shape) for name, shape in SHAPES.items()})


class MigCards:
    """The rules of the cards for `MoveBoard`: states are the taken slices as bits."""

    def __init__(self, wanted: str | None) -> None:
        self._wanted = wanted
        self._fits: dict[tuple[int, str], Sequence[tuple[Any, Any]]] = {}

    def fits(self, state: Any, kind: Any) -> Sequence[tuple[Any, Any]]:
        """The scheduler's start first."""
        if (state, kind) not in self._fits:
            best, profile = FITS.best_start(kind, state), FITS.profiles[kind]
            starts = [one for one in profile.starts if not state & profile.window(one)]
            starts.sort(key=lambda one: best is not None and one != best[1])
            self._fits[state, kind] = [(state | profile.window(one), (kind, one)) for one in starts]
        return self._fits[state, kind]

    def without(self, state: Any, block: Any) -> Any:
        """The slices are free again."""
        return state & ~FITS.profiles[block[0]].window(block[1])

    def room(self, state: Any) -> int:
        """Wanted instances that fit, or 1 for an empty card."""
        return int(state == 0) if self._wanted is None else FITS.most(self._wanted, state)


CARDS = {name: MigCards(name) for name in NAMES}


@dataclass
class Fleet:
    """live: profile, GPU and start by the number of the request."""

    masks: list[int]
    most: int
    live: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    moves: int = 0

    def accept(self, number: int, name: str) -> bool:
        """Place an instance; where it fits nowhere, move others first."""
        if not self._place(number, name):
            free = sum(8 - mask.bit_count() for mask in self.masks)
            return self.most > 0 and free >= SHAPES[name][0] and self._clear(name) and self._place(number, name)
        return True

    def release(self, number: int) -> None:
        """End an instance."""
        name, gpu, start = self.live.pop(number)
        self.masks[gpu] &= ~FITS.profiles[name].window(start)

    def board(self, wanted: str | None) -> tuple[MoveBoard, list[int]]:
        """The fleet for the search, and the numbers of its VMs."""
        everywhere, numbers = frozenset(range(len(self.masks))), sorted(self.live)
        pieces = [
            Piece(str(one), "", (HeldPart(gpu, name, (name, start)),), (), everywhere)
            for one in numbers
            for name, gpu, start in [self.live[one]]
        ]
        cards = MigCards(None) if wanted is None else CARDS[wanted]
        free: list[list[int]] = [[] for _ in self.masks]
        return MoveBoard(cards, self.masks, range(len(self.masks)), free, pieces, WantedRoom(everywhere)), numbers

    def _place(self, number: int, name: str) -> bool:
        found = ((FITS.best_start(name, mask), gpu) for gpu, mask in enumerate(self.masks))
        best = min(((one[0], gpu, one[1]) for one, gpu in found if one is not None), default=None)
        if best is None:
            return False
        _, gpu, start = best
        self.masks[gpu] |= FITS.profiles[name].window(start)
        self.live[number] = (name, gpu, start)
        return True

    def _clear(self, name: str) -> bool:
        board, numbers = self.board(name)
        search = RoomSearch(board, Limits(moves=self.most))
        search.clear_hosts(1)
        if not board.room():
            return False
        for step in search.trim(1):
            self.release(numbers[step.piece])
            (part,) = step.after
            block: Any = part.block
            kind, start = block
            self.masks[part.card] |= FITS.profiles[kind].window(start)
            self.live[numbers[step.piece]] = (kind, part.card, start)
            self.moves += 1
        return True


def churn(bench: Any, mix: str, gpus: int, rho: float, seed: int, arrivals: int, most: int) -> tuple[float, ...]:
    """Percent of requests and of slices accepted, and moves for each accepted request."""
    dice = bench.np.random.default_rng(seed)
    weights = bench.np.array(bench.MIXES[mix], float)
    weights /= weights.sum()
    rate = rho * 8 * gpus / float((weights * bench.SIZE).sum())
    profiles = dice.choice(len(NAMES), size=arrivals, p=weights).tolist()
    gaps = dice.exponential(1 / rate, arrivals).tolist()
    lives = dice.exponential(1.0, arrivals).tolist()
    fleet, ends, now = Fleet([0] * gpus, most), list[tuple[float, int]](), 0.0
    accepted = given = asked = before = 0
    for number, profile in enumerate(profiles):
        now += gaps[number]
        while ends and ends[0][0] <= now:
            fleet.release(heapq.heappop(ends)[1])
        is_in = fleet.accept(number, NAMES[profile])
        if is_in:
            heapq.heappush(ends, (now + lives[number], number))
        if number == arrivals // 4:
            before = fleet.moves
        if number >= arrivals // 4:
            size = SHAPES[NAMES[profile]][0]
            accepted, given, asked = accepted + is_in, given + size * is_in, asked + size
    counted = arrivals - arrivals // 4
    return 100 * accepted / counted, 100 * given / asked, (fleet.moves - before) / max(1, accepted)


def main() -> None:
    """Print a line for each mix: without moves, with them, and with everything moved at every arrival."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", type=Path)
    parser.add_argument("-m", "--mix", action="append")
    parser.add_argument("-n", "--gpus", type=int, default=100)
    parser.add_argument("-s", "--seeds", type=int, default=2)
    parser.add_argument("-a", "--arrivals", type=int, default=8000)
    parser.add_argument("--rho", type=float, default=0.95)
    parser.add_argument("--most", type=int, default=3)
    given = parser.parse_args()
    bench = load(given.bench, "mig_bench")
    for mix in given.mix or bench.MIXES:
        rows: list[tuple[float, ...]] = []
        for most in (0, given.most):
            every = [
                churn(bench, mix, given.gpus, given.rho, seed, given.arrivals, most) for seed in range(given.seeds)
            ]
            rows.append(tuple(sum(column) / len(column) for column in zip(*every, strict=True)))
        moved = [
            bench.run_churn("repack", mix, given.gpus, given.rho, bench.np.random.default_rng(seed), given.arrivals)[:2]
            for seed in range(given.seeds)
        ]
        rows.append(tuple(sum(column) / len(column) for column in zip(*moved, strict=True)))
        (requests, slices, _), (more, more_slices, moves), (most_requests, most_slices) = rows
        print(
            f"{mix:11} requests {requests:.2f} {more:.2f} {most_requests:.2f}"
            f"  slices {slices:.2f} {more_slices:.2f} {most_slices:.2f}  moves {moves:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
