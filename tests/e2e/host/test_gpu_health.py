# SPDX-License-Identifier: Apache-2.0
"""A GPU that sickens: each fault of a simulated host is found, is an event, and is a quarantine where it must be."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import simulated_fleet
from vgpuctl.store.store import open_store
from vgpuctl_lab.simulated.layout import simulated_folder

HOST, CARD, OLD_CARD = "sim-001", "0000:41:00.0", "0000:43:00.0"
REFRESH = ("list-gpus", "--refresh")


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lab.LabFolder]:
    """A host with an A40 and a T4."""
    with simulated_fleet(tmp_path_factory.mktemp("health"), 1, "a40+t4") as made:
        yield made


@pytest.fixture
def operator(sick: lab.LabFolder, tmp_path: Path) -> Iterator[Operator]:
    """An operator with a new store, who has read the host while it was healthy and its log without Xids."""
    (simulated_folder(sick).host(HOST) / "root/dev/kmsg").write_text("")
    made = Operator(tmp_path, simulated_folder(sick).inventory, f"sqlite:///{tmp_path}/store.db")
    made.does(*REFRESH)
    yield made
    lab.faults.clear(HOST, folder=sick)


def found(operator: Operator, *kinds: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = operator.json("list-events")
    return [one for one in events if one["kind"] in kinds]


def quarantined(operator: Operator) -> dict[str, str | None]:
    with open_store(operator.database) as store, store.reading() as session:
        return {one.device: one.finding for one in session.restrictions()}


_LONG = pytest.mark.long(
    "tests/e2e/host/test_gpu_health.py::test_each_fault_is_an_event_and_a_quarantine",
    "tests/unit/sharing/test_health.py::test_each_value_has_its_finding",
)


@pytest.mark.parametrize(
    ("fault", "value", "card", "finding"),
    [
        ("fallen", None, CARD, "off-the-bus"),
        ("xid", 95, CARD, "xid-reset-gpu"),
        pytest.param("xid", 119, CARD, "xid-reset-gpu", marks=_LONG),
        pytest.param("ecc", 2, CARD, "ecc-uncorrected", marks=_LONG),
        pytest.param("row-remap-pending", None, CARD, "row-remap-pending", marks=_LONG),
        pytest.param("row-remap-failed", None, CARD, "row-remap-failed", marks=_LONG),
        ("pages-retired", 2, OLD_CARD, "page-retirement-pending"),
        pytest.param("bar-unassigned", None, CARD, "bar-unassigned", marks=_LONG),
        pytest.param("vbios-changed", None, CARD, "vbios-changed", marks=_LONG),
    ],
)
def test_each_fault_is_an_event_and_a_quarantine(
    fault: str, value: int | None, card: str, finding: str, operator: Operator, sick: lab.LabFolder
) -> None:
    assert found(operator, "gpu-health", "gpu-quarantined") == []
    lab.faults.begin(HOST, fault, value, card=card, folder=sick)
    done = operator.does(*REFRESH)
    assert f"{HOST}: in quarantine: {card} " in done.err
    assert f"{finding})" in next(line for line in done.out.splitlines() if card in line), "the same look shows it"
    events = found(operator, "gpu-health")
    assert {one["subject"] for one in events} == {f"{HOST} {card}"}
    assert finding in {one["evidence"]["finding"] for one in events}
    assert quarantined(operator) == {card: events[0]["evidence"]["finding"]}
    before = len(found(operator, "gpu-health", "gpu-quarantined"))
    operator.does(*REFRESH)
    assert len(found(operator, "gpu-health", "gpu-quarantined")) == before


def test_a_card_with_an_xid_is_sick_in_every_answer_until_it_is_released(
    operator: Operator, sick: lab.LabFolder
) -> None:
    assert operator.json("check-hosts")[0]["findings"] == []
    lab.faults.begin(HOST, "xid", 79, card=CARD, folder=sick)
    checked = operator.run("check-hosts")
    assert checked.code == 1 and "healthy" not in checked.out
    assert f"error xid-restart-bm at {CARD}: Xid 79" in checked.out
    assert quarantined(operator) == {CARD: "xid-restart-bm"}, "the look that finds it sets the quarantine"
    assert operator.run("check-hosts").code == 1, "and it is found again"
    shown = operator.does("show-gpu", HOST, CARD).out
    assert "nothing found" not in shown and "health    xid-restart-bm: Xid 79" in shown
    (listed,) = [one for one in operator.json("list-gpus") if one["gpu"]["address"] == CARD]
    assert [one["code"] for one in listed["health"]] == ["xid-restart-bm"]
    operator.does("unquarantine-gpu", HOST, CARD, "--reason", "the card was reseated")
    assert operator.does("check-hosts").out == f"{HOST}: no layout declared, healthy\n"
    assert "health    nothing found" in operator.does("show-gpu", HOST, CARD).out


def test_a_guests_own_xid_is_an_event_with_the_vms_and_no_quarantine(operator: Operator, sick: lab.LabFolder) -> None:
    operator.does("create-tenant", "acme")
    operator.does("create-vm", "web-1", "--tenant", "acme", "--gpu", "A40-8Q", "--memory", "96MiB", "--vcpus", "1")
    lab.faults.begin(HOST, "xid", 31, card=CARD, folder=sick)
    operator.does("list-hosts")
    (event,) = found(operator, "gpu-health")
    assert (event["evidence"]["finding"], event["evidence"]["vms"]) == ("xid-restart-app", ["acme/web-1"])
    assert "Xid 31" in event["detail"]
    assert quarantined(operator) == {}
    operator.does("delete-vm", "web-1", "--tenant", "acme", "--yes", "--timeout", "0")


def test_the_policy_of_the_inventory_says_what_is_tolerated(
    operator: Operator, sick: lab.LabFolder, tmp_path: Path
) -> None:
    (tmp_path / "hosts.yml").write_text(operator.inventory.read_text())
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text("vgpu_health: {tolerate: [row-remap-pending]}\n")
    own = Operator(tmp_path, tmp_path / "hosts.yml", operator.database)
    lab.faults.begin(HOST, "row-remap-pending", card=CARD, folder=sick)
    lab.faults.begin(HOST, "xid", 31, card=OLD_CARD, folder=sick)
    own.does(*REFRESH)
    assert len(found(own, "gpu-health")) == 2
    assert quarantined(own) == {OLD_CARD: "xid-restart-app"}


def test_a_reading_that_the_agent_cannot_give_is_said(operator: Operator, sick: lab.LabFolder) -> None:
    codes = simulated_folder(sick).host(HOST) / "root/etc/vgpulab/nvml_codes"
    codes.parent.mkdir(parents=True, exist_ok=True)
    codes.write_text("nvmlDeviceGetRemappedRows 999\n")
    try:
        operator.does(*REFRESH)
    finally:
        codes.unlink()
    events = found(operator, "gpu-health")
    assert [one["evidence"]["finding"] for one in events] == ["health-unread", "health-unread"]
    assert "NVML does not tell the remapped rows" in events[0]["detail"]
