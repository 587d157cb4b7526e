# SPDX-License-Identifier: Apache-2.0
"""fit-performance from the kept history."""

from pathlib import Path

import pytest

from tests.e2e.neighbours import record_neighbours
from tests.e2e.operator import Operator

SMALL = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")


def test_costs_come_from_what_vgpus_used_alone_and_beside_each_other(fleet_operator: Operator) -> None:
    fleet_operator.does("create-tenant", "fitted")
    for name, workload in (("trains", "training"), ("shows", "vdi")):
        fleet_operator.does("create-vm", name, "--tenant", "fitted", "--gpu", "A40-8Q", "--workload", workload, *SMALL)
    vms = fleet_operator.json("list-vms", "--tenant", "fitted")
    (gpu,) = {(one["vm"]["host"], one["leases"][0]["share"]["gpu"]) for one in vms}
    path = Path(fleet_operator.database.removeprefix("sqlite:///") + ".history")
    record_neighbours(path, "fitted", gpu, "A40-8Q", ("trains", "shows"))

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
