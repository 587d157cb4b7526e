# SPDX-License-Identifier: Apache-2.0
"""The scheduler's MIG placement behind the interface of the MIG placement benchmark: `mig_policy.py:make`.

Run as a program with the benchmark's folder it adds the policy to the benchmark's own and hands over:
`python tests/bench/mig_policy.py FOLDER -p frag -p vgpuctl -p repack`.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.placement_benchmarks import load
from vgpuctl.scheduler.soft.mig_fits import InstanceProfile, MigFits

SHAPES = {
    "1g.10gb": (1, (0, 1, 2, 3, 4, 5, 6)),
    "1g.20gb": (2, (0, 2, 4, 6)),
    "2g.20gb": (2, (0, 2, 4)),
    "3g.40gb": (4, (0, 4)),
    "4g.40gb": (4, (0,)),
    "7g.80gb": (8, (0,)),
}
NAMES = list(SHAPES)


def make(weights: object, rng: object) -> Callable[[Any, int], tuple[int, int] | None]:
    """The policy; it does not look at the mix of requests."""
    fits = MigFits({name: InstanceProfile(name, *shape) for name, shape in SHAPES.items()})

    def place(bench: Any, profile: int) -> tuple[int, int] | None:
        found = ((fits.best_start(NAMES[profile], mask), number) for number, mask in enumerate(bench.mask.tolist()))
        best = min(((start[0], number, start[1]) for start, number in found if start is not None), default=None)
        return None if best is None else best[1:]

    return place


if __name__ == "__main__":
    bench = load(sys.argv.pop(1), "mig_bench")
    bench.POLICIES["vgpuctl"] = make
    bench.main()
