# SPDX-License-Identifier: Apache-2.0
"""Cards that change their slots while the host is off: quarantine follows, and a VM never gets another card's share."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.operate.test_watched_hosts import controller, kinds, soon
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import simulated_fleet
from vgpuctl.store.store import open_store
from vgpuctl_lab.simulated.layout import simulated_folder

HOST, SHARED, WHOLE, OLD = "sim-001", "0000:41:00.0", "0000:43:00.0", "0000:45:00.0"
ACME = ("--tenant", "acme")
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")

START = ("start-vm", "web", *ACME)


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    """A host with an A40 for vGPUs, one for passthrough and a T4."""
    with simulated_fleet(tmp_path, 1, "a40+a40/passthrough+t4/passthrough") as folder:
        made = Operator(tmp_path, simulated_folder(folder).inventory, f"sqlite:///{tmp_path}/store.db")
        made.does("create-tenant", "acme")
        made.does("list-gpus", "--refresh")
        yield made


def move(operator: Operator, slots: Mapping[str, str]) -> None:
    """Put cards into other slots while the host has no power."""
    folder = lab.LabFolder(operator.home / "lab")
    lab.faults.begin(HOST, "power-off", folder=folder)
    path = simulated_folder(folder).host(HOST) / "machine.json"
    shape = json.loads(path.read_text())
    for card in shape["cards"]:
        new = slots.get(card["address"], card["address"])
        old_bus, new_bus = (address.rpartition(":")[0] for address in (card["address"], new))
        for one in (card, *card["companions"]):
            one["address"] = one["address"].replace(old_bus, new_bus)
    path.write_text(json.dumps(shape))
    lab.faults.clear(HOST, ["power-off"], folder=folder)


def stopped(operator: Operator, name: str, gpu: str) -> None:
    """A stopped VM that keeps its share."""
    operator.does("create-vm", name, *ACME, "--gpu", gpu, *SIZE)
    operator.does("stop-vm", name, *ACME, "--timeout", "0")


@pytest.mark.long(
    "tests/e2e/host/test_moved_card.py::test_a_card_that_sickens_in_the_slot_of_one_in_quarantine_is_in_quarantine_too",
)
def test_a_quarantine_goes_with_its_card(operator: Operator) -> None:
    operator.does("quarantine-gpu", HOST, OLD, "--reason", "it smells")
    move(operator, {OLD: WHOLE, WHOLE: OLD})
    gpus = {one["gpu"]["address"]: one for one in operator.json("list-gpus", "--refresh")}
    assert "T4" in str(gpus[WHOLE]) and "A40" in str(gpus[OLD])
    moved = [one for one in operator.json("list-events") if one["kind"] == "gpu-moved"]
    assert {(one["before"]["address"], one["after"]["address"]) for one in moved} == {(OLD, WHOLE), (WHOLE, OLD)}
    refused = operator.is_refused("create-vm", "web", *ACME, "--gpu", "passthrough:T4", *SIZE)
    assert any(WHOLE in line and "it smells" in line for line in refused["context"]), refused
    operator.does("create-vm", "web", *ACME, "--gpu", "passthrough:A40", *SIZE)


def test_a_card_that_sickens_in_the_slot_of_one_in_quarantine_is_in_quarantine_too(operator: Operator) -> None:
    quarantine = ("quarantine-gpu", HOST, OLD, "--reason")
    operator.does(*quarantine, "it smells")
    move(operator, {OLD: WHOLE, WHOLE: OLD})
    operator.does("list-gpus", "--refresh")
    assert operator.json(*quarantine, "this one too", "--dry-run")["changed"]
    lab.faults.begin(HOST, "xid", 95, card=OLD, folder=lab.LabFolder(operator.home / "lab"))
    operator.does("list-gpus", "--refresh")
    closed = {one["gpu"]["address"]: str(one["closed"]) for one in operator.json("list-gpus")}
    assert "it smells" in closed[WHOLE] and "Xid 95" in closed[OLD], closed


def test_a_share_whose_card_is_in_another_slot_is_lost_and_the_vm_is_placed_anew(operator: Operator) -> None:
    stopped(operator, "web", "A40-8Q")
    move(operator, {SHARED: "0000:61:00.0"})
    operator.does("list-gpus", "--refresh")
    assert operator.json("list-vms")[0]["shares"][0]["state"] == "lost"
    refused = operator.is_refused(*START)
    assert (refused["reference"], SHARED in refused["message"]) == ("state", True), refused
    assert "--hold release" in refused["hint"]
    repaired = operator.run("repair")
    assert repaired.code == 10 and f"the host has no GPU at {SHARED} any more" in repaired.out
    assert "it stays promised" in repaired.out and "--hold release" in repaired.out
    operator.does("stop-vm", "web", *ACME, "--hold", "release", "--timeout", "0")
    assert operator.json("repair") == []
    folder = lab.LabFolder(operator.home / "lab")
    enable = lab.simulated.shell_command(HOST, ("sriov-manage", "-e", "0000:61:00.0"), folder=folder)
    subprocess.run(enable, check=True, capture_output=True, timeout=60)
    operator.does(*START)
    assert operator.json("list-vms")[0]["leases"][0]["share"]["gpu"] == "0000:61:00.0"
    operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")
    assert operator.json("list-vms") == []


def test_a_vm_gets_no_other_card_that_is_in_its_slot_now(operator: Operator) -> None:
    stopped(operator, "web", "passthrough:A40")
    move(operator, {OLD: WHOLE, WHOLE: OLD})
    refused = operator.is_refused(*START)
    assert (refused["reference"], WHOLE in refused["message"]) == ("state", True), refused
    assert "another card" in refused["message"], refused
    assert operator.json("list-vms")[0]["shares"][0]["state"] == "lost"
    repaired = operator.run("repair")
    assert repaired.code == 10 and "another card" in repaired.out
    assert f"cannot be made again: another card is at {WHOLE}" in operator.does("show-vm", "web", *ACME).out
    operator.does("stop-vm", "web", *ACME, "--hold", "release", "--timeout", "0")
    operator.does(*START)
    (listed,) = operator.json("list-vms")
    assert listed["leases"][0]["share"]["gpu"] in (SHARED, OLD)
    operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")


@pytest.mark.long(
    "tests/e2e/host/test_moved_card.py::test_a_share_whose_card_is_in_another_slot_is_lost_and_the_vm_is_placed_anew",
    "tests/e2e/operate/test_restart_policy.py::test_what_cannot_come_back_is_an_event_with_the_reason",
)
def test_the_controller_tells_of_a_share_whose_card_is_in_another_slot(operator: Operator) -> None:
    stopped(operator, "web", "A40-8Q")
    with controller(operator):
        soon(lambda: _has_brought_back(operator))
        move(operator, {SHARED: "0000:61:00.0"})
        soon(lambda: "share-not-restored" in kinds(operator))
    (event,) = [one for one in operator.json("list-events") if one["kind"] == "share-not-restored"]
    assert f"the host has no GPU at {SHARED} any more" in event["detail"]
    operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")


def _has_brought_back(operator: Operator) -> bool:
    """True once the controller knows this boot of the host."""
    with open_store(operator.database) as store, store.reading() as session:
        return session.host_record(HOST, "restarts") is not None
