# SPDX-License-Identifier: Apache-2.0
"""Fabric Manager's mode, declared: written, read with --disrupt, checked and brought back after a boot."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.kills import KILLED_RUN
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import need_simulated
from vgpuctl.agent.fabric_manager import FabricManager
from vgpuctl_lab.card_links import FABRIC_CONFIG
from vgpuctl_lab.simulated.layout import simulated_folder
from vgpuctl_lab.simulated.machine.host_adapter import SimulatedHost

HGX, PLAIN = "sim-001", "sim-002"
SHARED, VGPU, BARE = ({"fabric": {"mode": mode}} for mode in ("shared", "vgpu", "bare"))


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LayoutFleet]:
    """sim-001 is an HGX H100 whose Fabric Manager serves the host itself; sim-002 has an A40."""
    need_simulated()
    home: Path = tmp_path_factory.mktemp("fabric")
    fleet = layout_fleet(home, 2, "h100-sxm5*8,a40")
    yield fleet
    lab.simulated.down(folder=fleet.folder)


def sdk_of(layouts: LayoutFleet) -> FabricManager:
    """A connection to the host's Fabric Manager, as a program of the host has it."""
    return FabricManager(SimulatedHost(str(simulated_folder(layouts.folder).host(HGX))))


def config_of(layouts: LayoutFleet) -> Path:
    return layouts.machine(HGX).root / FABRIC_CONFIG.lstrip("/")


def planned(layouts: LayoutFleet) -> dict[str, Any]:
    plan: dict[str, Any] = layouts.operator.json("plan-hosts", "--limit", HGX)[0]["plan"]
    return plan


def ran(layouts: LayoutFleet, code: int, *options: str) -> dict[str, Any]:
    """The host's part of the answer of apply-hosts, which must end with this code."""
    done: dict[str, Any] = layouts.operator.ends(code, "apply-hosts", "--limit", HGX, *options)
    return done["hosts"][0]  # type: ignore[no-any-return]


def test_a_mode_is_written_and_read_with_leave_and_the_second_run_does_nothing(layouts: LayoutFleet) -> None:
    layouts.declare(sim_001=SHARED)
    before = config_of(layouts).read_text()
    shown = layouts.operator.does("plan-hosts", "--limit", HGX).out
    assert "write shared (FABRIC_MODE=1, FABRIC_MODE_RESTART=1) into Fabric Manager's configuration" in shown
    assert "only with --disrupt: a restart of Fabric Manager interrupts the NVLinks of every GPU" in shown
    assert config_of(layouts).read_text() == before

    assert "the NVLinks of every GPU" in layouts.operator.run("plan-hosts").out
    refused = ran(layouts, 4)
    assert [(one["outcome"], one["hint"]) for one in refused["lines"]] == [
        ("changed", None),
        ("failed", "--disrupt allows it"),
        ("skipped", None),
    ]
    wanted = before.replace("FABRIC_MODE=0", "FABRIC_MODE=1").replace("RESTART=0", "RESTART=1")
    assert config_of(layouts).read_text() == wanted
    assert layouts.machine(HGX).state().fabric.mode == 0
    (pending,) = planned(layouts)["differences"]
    assert pending["subject"] == "fabric-manager" and "restart pending" in pending["found"]
    assert "restart pending" in layouts.operator.does("inspect-host", HGX).out
    host = layouts.operator.ends(1, "check-hosts", "--limit", HGX)[0]
    assert "a restart is pending" in " ".join(one["read"] for one in host["findings"])

    done = ran(layouts, 0, "--disrupt")
    assert done["changed"] > 0
    assert layouts.machine(HGX).state().fabric.mode == 1
    with sdk_of(layouts) as manager:
        assert len(manager.partitions()) == 15
    assert not planned(layouts)["differences"]
    for options in ((), ("--disrupt",)):
        again = ran(layouts, 0, *options)
        assert (again["changed"], again["failed"], again["writes"]) == (0, 0, 0)


@pytest.mark.long(
    "tests/unit/planner/layout/test_plan_fabric.py::test_nothing_is_written_under_a_vm_or_an_active_partition",
    "tests/agent/test_changes_fabric_mode.py::test_it_is_not_restarted_under_a_vm_nor_under_an_active_partition",
)
def test_nothing_changes_while_a_partition_is_active(layouts: LayoutFleet) -> None:
    layouts.declare(sim_001=SHARED)
    ran(layouts, 0, "--disrupt")
    with sdk_of(layouts) as manager:
        manager.activate(3)
    before = config_of(layouts).read_text()
    layouts.declare(sim_001=VGPU)
    done = ran(layouts, 4, "--disrupt")
    (line,) = [one for one in done["lines"] if one["outcome"] == "failed"]
    assert "partition 3 is active (modules 1, 3)" in line["reason"] and "sim-001.yml:4" in line["reason"]
    assert config_of(layouts).read_text() == before
    with sdk_of(layouts) as manager:
        manager.deactivate(3)
    assert ran(layouts, 0, "--disrupt")["changed"] > 0


@pytest.mark.long(
    "tests/agent/test_changes_fabric_mode.py::test_the_boot_brings_a_mode_back_that_an_update_has_overwritten",
    "tests/unit/planner/layout/test_plan_fabric.py::test_a_boot_takes_the_same_steps",
)
def test_a_boot_brings_the_mode_back_and_is_checked(layouts: LayoutFleet) -> None:
    layouts.declare(sim_001=SHARED)
    ran(layouts, 0, "--disrupt")
    config_of(layouts).write_text("LOG_LEVEL=4\nFABRIC_MODE=0\n")  # as an update of its package leaves it
    lab.simulated.reboot(HGX, folder=layouts.folder)
    assert config_of(layouts).read_text() == "LOG_LEVEL=4\nFABRIC_MODE=1\nFABRIC_MODE_RESTART=1\n"
    assert layouts.machine(HGX).state().fabric.mode == 1
    done = ran(layouts, 0)
    assert (done["changed"], done["writes"]) == (0, 0)
    assert not planned(layouts)["differences"]


def test_a_host_without_nvswitch_is_refused_and_the_other_is_not(layouts: LayoutFleet) -> None:
    layouts.declare(sim_001=SHARED, sim_002=SHARED)
    done = layouts.operator.ends(10, "apply-hosts", "--disrupt")
    errors = {one["host"]: one["error"] for one in done["hosts"]}
    assert errors[HGX] is None and "no GPU of it sits behind NVSwitches" in str(errors[PLAIN])


def test_an_unknown_mode_is_refused_with_its_place(layouts: LayoutFleet) -> None:
    layouts.declare(sim_001={"fabric": {"mode": "partitions"}})
    done = layouts.operator.run("plan-hosts")
    assert done.code == 3 and "sim-001.yml:4: vgpu.fabric.mode of host 'sim-001' is 'partitions'" in done.err
    assert "bare, shared, vgpu" in done.err


_OTHER_ENDS = pytest.mark.long(
    "tests/e2e/layout/test_fabric_mode.py::test_a_run_that_ends_halfway_is_finished_by_the_next"
)


@pytest.mark.parametrize(
    "which",
    [
        pytest.param("kill", marks=_OTHER_ENDS),
        "reboot:apply/1",
        pytest.param("reboot:apply/2", marks=_OTHER_ENDS),
    ],
)
def test_a_run_that_ends_halfway_is_finished_by_the_next(layouts: LayoutFleet, which: str) -> None:
    layouts.declare(sim_001=BARE)
    ran(layouts, 0, "--disrupt")
    layouts.declare(sim_001=SHARED)
    apply, operator = ("apply-hosts", "--limit", HGX, "--disrupt"), layouts.operator
    if which == "kill":
        with operator.start(*apply) as process:
            assert process.stdout is not None
            assert any("write shared" in line for line in process.stdout)
            process.kill()
        assert "FABRIC_MODE=1\nFABRIC_MODE_RESTART=1\n" in config_of(layouts).read_text()
    else:
        variables = {"VGPUCTL_TESTS_LAB": str(layouts.folder.path), "VGPUCTL_TESTS_HOSTS": HGX}
        Operator(operator.home, operator.inventory, operator.database, variables).run(which, *apply, program=KILLED_RUN)
    ran(layouts, 0, "--disrupt")
    assert layouts.machine(HGX).state().fabric.mode == 1
    assert not planned(layouts)["differences"]


@pytest.mark.long(
    "tests/unit/planner/doctor/test_fabric_checks.py::test_one_thing_is_told_of_fabric_manager",
    "tests/e2e/layout/test_fabric_mode.py::test_a_mode_is_written_and_read_with_leave_and_the_second_run_does_nothing",
)
def test_faults_of_fabric_manager_are_findings_and_missing_packages_are_named(layouts: LayoutFleet) -> None:
    layouts.declare(sim_001=SHARED)
    ran(layouts, 0, "--disrupt")

    def findings(*options: str) -> list[str]:
        (host,) = layouts.operator.ends(1, "check-hosts", "--limit", HGX, *options)
        return [f"{one['read']}: {one['fix']}" for one in host["findings"] if one["check"] == "fabric-manager"]

    driver = layouts.machine(HGX).shape.nvidia_driver
    for kind, words in (
        ("fabric-dead", "nvidia-fabricmanager.service is inactive: systemctl start"),
        ("fabric-version", f"Fabric Manager is of version 570.86.15, the driver of version {driver}: install"),
        ("fabric-starting", "it is still starting"),
    ):
        lab.faults.begin(HGX, kind, folder=layouts.folder)
        assert any(words in one for one in findings()), (kind, findings())
        lab.faults.clear(HGX, [kind], folder=layouts.folder)
        ran(layouts, 0, "--disrupt")
    with layouts.machine(HGX).change() as state:
        state.files["/usr/bin/nv-fabricmanager"] = None
    (missing,) = findings("--prepare")
    assert f"nvidia-fabricmanager-dev-{driver.partition('.')[0]}" in missing
    with layouts.machine(HGX).change() as state:
        del state.files["/usr/bin/nv-fabricmanager"]
