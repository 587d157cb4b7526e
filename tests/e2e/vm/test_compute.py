# SPDX-License-Identifier: Apache-2.0
"""Compute time that a VM asks for: refused, declared, given, looked at, and lost with the layout that kept it."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE
from tests.lab.simulated_fixtures import need_simulated
from vgpuctl_lab.simulated.machine.state import Scheduler

HOST, GPU = "sim-001", "0000:41:00.0"
FORCED = ("--timeout", "0")


def vgpus(policy: str, **more: Any) -> dict[str, Any]:
    return {"gpus": [{"match": "all", "kind": "vgpu", "scheduler": {"policy": policy}, **more}]}


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LayoutFleet]:
    """A host with an A40, and a tenant."""
    need_simulated()
    home: Path = tmp_path_factory.mktemp("compute")
    fleet = layout_fleet(home, 1, "a40")
    fleet.declare(sim_001=vgpus("best-effort"))
    fleet.operator.does("apply-hosts")
    fleet.operator.does("create-tenant", "acme")
    yield fleet
    lab.simulated.down(folder=fleet.folder)


def test_a_gpu_gets_the_scheduler_that_its_layout_has_to_declare_and_keeps_what_was_asked(layouts: LayoutFleet) -> None:
    operator, wanted = layouts.operator, ("--gpu", "A40-8Q,compute=guaranteed,compute>=15%")
    refused = operator.run("create-vm", "web", *ACME, *SIZE, *wanted)
    assert refused.code and "(compute-promise)" in refused.err
    assert "scheduler: {policy: fixed-share}" in refused.err and "sim-001.yml:" in refused.err
    (explained,) = operator.json("explain-vm", "web", *ACME, *SIZE, *wanted)
    assert [one["code"] for one in explained["answers"]] == ["compute-promise"]
    assert operator.json("capacity", *wanted)["now"] == 0
    layouts.declare(sim_001=vgpus("fixed-share"))
    operator.does("apply-hosts")
    assert operator.json("capacity", *wanted)["now"] == 6
    operator.does("create-vm", "web", *ACME, *SIZE, *wanted)
    (row,) = rows(operator)
    assert (row["verdict"], row["promised"]) == ("kept", "guaranteed 15% of the GPU's time")
    assert row["seen"] == "16.6% of the GPU's time (scheduler fixed-share, up to 6 vGPUs)"


def test_a_scheduler_that_is_gone_breaks_the_row_and_keeps_the_vm_from_starting_again(layouts: LayoutFleet) -> None:
    operator = layouts.operator
    machine = layouts.machine(HOST)
    with machine.change() as state:
        state.schedulers[GPU] = Scheduler(1)  # as a reload of the driver's module leaves it
    (row,) = rows(operator)
    assert row["verdict"] == "broken" and "no part of the GPU's time" in row["seen"]
    assert "policy: fixed-share" in row["remedy"]
    operator.does("stop-vm", "web", *ACME, *FORCED)
    refused = operator.run("start-vm", "web", *ACME)
    assert refused.code and "guaranteed is asked for" in refused.err
    assert "vgpuctl plan-hosts --limit" in refused.err and "free the device" not in refused.err
    operator.does("apply-hosts")
    operator.does("start-vm", "web", *ACME)
    assert rows(operator)[0]["verdict"] == "kept"


def test_other_ways_to_a_share_ask_too(layouts: LayoutFleet) -> None:
    operator = layouts.operator
    operator.does("create-vm", "db", *ACME, *SIZE, "--gpu", "A40-8Q")
    operator.does("stop-vm", "db", *ACME, *FORCED)
    refused = operator.run("resize-vm", "db", *ACME, "--gpu", "A40-8Q,compute>=50%")
    assert refused.code and "50% are asked for" in refused.err
    operator.does("resize-vm", "db", *ACME, "--gpu", "A40-8Q,compute>=15%")
    window = ("--from", "2031-01-01", "--until", "2031-01-02")
    refused = operator.run("reserve", "later", *ACME, "--gpu", "A40-8Q,compute>=90%", *window)
    assert refused.code and "90% are asked for" in refused.err
    operator.does("reserve", "later", *ACME, "--gpu", "A40-8Q,compute=guaranteed", *window)
    for wanted in ("A40-8Q,compute>=30", "A40-8Q,compute>=0.3", "A40-8Q,compute>=30 %", "A40-8Q,compute>=200%"):
        said = operator.run("create-vm", "bad", *ACME, *SIZE, "--gpu", wanted)
        assert said.code == 2 and "Traceback" not in said.err and "hint: " in said.err, said.err


def test_a_tenant_has_no_more_compute_time_than_its_quota_by_any_way(layouts: LayoutFleet) -> None:
    operator = layouts.operator
    operator.does("set-quota", "acme", "compute=0.4")
    assert used(operator) == 0.332
    third = ("create-vm", "third", *ACME, *SIZE, "--gpu", "A40-8Q")
    refused = operator.run(*third)
    assert refused.code and "compute: 0.332 of 0.4 used, 0.166 asked" in refused.err and "compute=0.498" in refused.err
    refused = operator.run("resize-vm", "db", *ACME, "--gpu", "2*A40-8Q")
    assert refused.code and "compute" in refused.err
    operator.does("stop-vm", "web", *ACME, *FORCED, "--hold", "release")
    assert used(operator) == 0.166
    operator.does(*third)
    refused = operator.run("start-vm", "web", *ACME)
    assert refused.code and "compute: 0.332 of 0.4 used" in refused.err
    operator.does("set-quota", "acme", "compute=none")
    operator.does("start-vm", "web", *ACME)
    for written in ("compute=-1", "compute=50%", "compute=1e3"):
        said = operator.run("set-quota", "acme", written)
        assert said.code == 2 and "Traceback" not in said.err and "hint: " in said.err


@pytest.mark.long(
    "tests/e2e/vm/test_compute.py::test_other_ways_to_a_share_ask_too",
    "tests/unit/scheduler/test_compute.py::test_of_two_hosts_the_one_that_keeps_it_is_taken_for_it_alone",
)
def test_a_vm_keeps_its_compute_time_wherever_it_goes(tmp_path: Path) -> None:
    """sim-002 has room and does not keep it; a move, a drain and a reservation know that before anything stops."""
    fleet = layout_fleet(tmp_path, 3, "a40")
    try:
        operator, fixed = fleet.operator, vgpus("fixed-share")
        fleet.declare(sim_001=fixed, sim_002=vgpus("best-effort"), sim_003=fixed)
        operator.does("apply-hosts")
        operator.does("create-tenant", "acme")
        operator.does("cordon-host", "sim-003", "--reason", "later")
        operator.does("create-vm", "web", *ACME, *SIZE, "--gpu", "A40-8Q,compute=guaranteed")
        operator.does("reserve", "now", *ACME, "--gpu", "A40-8Q,compute>=15%", "--from", "now", "--until", "2099-01-01")
        refused = operator.run("move-vm", "web", *ACME, "--dry-run")
        assert refused.code and "guaranteed is asked for" in refused.err, refused.err
        found = operator.json("explain-vm", "web", *ACME, "--move")[0]["verdicts"]
        told = {one["host"]: one["verdict"]["kind"] for one in found}
        assert told["sim-002"] == "blocked", found
        operator.does("uncordon-host", "sim-003")
        operator.does("drain-host", "sim-001", "--reason", "x", "--shutdown-timeout", "0", "--yes")
        assert [one["vm"]["host"] for one in operator.json("list-vms")] == ["sim-003"]
        assert operator.json("show-vm", "web", *ACME)["vm"]["request"]["gpus"][0]["compute"] == "guaranteed"
        elsewhere = dataclasses.replace(operator, database=f"sqlite:///{tmp_path}/other.db")
        elsewhere.does("create-tenant", "acme")
        elsewhere.does("adopt-host", "sim-003", "--vm", "acme.web=acme/web")
        assert elsewhere.json("show-vm", "web", *ACME)["vm"]["request"]["gpus"][0]["compute"] == "guaranteed"
        assert [one["verdict"] for one in rows(elsewhere)] == ["kept"]
        operator.does("uncordon-host", "sim-001")
        fleet.declare(sim_001=vgpus("best-effort"), sim_002=fixed, sim_003=vgpus("best-effort"))
        planned = operator.run("plan-hosts", "-l", "sim-003")
        assert "guaranteed is asked for" in planned.out + planned.err, planned.out
        operator.delete_all_vms()
        fleet.declare(**dict.fromkeys(("sim_001", "sim_002", "sim_003"), vgpus("best-effort")))
        operator.does("apply-hosts")
        refused = operator.run("create-vm", "more", *ACME, *SIZE, "--reservation", "now")
        assert refused.code and "reserve anew" in refused.err and refused.err.count("placing again") <= 1, refused.err
    finally:
        lab.simulated.down(folder=fleet.folder)


def used(operator: Operator) -> float:
    """The compute time that acme's VMs stand for, in GPUs."""
    found = operator.json("show-tenant", "acme")["tenant"]["quotas"]
    return float(sum(one["used"] for one in found if one["resource"] == "compute") / 1000)


def rows(operator: Operator) -> list[dict[str, Any]]:
    """The rows of check-vm about the compute time of web."""
    found = json.loads(operator.run("check-vm", "web", *ACME, "--json").out)["findings"]
    return [one for one in found if one["row"] == "compute-promise"]
