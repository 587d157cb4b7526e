# SPDX-License-Identifier: Apache-2.0
"""The controller starts VMs again by their restart policy, and brings back what a reboot of their host took."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import libvirt
import pytest

import vgpuctl_lab as lab
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operate.test_watched_hosts import controller, failing, soon
from tests.e2e.operator import Operator

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


def events(operator: Operator, kind: str) -> list[dict[str, Any]]:
    return [one for one in operator.json("list-events", "--limit", "1000") if one["kind"] == kind]


def test_a_vm_that_ends_by_itself_starts_again_as_its_policy_says(operator: Operator) -> None:
    with libvirt_of(operator.inventory, HOST) as there:
        for name in NAMES:
            there.connection.lookupByName(f"acme.{name}").destroy()
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


def test_a_vm_that_was_stopped_by_command_stays_stopped(operator: Operator) -> None:
    operator.does("stop-vm", "ever", *ACME, "--timeout", "0")
    before = len(events(operator, "vm-started"))
    read_at = vms(operator)["ever"]["observed_at"]
    soon(lambda: vms(operator)["ever"]["observed_at"] > read_at + 11)
    assert len(events(operator, "vm-started")) == before
    assert states(operator)["ever"] == "shut-off"
    operator.does("start-vm", "ever", *ACME)


def test_after_a_reboot_shares_and_vms_come_back_in_order_of_priority(operator: Operator, fleet: lab.LabFolder) -> None:
    before = len(events(operator, "vm-started"))
    with failing(fleet, HOST, "power-off"):
        soon(lambda: vms(operator)["ever"]["unknown_since"] is not None)
    wanted = {"never": "shut-off", "failing": "running", "ever": "running", "boots": "running"}
    soon(lambda: states(operator) == wanted, limit_s=90)
    started = [one["subject"] for one in events(operator, "vm-started")][before:]
    assert started[0] == "acme/ever", "the highest priority comes first"
    assert started == ["acme/ever", "acme/boots", "acme/failing"], "by priority, then by name"
    soon(lambda: vms(operator)["never"]["shares"][0]["state"] == "free", limit_s=60)
    operator.does("start-vm", "never", *ACME)
    assert [(one["subject"], one["detail"]) for one in events(operator, "vm-not-restarted")] == []


def test_what_cannot_come_back_is_an_event_with_the_reason(operator: Operator, fleet: lab.LabFolder) -> None:
    with failing(fleet, HOST, "fallen"):
        soon(lambda: any(one["host"] == HOST for one in events(operator, "gpu-quarantined")))
        with libvirt_of(operator.inventory, HOST) as there:
            there.connection.lookupByName("acme.ever").destroy()
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
    soon(lambda: "acme/boots" in [one["subject"] for one in events(operator, "vm-not-restarted")], limit_s=90)
    assert states(operator)["boots"] == "shut-off"
    operator.does("release-gpu", HOST, "0000:41:00.0", "--reason", "it was powered off and on")
    soon(lambda: states(operator)["boots"] == "running", limit_s=120)


def test_show_vm_says_how_a_vm_starts_again_and_when(operator: Operator) -> None:
    assert "restart   never, autostart after a boot of its host, priority normal" in operator.does(*SHOW, "boots").out
    operator.does("create-vm", "flaps", *ACME, *SIZE, "--restart", "always", "--priority", "high")
    try:
        assert operator.json(*SHOW, "flaps")["restart"] is None
        for restarts in (1, 2):
            with libvirt_of(operator.inventory, HOST) as there:
                there.connection.lookupByName("acme.flaps").destroy()
            if restarts == 1:
                soon(lambda: states(operator)["flaps"] == "running" and operator.json(*SHOW, "flaps")["restart"])
        soon(lambda: states(operator)["flaps"] == "shut-off", limit_s=9)
        restart = operator.json(*SHOW, "flaps")["restart"]
        assert (restart["count"], restart["next_at"]) == (1, restart["at"] + 10.0)
        shown = operator.does(*SHOW, "flaps").out
        assert "restart   always, priority high" in shown
        assert "last by the controller at " in shown and "; not again before " in shown
        soon(lambda: (operator.json(*SHOW, "flaps")["restart"] or {})["count"] == 2)
        assert ", 2 times in a row" in operator.does(*SHOW, "flaps").out
    finally:
        operator.does("delete-vm", "flaps", *ACME, "--yes", "--timeout", "0")
