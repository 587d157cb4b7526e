# SPDX-License-Identifier: Apache-2.0
"""controller --tune rebalance: a VM moves live, and back where a VM of its new GPU got worse."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator, trust_network
from vgpuctl.telemetry.history import History, MeasuredValue, Subject

__all__ = ["operator"]

FLEET = (2, "a40")
"""Two hosts with one A40 each."""
NOW = time.time() // 60 * 60
LOADS = {"noisy": (0.92, 0.0), "victim": (0.08, 0.42), "calm": (0.05, 0.0)}
"""Use, and what is lost to neighbours, of each VM before anything moves."""

APART = {name: (use, 0.0) for name, (use, _lost) in LOADS.items()}


@pytest.fixture(scope="module")
def history(operator: Operator, tmp_path_factory: pytest.TempPathFactory) -> Path:
    trust_network(operator)
    for name, host in (("noisy", "sim-001"), ("victim", "sim-001"), ("calm", "sim-002")):
        operator.does("create-vm", name, *ACME, *SIZE, "--gpu", "A40-24Q", "--limit", host)
    path = tmp_path_factory.mktemp("readings") / "history"
    measure(operator, path, NOW - 3600, NOW, LOADS)
    return path


def vms(operator: Operator) -> dict[str, dict[str, Any]]:
    """The lease of each VM."""
    return {one["vm"]["request"]["name"]: one["leases"][0] for one in operator.json("list-vms")}


def measure(operator: Operator, path: Path, first: float, last: float, loads: dict[str, tuple[float, float]]) -> None:
    """Keep minutes of each VM where it is now."""
    leases = vms(operator)
    with History(path) as kept:
        for minute in range(int(first // 60), int(last // 60)):
            values = []
            for name, lease in leases.items():
                share, (use, steal) = lease["share"], loads[name]
                device = share["mdev_uuid"] or share["function"]
                subject = Subject("vgpu", lease["host"], device, share["gpu"], "acme", name, share["profile"])
                measured = {"utilization_ratio": use, "share_utilization_ratio": 2 * use, "steal_ratio": steal}
                values += [MeasuredValue(subject, *one) for one in measured.items()]
            kept.add(60.0 * minute, values)


def test_a_move_that_makes_a_vm_of_the_new_gpu_worse_goes_back_live(operator: Operator, history: Path) -> None:
    def round_at(now: float) -> list[str]:
        tune = ("--tune", "rebalance", "--tune-watch", "20m", "--history", str(history))
        done = operator.at(now).json("controller", "--once", *tune)
        return [one["outcome"] for one in done if one["name"] in ("tune", "sim-001 0000:41:00.0")]

    before = vms(operator)
    (begun,) = round_at(NOW)
    assert begun.startswith("in trial: the VMs of sim-001 ")
    (moved,) = [name for name, one in vms(operator).items() if one["host"] != before[name]["host"]]
    measure(operator, history, NOW, NOW + 660, {**APART, "calm": (0.05, 0.3)})
    (worse,) = round_at(NOW + 660)
    assert worse == (
        f"rolled back: it made VMs worse: acme/{moved} takes time of its neighbours, and did not before;"
        " acme/calm: loses 30% of the GPU's time to neighbours instead of 0%"
    )
    assert {name: (one["host"], one["share"]["gpu"]) for name, one in vms(operator).items()} == {
        name: (one["host"], one["share"]["gpu"]) for name, one in before.items()
    }
    assert round_at(NOW + 700) == [], "with these readings the move is no advice any more"
    told = operator.json("list-events", "--kind", "tuning-*")
    assert sorted(one["kind"] for one in told) == ["tuning-begun", "tuning-rolled-back"]
    assert operator.json("list-events", "--kind", "vm-stopped") == [], "both moves were live"
