# SPDX-License-Identifier: Apache-2.0
"""The benchmark of vGPU placement on other fleets and mixes of requests than its own.

`python tests/bench/vgpu_fleets.py BENCH FLEET [--any-model PART] [--several TIMES] OPTIONS OF vgpu_bench.py`

FLEET is one of FLEETS. --any-model: the part of the requests for one GPU that name no model (the benchmark: 0.5).
--several: how many times as many requests for several GPUs as the trace has.
"""

import argparse
import csv
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.placement_benchmarks import load

FLEETS: dict[str, tuple[tuple[tuple[tuple[str, int], ...], int], ...]] = {
    "standard": (((("A40", 8),), 160), ((("L40S", 4),), 120), ((("A100", 4),), 80), ((("H100", 8),), 40)),
    "most-80": (((("A40", 8),), 20), ((("L40S", 4),), 30), ((("A100", 4),), 200), ((("H100", 8),), 160)),
    "eights": (((("A40", 8),), 150), ((("H100", 8),), 150)),
    "two-models": (((("A40", 4), ("A100", 4)), 220), ((("L40S", 2), ("H100", 2)), 160)),
}
"""Kinds of hosts: the GPUs of each model on one host, and how many such hosts there are."""


class Variant:
    """A fleet and requests in place of the benchmark's."""

    def __init__(self, bench: Any, fleet: str, any_model: float, several: int) -> None:
        self._bench = bench
        self._kinds = FLEETS[fleet]
        self._any_model = any_model
        self._several = several

    def make_fleet(self, scale: float, dice: random.Random) -> list[dict[str, Any]]:
        """The hosts in random order."""
        hosts: list[dict[str, Any]] = []
        for models, count in self._kinds:
            for _ in range(max(1, round(count * scale))):
                hosts.append({"gpus": [self._gpu(board) for board, gpus in models for _ in range(gpus)]})
        dice.shuffle(hosts)
        for number, host in enumerate(hosts, 1):
            host["name"] = f"host-{number:04}"
        return hosts

    def _gpu(self, board: str) -> dict[str, Any]:
        gib, sizes, name = self._bench.BOARDS[board]
        most = {size: min(32, gib // size) for size in sizes}
        profiles = {size: name.format(size) for size in sizes}
        return {"board": board, "framebuffer_gib": gib, "sizes": most, "profiles": profiles}

    def make_requests(self, dice: random.Random) -> Iterator[dict[str, Any]]:
        """An endless stream of requests, drawn as the benchmark draws its own."""
        boards = [board for models, hosts in self._kinds for board, gpus in models for _ in range(hosts * gpus)]
        rows = self._read_trace()
        number = 0
        while True:
            dice.shuffle(rows)
            for gpus, thousandths in rows:
                number += 1
                yield {"number": number, **self._request(dice, dice.choice(boards), gpus, thousandths)}

    def _request(self, dice: random.Random, board: str, gpus: int, thousandths: int) -> dict[str, Any]:
        whole_gib, sizes, _ = self._bench.BOARDS[board]
        gib = max(1, -(-thousandths * 48 // 1000))
        if gpus > 1 or (thousandths >= 1000 and dice.random() < self._any_model):
            return {"kind": "passthrough", "board": None, "gib": None, "count": gpus}
        if thousandths >= 1000:
            return {"kind": "whole-profile", "board": board, "gib": whole_gib, "count": 1}
        if dice.random() >= self._any_model:
            return {"kind": "profile", "board": board, "gib": min(size for size in sizes if size >= gib), "count": 1}
        return {"kind": "memory", "board": None, "gib": gib, "count": 1}

    def _read_trace(self) -> list[tuple[int, int]]:
        with (Path(self._bench.DATA) / "openb_pod_list_default.csv").open() as file:
            rows = [(int(row["num_gpu"]), int(row["gpu_milli"])) for row in csv.DictReader(file)]
        return [row for row in rows if row[0] for _ in range(self._several if row[0] > 1 else 1)]


def main() -> None:
    """Hand the variant over to the benchmark, which reads the other options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", type=Path)
    parser.add_argument("fleet", choices=FLEETS)
    parser.add_argument("--any-model", type=float, default=0.5)
    parser.add_argument("--several", type=int, default=1)
    given, others = parser.parse_known_args()
    bench = load(given.bench, "vgpu_bench")
    variant = Variant(bench, given.fleet, given.any_model, given.several)
    bench.make_fleet, bench.make_requests = variant.make_fleet, variant.make_requests
    sys.argv[1:] = others
    bench.main()


if __name__ == "__main__":
    main()
