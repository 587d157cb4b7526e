# SPDX-License-Identifier: Apache-2.0
"""Soft sharing against FGD on the openb trace and on traces made from it: `derived_traces.py BENCH [--seeds N]`.

BENCH has the placement benchmark: fgd_bench.py replays, policies.py has FGD (USENIX ATC'23) with its integer scores and
its rule for equal ones. One trace differs from openb in one property; section 6.5 of the FGD paper varies the same
four: requests for several GPUs, shares of a GPU, requests bound to models, and CPU-only requests.
A trace is drawn from openb's requests by a generator of its own, seeded by its name, so it is the same at each run.
`vgpuctl` learns the distribution from the arrivals, as `serve extender` does; `known` is told it, as FGD is.
"""

import argparse
import copy
import importlib
import random
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.openb_policy import make, make_learning
from tests.bench.placement_benchmarks import load

Group = Callable[[Any], bool]
Rule = Callable[[Sequence[Any], Any, random.Random], list[Any]]

MARKS = (95, 100)


def is_cpu_only(task: Any) -> bool:
    """True for a request without GPUs."""
    return not task.num


def is_shared(task: Any) -> bool:
    """True for a request of a part of a GPU."""
    return bool(task.num == 1 and task.milli < 1000)


def is_whole(task: Any) -> bool:
    """True for a request of one whole GPU."""
    return bool(task.num == 1 and task.milli == 1000)


def is_multi(task: Any) -> bool:
    """True for a request of several GPUs."""
    return bool(task.num > 1)


def times(group: Group, factor: float) -> Rule:
    """The requests of a group so many times as often: whole repeats, and a random part for the rest."""

    def rule(tasks: Sequence[Any], _cluster: Any, chance: random.Random) -> list[Any]:
        mine = [one for one in tasks if group(one)]
        rest = [one for one in tasks if not group(one)]
        return rest + mine * int(factor) + chance.sample(mine, round(len(mine) * (factor - int(factor))))

    return rule


def amounts_to(group: Group, part: float) -> Rule:
    """A group asks for this part of all requested GPUs, drawn with replacement; CPU-only requests stay as they are."""

    def rule(tasks: Sequence[Any], _cluster: Any, chance: random.Random) -> list[Any]:
        total = sum(one.total for one in tasks)
        found = [one for one in tasks if is_cpu_only(one)]
        wanting = [one for one in tasks if not is_cpu_only(one)]
        for is_mine, goal in ((True, part * total), (False, (1 - part) * total)):
            able = [one for one in wanting if group(one) == is_mine]
            while goal > 0:
                found.append(chance.choice(able))
                goal -= found[-1].total
        return found

    return rule


def bound_to_models(part: float) -> Rule:
    """This part of the requests for GPUs takes one model only, drawn as often as hosts that could serve it have it."""

    def rule(tasks: Sequence[Any], cluster: Any, chance: random.Random) -> list[Any]:
        hosts = Counter(zip(cluster.model.tolist(), cluster.n_gpu.tolist(), cluster.cpu_cap.tolist(), strict=True))
        found = []
        for task in tasks:
            if task.num and chance.random() < part:
                able = {kind: count for kind, count in hosts.items() if kind[1] >= task.num and kind[2] >= task.cpu}
                model = chance.choices([kind[0] for kind in able], list(able.values()))[0]
                task = changed(task, models=frozenset({cluster.models[model]}))
            found.append(task)
        return found

    return rule


def wanting_more(field: str, factor: float) -> Rule:
    """Requests for GPUs want so many times the amount of a field of theirs."""

    def rule(tasks: Sequence[Any], _cluster: Any, _chance: random.Random) -> list[Any]:
        return [changed(one, **{field: int(getattr(one, field) * factor)}) if one.num else one for one in tasks]

    return rule


def unchanged(tasks: Sequence[Any], _cluster: Any, _chance: random.Random) -> list[Any]:
    """The trace itself."""
    return list(tasks)


def changed(task: Any, **fields: Any) -> Any:
    """The request with other amounts."""
    found = copy.copy(task)
    for name, value in fields.items():
        setattr(found, name, value)
    found.kind = (found.cpu, found.num, found.milli, found.models)
    return found


TRACES: dict[str, tuple[str, Rule]] = {
    "default": ("openb", unchanged),
    "multi20": ("20 % of the requested GPUs by requests for several", amounts_to(is_multi, 0.2)),
    "multi30": ("30 % so", amounts_to(is_multi, 0.3)),
    "multi40": ("40 % so", amounts_to(is_multi, 0.4)),
    "multi50": ("50 % so", amounts_to(is_multi, 0.5)),
    "share40": ("40 % of the requested GPUs by requests for parts", amounts_to(is_shared, 0.4)),
    "share60": ("60 % so", amounts_to(is_shared, 0.6)),
    "share80": ("80 % so", amounts_to(is_shared, 0.8)),
    "share100": ("100 % so", amounts_to(is_shared, 1.0)),
    "spec10": ("10 % of the requests for GPUs bound to a model", bound_to_models(0.1)),
    "spec20": ("20 % so", bound_to_models(0.2)),
    "spec33": ("33 % so", bound_to_models(0.33)),
    "cpu50": ("half of the CPU-only requests", times(is_cpu_only, 0.5)),
    "cpu200": ("twice the CPU-only requests", times(is_cpu_only, 2)),
    "cpu250": ("2.5 times the CPU-only requests", times(is_cpu_only, 2.5)),
    "multi5x": ("five times the requests for several GPUs", times(is_multi, 5)),
    "share3x": ("three times the requests for parts", times(is_shared, 3)),
    "fewwhole": ("two in five of the requests for one whole GPU", times(is_whole, 0.4)),
    "morecpu": ("requests for GPUs with 1.3 times the CPUs", wanting_more("cpu", 1.3)),
    "moremem": ("requests for GPUs with 1.5 times the memory", wanting_more("mem", 1.5)),
}


def tasks_of(name: str, bench: Any, cluster: Any) -> list[Any]:
    """The requests of one trace, by name. bench: the module fgd_bench."""
    tasks = bench.load_tasks(Path(bench.DATA, "openb_pod_list_default.csv"))
    found = TRACES[name][1](tasks, cluster, random.Random(name))
    return [changed(task, name=f"{number:06d}") for number, task in enumerate(found)]


def main() -> None:
    """Print the part of the GPUs that is allocated, trace by trace and policy by policy."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", help="folder with fgd_bench.py and policies.py")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=42)
    parser.add_argument("--trace", action="append", choices=[*TRACES], help="default: all")
    parser.add_argument("--raw", type=Path, help="append one line per replay to this file")
    options = parser.parse_args()
    bench = load(options.folder, "fgd_bench")
    numpy = importlib.import_module("numpy")
    makers = {"FGD": load(options.folder, "policies").POLICIES["fgd"], "vgpuctl": make_learning, "known": make}
    cluster = bench.Cluster(bench.load_nodes())
    columns = [(maker, mark) for mark in MARKS for maker in makers]
    print("trace    " + "".join(f"{f'{maker}@{mark}':>13}" for maker, mark in columns) + "  refused  behind FGD")
    for name in options.trace or TRACES:
        tasks = tasks_of(name, bench, cluster)
        curves: dict[str, list[dict[int, float]]] = {maker: [] for maker in makers}
        refused = 0
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            sequence = bench.inflate(tasks, cluster.total_milli, 1.01, numpy.random.default_rng(seed))
            for maker, making in makers.items():
                cluster.reset()
                place = making(cluster, tasks, numpy.random.default_rng(seed + 10_000))
                curve, info = bench.replay(cluster, sequence, place, MARKS)
                curves[maker].append(curve)
                refused += info["refused"]
                if options.raw:
                    with options.raw.open("a") as raw:
                        raw.write(f"{name},{maker},{seed},{curve[95]:.3f},{curve[100]:.3f},{info['us']:.0f}\n")
        means = {(maker, mark): statistics.fmean(one[mark] for one in curves[maker]) for maker, mark in columns}
        behind = [
            f"@{mark} by {means['FGD', mark] - means['vgpuctl', mark]:.2f}"
            for mark in MARKS
            if means["vgpuctl", mark] < means["FGD", mark]
        ]
        figures = "".join(f"{means[column]:13.2f}" for column in columns)
        print(f"{name:9}{figures}{refused:9}  {', '.join(behind) or '-'}  ({TRACES[name][0]})", flush=True)


if __name__ == "__main__":
    main()
