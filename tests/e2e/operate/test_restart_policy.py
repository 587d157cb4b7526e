# SPDX-License-Identifier: Apache-2.0
"""The controller starts VMs again by their restart policy, and brings back what a reboot of their host took."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import libvirt
import pytest

import vgpuctl_lab as lab
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operate.test_watched_hosts import QUICK, controller, failing, soon
from tests.e2e.operator import Operator
from tests.e2e.quick_watch import RESTART_S

HOST = "sim-001"
ACME = ("--tenant", "acme")
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none", "--gpu", "A40-4Q", "--host", HOST)
SHOW = ("show-vm", *ACME)
NAMES = ("never", "failing", "ever", "boots")


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Iterator[Operator]:
    """Four VMs on one host, and a controller that watches it."""
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("list-gpus", "--refresh", "--limit", HOST)
    fleet_operator.does("create-vm", "never", *ACME, *SIZE)
    fleet_operator.does("create-vm", "failing", *ACME, *SIZE, "--restart", "on-failure")
    fleet_operator.does("create-vm", "ever", *ACME, *SIZE, "--restart", "always", "--priority", "high")
    fleet_operator.does("create-vm", "boots", *ACME, *SIZE, "--autostart")
    with controller(fleet_operator):
        soon(lambda: all(one["shares"][0]["state"] == "held" for one in vms(fleet_operator).values()))
        yield fleet_operator
    for name in NAMES:
        fleet_operator.does("delete-vm", name, *ACME, "--yes", "--timeout", "0")


def vms(operator: Operator) -> dict[str, dict[str, Any]]:
    return {one["vm"]["request"]["name"]: one for one in operator.json("list-vms")}


def states(operator: Operator) -> dict[str, str]:
    return {name: one["observed"] for name, one in vms(operator).items()}


def _end(operator: Operator, name: str) -> None:
    """Let a guest end by itself."""
    with libvirt_of(operator.inventory, HOST) as there:
        there.connection.lookupByName(f"acme.{name}").destroy()


def _end_again(operator: Operator, name: str) -> tuple[Any, str]:
    """Let a guest end that was started again. Returns what show-vm says of its restarts then, as JSON and in words."""
    soon(lambda: states(operator)[name] == "running")
    count = _restart(operator, name)["count"]
    _end(operator, name)
    soon(lambda: states(operator)[name] == "shut-off" or _restart(operator, name)["count"] > count)
    return _restart(operator, name), operator.run(*SHOW, name, program=QUICK).out


def _restart(operator: Operator, name: str) -> Any:
    """The last restart as show-vm tells it, and the pauses of the controller."""
    return json.loads(operator.run(*SHOW, name, "--json", program=QUICK).out)["restart"]


def events(operator: Operator, kind: str) -> list[dict[str, Any]]:
    return [one for one in operator.json("list-events", "--limit", "1000") if one["kind"] == kind]


def test_a_vm_that_ends_by_itself_starts_again_as_its_policy_says(operator: Operator) -> None:
    for name in NAMES:
        _end(operator, name)
    soon(lambda: [one["subject"] for one in events(operator, "vm-started")] == ["acme/ever"])
    soon(lambda: states(operator) == dict.fromkeys(NAMES, "shut-off") | {"ever": "running"})
    assert [one["subject"] for one in events(operator, "vm-started")] == ["acme/ever"]
    assert vms(operator)["never"]["declared"] == "running"
    for name in ("never", "failing", "boots"):
        operator.does("start-vm", name, *ACME)


def test_a_vm_that_crashed_starts_again_on_failure(operator: Operator, tmp_path: Path) -> None:
    before = len(events(operator, "vm-started"))
    with libvirt_of(operator.inventory, HOST) as there:
        there.connection.lookupByName("acme.failing").coreDump(f"{tmp_path}/core", libvirt.VIR_DUMP_CRASH)
    soon(lambda: [one["subject"] for one in events(operator, "vm-started")][before:] == ["acme/failing"])
    soon(lambda: states(operator)["failing"] == "running")


def wait_for_a_look(operator: Operator) -> None:
    seen_at = vms(operator)["ever"]["observed_at"]
    soon(lambda: vms(operator)["ever"]["observed_at"] > seen_at)


def test_a_vm_that_was_stopped_by_command_stays_stopped(operator: Operator) -> None:
    operator.does("stop-vm", "ever", *ACME, "--timeout", "0")
    before = len(events(operator, "vm-started"))
    for _look in range(2):
        wait_for_a_look(operator)
    assert len(events(operator, "vm-started")) == before
    assert states(operator)["ever"] == "shut-off"
    operator.does("start-vm", "ever", *ACME)


def test_after_a_reboot_shares_and_vms_come_back_in_order_of_priority(operator: Operator, fleet: lab.LabFolder) -> None:
    before = len(events(operator, "vm-started"))
    with failing(fleet, HOST, "power-off"):
        soon(lambda: vms(operator)["ever"]["unknown_since"] is not None)
    wanted = {"never": "shut-off", "failing": "running", "ever": "running", "boots": "running"}
    soon(lambda: states(operator) == wanted)
    started = [one["subject"] for one in events(operator, "vm-started")][before:]
    assert started[0] == "acme/ever", "the highest priority comes first"
    assert started == ["acme/ever", "acme/boots", "acme/failing"], "by priority, then by name"
    soon(lambda: vms(operator)["never"]["shares"][0]["state"] == "free")
    operator.does("start-vm", "never", *ACME)
    assert [(one["subject"], one["detail"]) for one in events(operator, "vm-not-restarted")] == []


def test_what_cannot_come_back_is_an_event_with_the_reason(operator: Operator, fleet: lab.LabFolder) -> None:
    with failing(fleet, HOST, "fallen"):
        soon(lambda: any(one["host"] == HOST for one in events(operator, "gpu-quarantined")))
        _end(operator, "ever")
        soon(lambda: "acme/ever" in [one["subject"] for one in events(operator, "vm-not-restarted")])
    told = events(operator, "vm-not-restarted")[-1]
    assert (told["subject"], told["host"], told["tenant"]) == ("acme/ever", HOST, "acme")
    assert "in quarantine: " in told["detail"], told
    assert vms(operator)["ever"]["declared"] == "running"
    assert states(operator)["ever"] == "shut-off"


def test_a_vm_that_could_not_start_after_the_boot_starts_when_it_can(operator: Operator, fleet: lab.LabFolder) -> None:
    """Its GPU is in quarantine since the test before; its policy is `never`, so the boot alone asks for it."""
    with failing(fleet, HOST, "power-off"):
        soon(lambda: vms(operator)["boots"]["unknown_since"] is not None)
    soon(lambda: "acme/boots" in [one["subject"] for one in events(operator, "vm-not-restarted")])
    assert states(operator)["boots"] == "shut-off"
    operator.does("unquarantine-gpu", HOST, "0000:41:00.0", "--reason", "it was powered off and on")
    soon(lambda: states(operator)["boots"] == "running")


@pytest.mark.long(
    "tests/e2e/operate/test_restart_policy.py::test_a_vm_that_ends_by_itself_starts_again_as_its_policy_says",
    "tests/unit/usecases/operate/test_bring_back.py::test_the_delay_doubles_up_to_five_minutes",
    "tests/unit/cli/vm/test_show_vm.py::test_the_last_restart_is_shown_with_the_end_of_its_pause",
)
def test_show_vm_says_how_a_vm_starts_again_and_when(operator: Operator) -> None:
    assert "restart   never, autostart after a boot of its host, priority normal" in operator.does(*SHOW, "boots").out
    operator.does("create-vm", "flaps", *ACME, *SIZE, "--restart", "always", "--priority", "high", "--refresh")
    try:
        assert _restart(operator, "flaps") is None
        _end(operator, "flaps")
        soon(lambda: states(operator)["flaps"] == "running" and _restart(operator, "flaps"))
        restart, shown = _end_again(operator, "flaps")
        # A machine so slow that the pause is over before it is shown has one twice as long the next time.
        while restart["next_at"] is None or "; not again before " not in shown:
            restart, shown = _end_again(operator, "flaps")
        assert restart["next_at"] == restart["at"] + RESTART_S * 2 ** (restart["count"] - 1)
        assert "restart   always, priority high" in shown
        assert "last by the controller at " in shown
        soon(lambda: _restart(operator, "flaps")["count"] == restart["count"] + 1)
        assert f", {restart['count'] + 1} times in a row" in operator.does(*SHOW, "flaps").out
    finally:
        operator.does("delete-vm", "flaps", *ACME, "--yes", "--timeout", "0")
