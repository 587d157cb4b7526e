# SPDX-License-Identifier: Apache-2.0
"""restart-vm, its --reset and stop-vm --force on simulated hosts: shares stay, `repair` finishes what is killed."""

import pytest

from tests.e2e.kills import KILLED_RUN, kill_after, kill_points, side_effects
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator

ACME = ("--tenant", "acme")
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")
CREATE = ("create-vm", "web", *ACME, *SIZE, "--gpu", "A40-8Q")
RESTART = ("restart-vm", "web", *ACME, "--timeout", "0")


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Operator:
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does(*CREATE, "--for", "2d")
    return fleet_operator


def _vm(operator: Operator) -> dict[str, object]:
    shown = operator.json("show-vm", "web", *ACME)
    return {
        "state": shown["vm"]["state"],
        "problem": shown["vm"]["problem"],
        "domain": shown["domain_state"],
        "leases": [(one["id"], one["state"]) for one in shown["leases"]],
    }


def _last_event(operator: Operator, kind: str) -> dict[str, object]:
    events = operator.json("list-events", "acme/web", "--kind", kind)
    return dict(events[-1])


def test_a_restart_keeps_the_shares_and_the_end(operator: Operator) -> None:
    before = operator.json("show-vm", "web", *ACME)
    answer = operator.json(*RESTART)
    assert (answer["changed"], answer["vm"]["state"]) == (True, "running")
    after = operator.json("show-vm", "web", *ACME)
    assert [one["id"] for one in after["leases"]] == [one["id"] for one in before["leases"]]
    assert after["vm"]["ends_at"] == before["vm"]["ends_at"]
    assert after["domain_state"] == "running"
    assert operator.json("repair") == []


def test_a_vm_with_a_whole_card_restarts_with_it(operator: Operator) -> None:
    """Its own QEMU has the card while it is asked whether the VM could start."""
    operator.does("create-vm", "card", *ACME, *SIZE, "--gpu", "passthrough")
    assert operator.json("restart-vm", "card", *ACME, "--timeout", "0")["vm"]["state"] == "running"
    operator.does("delete-vm", "card", *ACME, "--yes", "--timeout", "0")


def test_a_vm_whose_gpu_is_in_quarantine_is_not_stopped_for_its_restart(operator: Operator) -> None:
    (lease,) = operator.json("show-vm", "web", *ACME)["leases"]
    gpu = (lease["host"], lease["share"]["gpu"])
    operator.does("quarantine-gpu", *gpu, "--reason", "hot")
    refused = operator.is_refused(*RESTART)
    assert "in quarantine" in refused["message"]
    assert "vgpuctl stop-vm acme/web --hold release" in refused["hint"]
    assert _vm(operator)["domain"] == "running"
    operator.does("unquarantine-gpu", *gpu, "--reason", "the test is over")


def test_force_off_keeps_the_shares_and_says_so(operator: Operator) -> None:
    running = _vm(operator)
    assert operator.json("stop-vm", "web", *ACME, "--force")["changed"]
    off = _vm(operator)
    assert (off["state"], off["domain"]) == ("stopped", "shut-off")
    assert [one for one, _ in off["leases"]] == [one for one, _ in running["leases"]]  # type: ignore[attr-defined]
    assert _last_event(operator, "vm-stopped")["detail"] == "forced off"
    assert not operator.json("stop-vm", "web", *ACME, "--force")["changed"]
    refused = operator.is_refused("restart-vm", "web", *ACME, "--reset")
    assert "cannot reset acme/web: it is stopped" in refused["message"]
    assert operator.json(*RESTART)["vm"]["state"] == "running"


def test_a_reset_leaves_everything_as_it_is(operator: Operator) -> None:
    before = _vm(operator)
    assert operator.json("restart-vm", "web", *ACME, "--reset")["changed"]
    assert _vm(operator) == before
    assert _last_event(operator, "vm-reset")["before"]["state"] == "running"  # type: ignore[index]


def test_a_paused_vm_keeps_its_shares_and_goes_on_by_start_vm(operator: Operator) -> None:
    """An error of its disk, for example a full pool, makes libvirt pause a guest; its QEMU has the vGPU still."""
    before = operator.json("show-vm", "web", *ACME)
    running = _vm(operator)
    with libvirt_of(operator.inventory, before["vm"]["host"]) as there:
        there.connection.lookupByUUIDString(before["vm"]["uuid"]).suspend()
    (found,) = operator.json("repair")
    assert found["found"] == "the store says running, libvirt says paused"
    assert "`vgpuctl start-vm acme/web` lets its guest go on" in found["outcome"]
    assert _vm(operator) == {**running, "domain": "paused"}
    assert operator.json("start-vm", "web", *ACME)["changed"]
    assert _vm(operator) == running
    assert operator.json("repair") == []


@pytest.mark.long(
    "tests/e2e/vm/test_restart_vm.py::test_a_restart_keeps_the_shares_and_the_end",
    "tests/e2e/operate/test_interrupted.py::test_a_run_killed_after_any_side_effect_is_repaired",
)
def test_a_restart_that_is_killed_anywhere_is_finished_by_repair(operator: Operator) -> None:
    effects = side_effects(operator, *RESTART)
    assert {"shutdown", "start"} <= set(effects)
    before = _vm(operator)
    for point in kill_points(effects, most=4):
        kill_after(operator, point, *RESTART)
        operator.does("repair")
        assert _vm(operator) == before, f"killed after {point} of {effects}"
        assert operator.json("repair") == []


@pytest.mark.long(
    "tests/e2e/vm/test_restart_vm.py::test_force_off_keeps_the_shares_and_says_so",
    "tests/e2e/operate/test_interrupted.py::test_a_run_killed_after_any_side_effect_is_repaired",
)
def test_a_force_off_that_is_killed_anywhere_is_off_or_as_before(operator: Operator) -> None:
    for which in ("2", "destroy"):
        operator.run(which, "stop-vm", "web", *ACME, "--force", program=KILLED_RUN)
        operator.does("repair")
        assert operator.json("stop-vm", "web", *ACME, "--force")["vm"]["state"] == "stopped"
        assert operator.json("repair") == []
        operator.does("start-vm", "web", *ACME)


def test_a_vm_that_is_not_there_is_refused(operator: Operator) -> None:
    for command, *options in (("restart-vm",), ("restart-vm", "--reset"), ("stop-vm", "--force")):
        assert operator.is_refused(command, "weg", *ACME, *options)["reference"] == "not-found"


def test_who_asks_no_guest_waits_for_none(operator: Operator) -> None:
    for command in (("restart-vm", "--reset"), ("stop-vm", "--force")):
        for wait in (("--timeout", "5"), ("--no-drain",)):
            for order in ((*command, *wait), (command[0], *wait, command[1])):
                refused = operator.is_refused(*order, "web", *ACME)
                assert f"{command[1]} waits for no guest, so it excludes {wait[0]}" in refused["message"]
