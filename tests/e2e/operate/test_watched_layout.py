# SPDX-License-Identifier: Apache-2.0
"""`vgpuctl controller` sees a layout that was changed by hand, and brings the declared one back after a reboot."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.e2e.operate.test_watched_hosts import controller, failing, soon
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import need_simulated
from vgpuctl_lab.simulated.machine.drivers import Drivers

HOST, CARD = "sim-001", "0000:41:00.0"
ACME = ("--tenant", "acme")
NO_RESTORE = ["vgpuctl-restore.service restores it at boot: none, to be installed"]


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LayoutFleet]:
    """A watched host in its layout, which nothing on the host itself restores."""
    need_simulated()
    home: Path = tmp_path_factory.mktemp("layouts")
    fleet = layout_fleet(home, 1, "a40")
    try:
        fleet.declare(sim_001={"gpus": [{"match": "all", "kind": "vgpu"}]})
        fleet.operator.does("apply-hosts", "--no-boot")
        fleet.operator.does("create-tenant", "acme")
        with controller(fleet.operator):
            soon(lambda: listed(fleet.operator)["observed_layout"] == NO_RESTORE)
            yield fleet
    finally:
        lab.simulated.down(folder=fleet.folder)


def listed(operator: Operator) -> dict[str, Any]:
    """The host's layout as the store has it; no host is contacted."""
    (gpu,) = operator.json("list-gpus")
    return {"observed_layout": gpu["layout_differences"]}


def events(operator: Operator, kind: str) -> list[dict[str, Any]]:
    return [one for one in operator.json("list-events", "--limit", "1000") if one["kind"] == kind]


def set_vfs(layouts: LayoutFleet, count: int) -> None:
    """Write sriov_numvfs on the host, as somebody with a shell would."""
    machine = layouts.machine(HOST)
    with machine.change() as state:
        Drivers(machine, state).set_vfs(machine.shape.cards[0], count)


def test_a_layout_that_was_changed_by_hand_is_seen(layouts: LayoutFleet) -> None:
    operator, count = layouts.operator, layouts.vfs(HOST)[CARD]
    set_vfs(layouts, 0)
    soon(lambda: CARD in str(listed(operator)["observed_layout"]))
    seen = events(operator, "layout-observed")[-1]
    before = {"differences": NO_RESTORE}
    assert (seen["subject"], seen["before"], seen["actor"]["command"]) == (HOST, before, "controller")
    assert CARD in seen["detail"] and seen["after"]["differences"] == listed(operator)["observed_layout"]
    assert "layout: 2 differences" in operator.does("list-gpus").out
    assert layouts.vfs(HOST) == {}, "the controller changes nothing that an operator has done while the host is up"
    set_vfs(layouts, count)
    soon(lambda: listed(operator)["observed_layout"] == NO_RESTORE)
    assert events(operator, "layout-observed")[-1]["after"] == before


@pytest.mark.long(
    "tests/e2e/operate/test_watched_layout.py::test_a_layout_that_was_changed_by_hand_is_seen",
    "tests/unit/usecases/running/test_follow_inventory.py::"
    "test_a_changed_variable_file_counts_once_nobody_writes_it_any_more",
)
def test_the_running_controller_follows_a_changed_inventory(layouts: LayoutFleet) -> None:
    operator = layouts.operator
    layouts.declare(sim_001={"gpus": [{"match": "all", "kind": "passthrough"}]})
    soon(lambda: "declared 0" in str(listed(operator)["observed_layout"]))
    layouts.declare(sim_001={"gpus": [{"match": "all", "kind": "vgpu"}]})
    soon(lambda: listed(operator)["observed_layout"] == NO_RESTORE)


def test_after_a_reboot_layout_then_share_then_vm_come_back(layouts: LayoutFleet) -> None:
    operator, machine = layouts.operator, layouts.machine(HOST)
    before = layouts.vfs(HOST)
    # A reading in the middle of what somebody does with a shell may have found the GPU sick.
    operator.run("unquarantine-gpu", HOST, CARD, "--reason", "its VFs are back")
    size = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")
    operator.does("create-vm", "boots", *ACME, "--gpu", "A40-8Q", "--autostart", *size)
    operator.does("create-vm", "stays", *ACME, "--gpu", "A40-8Q", *size)
    operator.does("create-vm", "stopped", *ACME, "--gpu", "A40-8Q", "--autostart", *size)
    operator.does("stop-vm", "stopped", *ACME, "--timeout", "0")
    with failing(layouts.folder, HOST, "power-off"):
        soon(lambda: operator.json("list-gpus")[0]["observation"]["unknown_since"] is not None)
        assert machine.state().domains == {}
    soon(lambda: [one["subject"] for one in events(operator, "vm-started")] == ["acme/boots"])
    assert layouts.vfs(HOST) == before
    order = [one["kind"] for one in operator.json("list-events", "--limit", "1000")]
    order = order[order.index("host-rebooted") :]
    assert order.index("layout-step-done") < order.index("vm-started")
    assert {"layout-step-failed", "layout-not-restored", "share-not-restored", "vm-not-restarted"}.isdisjoint(order)
    assert len(machine.state().vgpus) == 3, "the shares of all VMs are back, also of those that stay off"
    states = {one["vm"]["request"]["name"]: one["observed"] for one in operator.json("list-vms")}
    assert states == {"boots": "running", "stays": "shut-off", "stopped": "shut-off"}


@pytest.mark.long(
    "tests/e2e/operate/test_watched_layout.py::test_a_layout_that_was_changed_by_hand_is_seen",
    "tests/e2e/layout/test_after_reboot.py::test_a_restore_that_is_gone_or_damaged_is_a_difference",
)
def test_a_restore_at_boot_that_is_damaged_is_seen(layouts: LayoutFleet) -> None:
    operator, shares = layouts.operator, layouts.machine(HOST).root / "etc/vgpuctl/shares.json"
    operator.does("apply-hosts")
    soon(lambda: listed(operator)["observed_layout"] == [])
    shares.write_text("{")
    soon(lambda: listed(operator)["observed_layout"] == [NO_RESTORE[0].replace(": none,", ": different,")])
    operator.does("apply-hosts")
    soon(lambda: listed(operator)["observed_layout"] == [])
    assert events(operator, "layout-observed")[-1]["detail"] == "as declared"
