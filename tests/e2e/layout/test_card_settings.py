# SPDX-License-Identifier: Apache-2.0
"""Power limit, clocks, ECC and compute mode of cards: planned, applied, checked, and back after a reboot."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.lab.simulated_fixtures import need_simulated
from vgpuctl_lab.simulated.machine import modes
from vgpuctl_lab.simulated.machine.nvml import CODES
from vgpuctl_lab.simulated.machine.tuning import Tuning

GPU = "0000:41:00.0"
TUNED = {"power_limit_w": 250, "gpu_clocks_mhz": "1200-1695", "memory_clocks_mhz": 405, "ecc": False}
DECLARED: dict[str, dict[str, Any]] = {
    "sim_001": {"gpus": [{"match": "all", "kind": "vgpu", "compute_mode": "prohibited", **TUNED}]},
    "sim_002": {"gpus": [{"match": "all", "kind": "off", "power_limit_w": 400}]},
}


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LayoutFleet]:
    """Two hosts with an A40 each, whose board takes 150 W to 300 W; the second is declared beyond that."""
    need_simulated()
    home: Path = tmp_path_factory.mktemp("settings")
    fleet = layout_fleet(home, 2, "a40:2")
    fleet.declare(**DECLARED)
    fleet.operator.does("create-tenant", "acme")
    yield fleet
    lab.simulated.down(folder=fleet.folder)


def applied(layouts: LayoutFleet, *options: str) -> dict[str, Any]:
    done = layouts.operator.run("apply-hosts", "--limit", "sim-001", *options, "--json")
    (found,) = json.loads(done.out)["hosts"]
    assert isinstance(found, dict)
    return found


def test_settings_are_applied_once_and_ecc_waits_for_the_reboot(layouts: LayoutFleet) -> None:
    operator, machine = layouts.operator, layouts.machine("sim-001")
    before = layouts.states()
    plan = operator.does("plan-hosts", "--limit", "sim-001", "--steps", "--diff").out
    assert "card settings: limit the power of 0000:41:00.0 to 250 W" in plan
    assert "card settings: lock the clocks of 0000:41:00.0 to 1200-1695 MHz" in plan
    assert "card settings: lock the memory clocks of 0000:41:00.0 to 405 MHz" in plan
    assert "card settings: switch ECC of 0000:41:00.0 off, pending until the host reboots" in plan
    assert layouts.states() == before, "plan-hosts changed a host"
    first = applied(layouts)
    assert first["error"] is None and first["failed"] == 0
    assert machine.state().tunings == {GPU: Tuning(250_000, (1200, 1695), 2, (405, 405))}
    assert modes.ecc_mode(machine.state(), machine.shape.cards[0]) == (True, False)
    second = applied(layouts)
    assert (second["changed"], second["failed"], second["writes"], second["error"]) == (0, 0, 0, None)
    (pending,) = [line for line in second["lines"] if line["outcome"] == "skipped"]
    assert pending["text"] == "ecc is enabled, disabled pending, declared disabled"
    assert pending["reason"] == "it counts after a reboot of the host"
    operator.does("create-vm", "web-1", "--tenant", "acme", "--gpu", "A40-8Q")
    checked = operator.run("check-hosts", "--limit", "sim-001")
    assert checked.code == 1
    assert "it counts after a reboot of the host, which ends VM web-1 of acme" in checked.out
    shown = operator.does("inspect-host", "sim-001").out
    assert "  power limit   250 W, of 150 W to 300 W\n" in shown
    assert "  memory clocks 405 to 7251 MHz, 405 MHz\n" in shown
    assert "  ECC           enabled, disabled pending\n" in shown
    operator.does("delete-vm", "web-1", "--tenant", "acme", "--yes")


def test_a_reboot_brings_all_of_it_back_and_commits_ecc(layouts: LayoutFleet) -> None:
    machine = layouts.machine("sim-001")
    lab.simulated.reboot("sim-001", folder=layouts.folder)
    assert machine.state().tunings == {GPU: Tuning(250_000, (1200, 1695), 2, (405, 405))}
    assert modes.ecc_mode(machine.state(), machine.shape.cards[0]) == (False, False)
    again = applied(layouts)
    assert (again["changed"], again["skipped"], again["writes"]) == (0, 0, 0)
    code = layouts.operator.run("check-hosts", "--limit", "sim-001", "--after-reboot").code
    assert code == 0


def test_a_setting_that_somebody_changed_is_drift_and_is_set_again(layouts: LayoutFleet) -> None:
    with layouts.machine("sim-001").change() as state:
        state.tunings[GPU] = Tuning(200_000, (1740, 1740), 0)
    checked = layouts.operator.run("check-hosts", "--limit", "sim-001")
    assert checked.code == 1
    others = ("memory-clocks is unknown", "compute-mode is default")
    for line in ("power-limit is 200 W, declared 250 W", "gpu-clocks is unknown", *others):
        assert f"{GPU}: {line}" in checked.out
    assert applied(layouts)["changed"] == 4
    assert layouts.machine("sim-001").state().tunings == {GPU: Tuning(250_000, (1200, 1695), 2, (405, 405))}


def test_an_unread_setting_is_never_as_declared(layouts: LayoutFleet) -> None:
    codes = layouts.machine("sim-001").root / CODES.lstrip("/")
    codes.parent.mkdir(parents=True, exist_ok=True)
    codes.write_text("nvmlDeviceGetPowerManagementLimit 999\n")
    done = applied(layouts)
    checked = layouts.operator.does("check-hosts", "--limit", "sim-001").out
    planned = layouts.operator.does("plan-hosts", "--limit", "sim-001").out
    listed = layouts.operator.json("list-hosts", "--limit", "sim-001")
    kept = layouts.operator.json("list-hosts", "--limit", "sim-001", "--cached")
    codes.unlink()
    assert [one["layout"] for one in (*listed, *kept)] == ["as declared, with 1 unread setting"] * 2
    assert "sim-001: as declared, with 1 unread setting, healthy\n  not read: 0000:41:00.0: its power limit" in checked
    assert "sim-001: as declared, with 1 unread setting\n" in planned
    assert done["changed"] == 0
    assert "vgpu, as declared" not in [line["text"] for line in done["lines"] if line["subject"] == GPU]
    (skipped,) = [line for line in done["lines"] if line["outcome"] == "skipped"]
    assert "its power limit is declared and unknown" in skipped["text"] and skipped["reason"] == "not read"


def test_bounds_of_the_board_are_refused_and_the_other_host_goes_on(layouts: LayoutFleet) -> None:
    done = json.loads(layouts.operator.run("apply-hosts", "--json").out)
    first, second = done["hosts"]
    assert first["error"] is None
    (failed,) = [line for line in second["lines"] if line["outcome"] == "failed"]
    assert "400 W is outside what the board takes, 150 W to 300 W" in failed["reason"]
    assert second["writes"] == 0 and second["error"]["reference"] == "layout-refused"
