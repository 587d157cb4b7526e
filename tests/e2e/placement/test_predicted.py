# SPDX-License-Identifier: Apache-2.0
"""Throughput that is predicted: fit-performance, explain-vm --predict, and the policy `predicted`."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.operator import Operator
from tests.unit.scheduler.performance.true_model import TrueModel

SMALL = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")
TRAINING = ("--tenant", "predicted", "--gpu", "A40-24Q", "--workload", "training", *SMALL)
SHOWS = ("--tenant", "predicted", "--gpu", "A40-24Q", "--workload", "vdi", *SMALL)


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Iterator[Operator]:
    fleet_operator.does("list-gpus", "--refresh")
    fleet_operator.does("create-tenant", "predicted")
    yield fleet_operator
    for vm in fleet_operator.json("list-vms", "--tenant", "predicted"):
        name = vm["vm"]["request"]["name"]
        fleet_operator.does("delete-vm", name, "--tenant", "predicted", "--yes", "--timeout", "0")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Measurements of a world whose slowdowns are known."""
    path = tmp_path_factory.mktemp("table") / "measured.csv"
    rows = TrueModel(profiles=("A40-24Q",)).measure(80, 4, seed=11)
    lines = [f"{one.vm},{one.workload},{one.profile},{' '.join(one.neighbours)},{one.throughput:.4f}" for one in rows]
    random.Random(1).shuffle(lines)
    path.write_text("vm,workload,profile,neighbours,throughput\n" + "\n".join(lines) + "\n")
    return path


def test_without_a_model_it_is_said_and_placing_goes_on(operator: Operator) -> None:
    refused = operator.is_refused("explain-vm", "t", *TRAINING, "--predict")
    assert (refused["reference"], "fit-performance" in refused["hint"]) == ("not-found", True)
    (explained,) = operator.json("explain-vm", "t", *TRAINING, "--policy", "predicted")
    assert explained["fits"]
    assert "knows nothing" in explained["model_problem"]
    refused = operator.is_refused("fit-performance")
    assert refused["reference"] == "not-found"


def test_the_policy_takes_the_company_that_costs_least(operator: Operator, table: Path) -> None:
    dry = operator.json("fit-performance", "--table", str(table), "--dry-run")
    assert not dry["written"]
    fitted = operator.json("fit-performance", "--table", str(table))
    assert fitted["written"]
    assert fitted["costs"] == dry["costs"]
    costs = {(one["workload"], one["neighbour"]): one for one in fitted["costs"]}
    assert costs["training", "vdi"]["high"] < costs["training", "training"]["low"]

    (empty,) = operator.json("explain-vm", "t", *TRAINING, "--predict")
    assert {one["impact"]["own"]["throughput"] for one in empty["predictions"]} == {1.0}
    hosts = sorted(one["host"] for one in empty["predictions"])
    assert len(hosts) == 2
    operator.does("create-vm", "trains", *TRAINING, "--host", hosts[0])
    operator.does("create-vm", "shows", *SHOWS, "--host", hosts[1])
    (explained,) = operator.json("explain-vm", "t", *TRAINING, "--predict")
    beside = {
        tuple(name for name, _profile in one["neighbours"]): one for one in explained["predictions"] if one["impact"]
    }
    with_training, with_vdi = (beside[one]["impact"] for one in (("training",), ("vdi",)))
    assert with_training["own"]["high"] < with_vdi["own"]["throughput"] < 1
    assert with_vdi["own"]["low"] < with_vdi["own"]["throughput"] < with_vdi["own"]["high"]
    ((_neighbour, before, after),) = with_vdi["losses"]
    assert before["throughput"] == 1 > after["throughput"]
    shown = operator.does("explain-vm", "t", *TRAINING, "--predict").out
    assert "NEIGHBOURS LOSE" in shown
    assert "1 training" in shown

    operator.does("create-vm", "chooses", *TRAINING, "--policy", "predicted")
    vms = {one["vm"]["request"]["name"]: one for one in operator.json("list-vms", "--tenant", "predicted")}
    placed = {name: (one["vm"]["host"], one["leases"][0]["share"]["gpu"]) for name, one in vms.items()}
    assert placed["chooses"] == placed["shows"]
    assert vms["chooses"]["vm"]["request"]["workload"] == "training"


def test_what_was_never_measured_is_not_predicted(operator: Operator) -> None:
    unknown = [word.replace("training", "rendering") for word in TRAINING]
    (explained,) = operator.json("explain-vm", "t", *unknown, "--predict")
    assert {one["reason"] for one in explained["predictions"]} == {"no rendering VM was measured under best-effort"}
    assert operator.is_refused("explain-vm", "t", *TRAINING[:-6], "--workload", "Not One")["reference"] == "usage"


def test_a_damaged_model_is_named(operator: Operator) -> None:
    path = Path(operator.database.removeprefix("sqlite:///") + ".performance")
    kept = path.read_bytes()
    try:
        for damaged in (b"{}", kept[:-20], b"\xff", kept.replace(b'"layout": 1', b'"layout": 2')):
            path.write_bytes(damaged)
            refused = operator.is_refused("explain-vm", "t", *TRAINING, "--predict")
            assert (refused["reference"], str(path) in refused["message"]) == ("usage", True), refused
    finally:
        path.write_bytes(kept)
