# SPDX-License-Identifier: Apache-2.0
"""predict: the time of a job on each card, from a user's table."""

import shutil
from pathlib import Path

import pytest

from tests.e2e.operator import Operator

SIZES = (1024, 2048, 4096, 8192)


def test_a_table_of_sizes_and_seconds_tells_how_long_a_job_takes_on_each_card(
    fleet_operator: Operator, tmp_path: Path
) -> None:
    fleet_operator.does("list-gpus", "--refresh")
    table = tmp_path / "times.csv"
    table.write_text("size,A40,T4\n" + "".join(f"{one},{(one / 1024) ** 3},{4 * (one / 1024) ** 3}\n" for one in SIZES))
    assert fleet_operator.is_refused("predict", "matmul", "--size", "3000")["reference"] == "not-found"
    fitted = fleet_operator.json("fit-performance", "--times", str(table), "--workload", "matmul")
    assert {one["board"]: round(one["speed"], 2) for one in fitted["speeds"]} == {"nvidia-a40": 1, "nvidia-t4": 0.25}
    again = fleet_operator.does("fit-performance", "--times", str(table), "--workload", "matmul", "--dry-run")
    assert "nvidia-t4" in again.out

    found = fleet_operator.json("predict", "matmul", "--size", "3072")["cards"]
    known = [one for one in found if one["time"] is not None]
    seconds = {one["board"]: one["time"]["seconds"] for one in known}
    assert seconds == {"nvidia-a40": pytest.approx(27, rel=0.05), "nvidia-t4": pytest.approx(108, rel=0.05)}
    assert found[: len(known)] == known, "the fastest first, and what nobody timed last"
    assert all("0 times on" in one["reason"] for one in found[len(known) :])
    assert all(one["time"]["low"] < one["time"]["seconds"] < one["time"]["high"] for one in known)
    assert "nvidia-a40" in fleet_operator.does("predict", "matmul", "--size", "3072").out
    folder = (at if (at := fleet_operator.inventory).is_dir() else at.parent) / "host_vars"
    folder.mkdir()
    (folder / "sim-001.yml").write_text("vgpu_placing: {gpus: [{match: all, speed: .nan}]}")
    left = fleet_operator.does("predict", "matmul", "--size", "3072")
    assert "sim-001" not in left.out and "warning: sim-001 is left out: " in left.err and "speed" in left.err
    shutil.rmtree(folder)

    beyond = fleet_operator.is_refused("predict", "matmul", "--size", "99999")
    assert beyond["reference"] == "not-found" and "from 1024 to 8192" in " ".join(beyond["context"])
    assert "--size" in fleet_operator.is_refused("predict", "matmul")["hint"]

    request = ("next", "--gpu", "memory=8GiB", "--workload", "matmul", "--memory", "96MiB", "--network", "none")
    (explained,) = fleet_operator.json("explain-vm", *request, "--predict", "--policy", "predicted")
    speeds = {one["profile"]: one["speed"]["speed"] for one in explained["predictions"]}
    assert speeds["A40-8Q"] == 1 > speeds["T4-8Q"]
    assert "25%" in fleet_operator.does("explain-vm", *request, "--predict").out

    bad = tmp_path / "bad.csv"
    bad.write_text("size,A40\n1024,350ms\n")
    refused = fleet_operator.is_refused("fit-performance", "--times", str(bad))
    assert "bad.csv:2" in refused["message"]
    assert "--times" in fleet_operator.is_refused("fit-performance", "--workload", "matmul")["hint"]
    Path(fleet_operator.database.removeprefix("sqlite:///") + ".performance").unlink()
