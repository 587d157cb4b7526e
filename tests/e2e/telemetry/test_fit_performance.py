# SPDX-License-Identifier: Apache-2.0
"""fit-performance from the kept history."""

import time
from pathlib import Path

import pytest

from tests.e2e.operator import Operator
from vgpuctl.telemetry.history import History, MeasuredValue, Subject

SMALL = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")


def test_costs_come_from_what_vgpus_used_alone_and_beside_each_other(fleet_operator: Operator) -> None:
    fleet_operator.does("create-tenant", "fitted")
    for name, workload in (("trains", "training"), ("shows", "vdi")):
        fleet_operator.does("create-vm", name, "--tenant", "fitted", "--gpu", "A40-8Q", "--workload", workload, *SMALL)
    vms = fleet_operator.json("list-vms", "--tenant", "fitted")
    (gpu,) = {(one["vm"]["host"], one["leases"][0]["share"]["gpu"]) for one in vms}
    path = Path(fleet_operator.database.removeprefix("sqlite:///") + ".history")
    begin = time.time() // 60 * 60 - 80 * 60
    trains, shows = (Subject("vgpu", gpu[0], name, gpu[1], "fitted", name, "A40-8Q") for name in ("trains", "shows"))
    with History(path) as history:
        for minute in range(70):
            alone = minute < 30
            values = [MeasuredValue(trains, "utilization_ratio", 0.9 if alone else 0.6)]
            if not alone:
                values.append(MeasuredValue(shows, "utilization_ratio", 0.3))
            history.add(begin + 60 * minute, values)

    fitted = fleet_operator.json("fit-performance")
    (cost,) = fitted["costs"]
    assert (cost["isolation"], cost["workload"], cost["neighbour"]) == ("best-effort", "training", "vdi")
    assert cost["cost"] == pytest.approx(0.5, abs=0.05)
    assert cost["low"] < cost["cost"] < cost["high"]
    assert not cost["is_used"]
    shown = fleet_operator.does("fit-performance", "--dry-run")
    assert "too little" in shown.out
    assert "not kept" in shown.err
    refused = fleet_operator.is_refused("fit-performance", "--history", str(path.with_name("absent")))
    assert refused["reference"] == "not-found"
    for name in ("trains", "shows"):
        fleet_operator.does("delete-vm", name, "--tenant", "fitted", "--yes", "--timeout", "0")
