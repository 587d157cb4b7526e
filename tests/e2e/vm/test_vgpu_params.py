# SPDX-License-Identifier: Apache-2.0
"""Parameters of vGPUs from layout and VM to the driver: at the start, after a reboot, and no longer than a VM."""

from collections.abc import Iterator
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.lab.simulated_fixtures import need_simulated

SMALL = ("--tenant", "acme", "--memory", "96MiB", "--vcpus", "1", "--network", "none")
BOTH = "disable_vnc=1,frame_rate_limiter=0"
GPUS = {"vf": "A40-8Q", "mdev-vf": "RTXA6000-8Q", "mdev": "T4-4Q"}


def declared(*params: str, **more: Any) -> dict[str, Any]:
    entry = {"match": "all", "kind": "vgpu", **more}
    return {"gpus": [entry | ({"vgpu_params": list(params)} if params else {})]}


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LayoutFleet]:
    """One host with vGPUs on VFs, as mdevs on VFs, and as mdevs on the card."""
    need_simulated()
    fleet = layout_fleet(tmp_path_factory.mktemp("params"), 1, "a40+rtx-a6000/mdev-vf+t4")
    fleet.declare(sim_001=declared("frame_rate_limiter=0"))
    fleet.operator.does("create-tenant", "acme")
    fleet.operator.does("apply-hosts")
    yield fleet
    lab.simulated.down(folder=fleet.folder)


def written(layouts: LayoutFleet) -> list[str]:
    """The drivers' texts, sorted, as the machine has them."""
    return sorted(one.params for one in layouts.machine("sim-001").state().vgpus)


def test_layout_and_vm_give_the_parameters_and_a_reboot_does_not_take_them(layouts: LayoutFleet) -> None:
    operator = layouts.operator
    for kind, gpu in GPUS.items():
        dry = operator.json("create-vm", kind, *SMALL, "--gpu", gpu, "--vgpu-param", "disable_vnc=1", "--dry-run")
        assert [one["params"] for one in dry[0]["steps"]] == [BOTH]
        operator.does("create-vm", kind, *SMALL, "--gpu", gpu, "--vgpu-param", "disable_vnc=1")
    assert written(layouts) == [BOTH] * 3
    shown = operator.does("show-vm", "vf", "--tenant", "acme").out
    assert f"parameters {BOTH}" in shown
    assert operator.json("show-vm", "mdev", "--tenant", "acme")["vgpu_params"] == [BOTH]
    assert f"acme/mdev:T4-4Q ({BOTH})" in operator.does("list-gpus", "--refresh").out
    assert operator.does("inspect-host", "sim-001").out.count(f"parameters {BOTH}") == 3
    for kind in GPUS:
        operator.does("stop-vm", kind, "--tenant", "acme", "--timeout", "0", "--hold", "keep")
    lab.simulated.reboot("sim-001", folder=layouts.folder)
    assert written(layouts) == [BOTH] * 3, "the boot made the vGPUs without their parameters"


@pytest.mark.long(
    "tests/e2e/vm/test_vgpu_params.py::test_layout_and_vm_give_the_parameters_and_a_reboot_does_not_take_them",
    "tests/e2e/vm/test_vf_params.py::test_a_running_vm_gets_another_share_of_time_and_gives_it_back",
)
def test_resize_vm_gives_other_parameters_and_a_reboot_does_not_take_them(layouts: LayoutFleet) -> None:
    operator = layouts.operator
    acme = ("--tenant", "acme")
    for kind, gpu in GPUS.items():
        operator.does("create-vm", kind, *SMALL, "--gpu", gpu, "--vgpu-param", "disable_vnc=1")
        operator.does("stop-vm", kind, *acme, "--timeout", "0", "--hold", "keep")
    planned = operator.json("resize-vm", "mdev", *acme, "--vgpu-param", "enable_profiling=1", "--restart", "--dry-run")
    assert planned["differences"] == ["vgpu_params: disable_vnc=1 there, enable_profiling=1 wanted"]
    assert [one["params"] for one in planned["steps"]] == ["enable_profiling=1,frame_rate_limiter=0"]
    assert written(layouts) == [BOTH] * 3, "a dry run writes nothing"
    now = "enable_profiling=1,frame_rate_limiter=0"
    for kind in GPUS:  # they are off, and keep their vGPUs
        done = operator.json("resize-vm", kind, *acme, "--vgpu-param", "enable_profiling=1")
        assert (done["before"]["vgpu_params"], done["after"]["vgpu_params"]) == (
            ["disable_vnc=1"],
            ["enable_profiling=1"],
        )
    assert not operator.json("resize-vm", "mdev", *acme, "--vgpu-param", "enable_profiling=1")["changed"]
    assert written(layouts) == [now] * 3
    lab.simulated.reboot("sim-001", folder=layouts.folder)
    assert written(layouts) == [now] * 3, "the boot made the vGPUs with their parameters"
    create = ("create-vm", "vf", *SMALL, "--gpu", GPUS["vf"], "--vgpu-param")
    assert "no change" in operator.does(*create, "enable_profiling=1").err
    refused = operator.is_refused(*create, "disable_vnc=1")
    assert "resize-vm acme/vf --vgpu-param disable_vnc=1" in refused["hint"]
    event = operator.json("list-events", "--kind", "vm-resized")[-1]
    assert (event["before"]["vgpu_params"], event["after"]["vgpu_params"]) == (
        ["disable_vnc=1"],
        ["enable_profiling=1"],
    )

    operator.does("start-vm", "vf", *acme)
    assert "--restart" in operator.is_refused("resize-vm", "vf", *acme, "--vgpu-param", "none")["hint"]
    assert operator.json("resize-vm", "vf", *acme, "--vgpu-param", "none", "--restart", "--shutdown-timeout", "0")[
        "changed"
    ]
    assert operator.json("show-vm", "vf", *acme)["vgpu_params"] == ["frame_rate_limiter=0"], "the layout's own stay"
    for refusal, params in {
        "enable_uvm=1 needs a type that takes the whole GPU": ("enable_uvm=1",),
        "vgpu_params has disable_vnc with two values": ("disable_vnc=1", "disable_vnc=0"),
        "none goes with no other": ("none", "disable_vnc=1"),
        r"'disable_vnc=1\n\x1b[2J' is no parameter": ("disable_vnc=1\n\x1b[2J",),
    }.items():
        given = [word for one in params for word in ("--vgpu-param", one)]
        assert refusal in operator.is_refused("resize-vm", "vf", *acme, *given)["message"], params
    operator.does("stop-vm", "vf", *acme, "--timeout", "0", "--hold", "keep")
    for kind in GPUS:
        operator.does("resize-vm", kind, *acme, "--vgpu-param", "disable_vnc=1")
    assert written(layouts) == [BOTH] * 3 and operator.json("repair") == []
    for kind in GPUS:
        operator.does("delete-vm", kind, *acme, "--yes", "--timeout", "0")


def test_each_start_writes_those_that_are_declared_then(layouts: LayoutFleet) -> None:
    operator = layouts.operator
    layouts.declare(sim_001=declared())
    for kind in GPUS:
        operator.does("start-vm", kind, "--tenant", "acme")
    assert written(layouts) == ["disable_vnc=1"] * 3
    operator.does("stop-vm", "vf", "--tenant", "acme", "--timeout", "0", "--hold", "release")
    assert len(written(layouts)) == 2
    operator.does("create-vm", "next", *SMALL, "--gpu", GPUS["vf"])
    assert written(layouts) == ["", "disable_vnc=1", "disable_vnc=1"], "the next VM has parameters of the last"
    for kind in (*GPUS, "next"):
        operator.does("delete-vm", kind, "--tenant", "acme", "--yes", "--timeout", "0")
    assert written(layouts) == []


@pytest.mark.long(
    "tests/unit/planner/layout/test_vgpu_params.py::test_idle_shares_get_the_parameters_of_the_layout_and_lose_them",
    "tests/agent/test_vgpu_params.py::test_parameters_are_written_with_the_share_changed_kept_and_cleared",
)
def test_a_layout_brings_its_idle_shares_to_its_parameters(layouts: LayoutFleet) -> None:
    operator, share = layouts.operator, {"A40-8Q": 1}
    by_board = {"match": {"board": "A40"}, "kind": "vgpu", "shares": share}
    layouts.declare(sim_001={"gpus": [by_board]})
    operator.does("apply-hosts")
    assert written(layouts) == [""]
    layouts.declare(sim_001={"gpus": [by_board | {"vgpu_params": ["enable_profiling=1"]}]})
    planned = operator.run("plan-hosts").out
    assert "vgpu-params" in planned or "enable_profiling=1" in planned
    operator.does("apply-hosts")
    assert written(layouts) == ["enable_profiling=1"]
    again = operator.json("apply-hosts")["hosts"][0]
    assert (again["changed"], again["writes"]) == (0, 0)
    layouts.declare(sim_001={"gpus": [by_board | {"shares": {}}]})
    operator.does("apply-hosts")
    assert written(layouts) == []


def test_what_no_vgpu_here_can_have_is_refused_by_name(layouts: LayoutFleet) -> None:
    operator = layouts.operator
    layouts.declare(sim_001=declared())
    refused = operator.is_refused("create-vm", "any", *SMALL, "--gpu", "A40-8Q", "--vgpu-param", "loglevel=5")
    assert "'loglevel=5' is no parameter of a vGPU" in refused["message"]
    refused = operator.is_refused("create-vm", "any", *SMALL, "--gpu", "A40-8Q", "--vgpu-param", "enable_uvm=1")
    assert "enable_uvm=1 needs a type that takes the whole GPU" in refused["message"]
    layouts.declare(sim_001=declared("enable_uvm=1"))
    (explained,) = operator.json("explain-vm", "any", "--gpu", "A40-8Q", *SMALL)
    assert "vgpu-params" in {one["code"] for one in explained["answers"]}
    made = operator.does("create-vm", "uvm", *SMALL, "--gpu", "A40-48Q")
    assert "enable_uvm keeps its vGPUs from live migration" in made.err
    assert written(layouts) == ["enable_uvm=1"]
    operator.does("delete-vm", "uvm", "--tenant", "acme", "--yes", "--timeout", "0")


@pytest.mark.long(
    "tests/unit/scheduler/test_vgpu_terms.py::test_a_layout_that_takes_the_picture_away_serves_no_vm_that_shows_it",
    "tests/e2e/vm/test_vgpu_params.py::test_what_no_vgpu_here_can_have_is_refused_by_name",
)
def test_a_layout_that_takes_pictures_away_serves_no_vm_that_shows_one(layouts: LayoutFleet) -> None:
    operator, acme = layouts.operator, ("--tenant", "acme")
    layouts.declare(sim_001=declared("disable_vnc=1"))
    shows = (*SMALL, "--gpu", GPUS["mdev"], "--vgpu-display", "on")
    takes = "disable_vnc=1 takes away the picture of the vGPU that the VM's console shows"
    assert takes in str(operator.is_refused("create-vm", "desk", *shows))
    (explained,) = operator.json("explain-vm", "desk", *shows)
    assert "vgpu-params" in {one["code"] for one in explained["answers"]}
    operator.does("create-vm", "desk", *shows, "--vgpu-param", "disable_vnc=0")
    assert written(layouts) == ["disable_vnc=0"]
    refused = operator.is_refused("resize-vm", "desk", *acme, "--vgpu-param", "none", "--restart")
    assert takes in str(refused["context"]), "it has no other card for this type"
    assert operator.json("show-vm", "desk", *acme)["vm"]["state"] == "running"
    operator.does("delete-vm", "desk", *acme, "--yes", "--timeout", "0")

    operator.does("create-vm", "blind", *SMALL, "--gpu", GPUS["mdev"])
    assert takes in operator.is_refused("set-console", "blind", *acme, "vgpu")["message"]
    operator.does("stop-vm", "blind", *acme, "--timeout", "0", "--hold", "keep")
    layouts.declare(sim_001=declared())
    operator.does("set-console", "blind", *acme, "vgpu")
    layouts.declare(sim_001=declared("disable_vnc=1"))
    assert takes in operator.is_refused("start-vm", "blind", *acme)["message"]
    operator.does("delete-vm", "blind", *acme, "--yes", "--timeout", "0")
