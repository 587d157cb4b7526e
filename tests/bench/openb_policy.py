# SPDX-License-Identifier: Apache-2.0
"""The scheduler's soft sharing behind the interface of the openb placement benchmark: `openb_policy.py:make`.

`make_learning` is the same without the trace's task list: the typical requests are counted as they arrive.
VGPUCTL_POLICY names another policy than `fragmentation`.
Run as a program with the benchmark's folder it measures decisions per second: `openb_policy.py FOLDER`; with `--cpu`
after it in CPU time of this process, so that a busy machine disturbs less.
"""

import os
import runpy
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.placement_benchmarks import load
from vgpuctl.model.policy import parse_policy
from vgpuctl.scheduler.soft.host_state import WHOLE, Demand
from vgpuctl.scheduler.soft.soft_fleet import SoftFleet

Place = Callable[[Any, Any], tuple[int, list[int]] | None]


def make(cluster: Any, tasks: Iterable[Any], rng: object) -> Place:
    """The policy on an empty cluster, with the distribution of the trace's requests known."""
    return _place_on(SoftFleet(_policy(), Counter(map(_demand, tasks))), cluster)


def make_learning(cluster: Any, tasks: Iterable[Any], rng: object) -> Place:
    """The policy on an empty cluster, with nothing known of the future."""
    return _place_on(SoftFleet(_policy()), cluster)


def _policy() -> Any:
    return parse_policy(os.environ.get("VGPUCTL_POLICY", "fragmentation"))


def _demand(task: Any) -> Demand:
    return Demand(task.cpu, task.mem, task.num, task.milli, 0, task.models)


def _place_on(fleet: SoftFleet, cluster: Any) -> Place:
    for number in range(cluster.n):
        fleet.add_host(
            f"{number:06d}",
            board=cluster.models[cluster.model[number]],
            cpu=int(cluster.cpu_cap[number]),
            memory_mib=int(cluster.mem_cap[number]),
            gpus=[(WHOLE, 0)] * int(cluster.n_gpu[number]),
        )

    def place(cluster: Any, task: Any) -> tuple[int, list[int]] | None:
        placement = fleet.place(_demand(task))
        return None if placement is None else (int(placement.host), list(placement.gpus))

    return place


if __name__ == "__main__":
    folder = sys.argv.pop(1)
    load(folder, "policies").POLICIES["vgpuctl"] = make
    if "--cpu" in sys.argv:
        sys.argv.remove("--cpu")
        vars(load(folder, "fgd_bench"))["time"] = SimpleNamespace(perf_counter=time.process_time)
    sys.argv.append("vgpuctl")
    runpy.run_path(str(Path(folder, "scale.py")), run_name="__main__")
