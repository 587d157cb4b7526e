# SPDX-License-Identifier: Apache-2.0
"""defrag --apply: the steps of a plan are made in order, by the way that the plan names, and end at a surprise."""

from collections.abc import Iterator

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator, trust_network
from vgpuctl.model.placement import Placement
from vgpuctl.scheduler.defrag.plan import DefragStep, WayKind
from vgpuctl.usecases.maintenance.planned_moves import MoveRules, carry_out, rehearse
from vgpuctl.wiring import Settings, open_services

__all__ = ["operator"]

FLEET = (3, "a40")
"""Three equal hosts with one A40 each."""
ROOM = ("defrag", "--for", "A40-48Q")
APPLY = (*ROOM, "--apply", "--yes")


@pytest.fixture(autouse=True)
def spread(operator: Operator) -> Iterator[None]:
    """Half of each GPU is taken, and the hosts' inventory trusts their network with moves."""
    trust_network(operator)
    for name in ("web", "db", "ci"):
        operator.does("create-vm", name, *ACME, *SIZE, "--gpu", "A40-24Q", "--policy", "spread")
    yield
    for name in ("web", "db", "ci"):
        operator.does("delete-vm", name, *ACME, "--yes", "--timeout", "0")


def _places(operator: Operator) -> dict[str, str]:
    there = [one["vm"] for one in operator.json("list-vms", "--refresh") if one["vm"] is not None]
    return {one["request"]["name"]: one["host"] for one in there}


def test_a_plan_asks_its_hosts_and_is_made_live(operator: Operator) -> None:
    before = _places(operator)
    assert len(set(before.values())) == 3
    planned = operator.json(*ROOM)
    (step,) = planned["plan"]["steps"]
    assert (step["way"], [one["outcome"] for one in planned["moves"]]) == ("live", ["planned"])
    assert (planned["changed"], _places(operator)) == (False, before)
    assert operator.json("list-events", "--kind", "moves-begun") == []
    asked = operator.run(*ROOM, "--apply")
    assert "Move 1 VM?" in asked.err
    assert (asked.code, _places(operator)) == (2, before), asked.err
    made = operator.json(*APPLY)
    (move,) = made["moves"]
    assert (made["changed"], move["outcome"], move["way"]) == (True, "moved", "live")
    moved = move["step"]["name"].removeprefix("acme/")
    assert _places(operator) == before | {moved: move["step"]["placement"]["host"]}
    (told,) = operator.json("list-events", "--kind", "vm-moved-live")
    assert told["detail"] == "defrag: room for A40-48Q"
    (ended,) = operator.json("list-events", "--kind", "moves-ended")
    assert (ended["subject"], ended["detail"]) == ("defrag", "room for A40-48Q")
    assert ended["after"] == {"moved": 1, "failed": 0, "left": 0}
    again = operator.json(*APPLY)
    assert (again["changed"], again["moves"]) == (False, [])
    assert len(operator.json("list-events", "--kind", "moves-begun")) == 1


@pytest.mark.long(
    "tests/unit/usecases/vm/test_planned_moves.py::test_nothing_is_moved_after_a_step_that_failed",
    "tests/e2e/placement/test_defrag.py::test_a_plan_asks_its_hosts_and_is_made_live",
)
def test_a_step_that_fails_ends_the_run_and_the_next_run_plans_anew(operator: Operator, fleet: lab.LabFolder) -> None:
    before = _places(operator)
    for host in before.values():
        lab.faults.begin(host, "move-header-refused", folder=fleet)
    said = operator.run(*APPLY)
    for host in before.values():
        lab.faults.clear(host, folder=fleet)
    assert said.code == 10, said.err
    assert "0 of 1 move made" in said.err
    assert "failed: " in said.err and "cannot move domain acme." in said.err
    assert _places(operator) == before
    (ended,) = operator.json("list-events", "--kind", "moves-ended", "--limit", "1")
    assert ended["after"] == {"moved": 0, "failed": 1, "left": 0}
    assert operator.json("list-reservations") == operator.json("repair") == []
    assert operator.json(*APPLY)["moves"][0]["outcome"] == "moved"


@pytest.mark.long(
    "tests/unit/usecases/vm/test_planned_moves.py::test_no_step_begins_after_the_end_of_the_window",
    "tests/e2e/placement/test_defrag.py::test_a_plan_asks_its_hosts_and_is_made_live",
)
def test_no_step_begins_after_the_window(operator: Operator) -> None:
    before = _places(operator)
    said = operator.run(*APPLY, "--until", "2026-01-01T00:00")
    assert said.code == 10, said.err
    assert "left: no move begins after 2026-01-01 00:00 UTC" in said.err
    assert _places(operator) == before


@pytest.mark.long(
    "tests/unit/scheduler/defrag/test_fleet_plans.py::test_each_step_is_a_place_of_the_scheduler_after_those_before_it",
    "tests/unit/usecases/vm/test_planned_moves.py::test_every_step_is_made_in_order",
    "tests/e2e/placement/test_defrag_gpus.py::test_the_gpu_of_the_plan_is_had_and_not_the_one_that_placing_prefers",
)
def test_a_step_has_the_place_that_the_step_before_frees(operator: Operator) -> None:
    operator.does("create-vm", "mail", *ACME, *SIZE, "--gpu", "A40-24Q")
    places = _places(operator)
    full = places.pop("mail")
    first, second = sorted(name for name, host in places.items() if host != full)
    with open_services(Settings([str(operator.inventory)], operator.database), lambda _text: None) as services:
        with services.store.reading() as session:
            vms = {vm.request.name: vm for vm in session.vms()}
            shares = {lease.vm_uuid: lease.share for lease in session.leases()}

        def step(name: str, to: str, taken_by: str) -> DefragStep:
            gpus = (shares[vms[name].uuid].gpu,)
            there = Placement(to, (shares[vms[taken_by].uuid],))
            return DefragStep(vms[name].uuid, f"acme/{name}", WayKind.LIVE, 0.0, vms[name].host, gpus, there)

        steps = [step("mail", places[first], first), step(second, full, "mail")]
        (alone,) = rehearse(services, steps[1:])
        assert (alone.outcome, "no GPU can take A40-24Q" in alone.reason) == ("failed", True), alone.reason
        assert [(one.outcome, one.way) for one in rehearse(services, steps)] == [("planned", "live")] * 2
        assert _places(operator)["mail"] == full
        done = carry_out(services, "defrag", steps, MoveRules("a test"))
        assert [one.outcome for one in done] == ["moved"] * 2, done
        (stale,) = carry_out(services, "defrag", steps[:1], MoveRules("a test"))
        assert f"was to leave {full}" in stale.reason and f"is on {places[first]}" in stale.reason
    assert _places(operator) == {first: places[first], "mail": places[first], second: full} | {
        name: host for name, host in places.items() if host == full
    }
    operator.does("delete-vm", "mail", *ACME, "--yes", "--timeout", "0")


def test_the_controller_makes_room_for_the_queue_by_one_live_move_a_round(operator: Operator) -> None:
    before = _places(operator)
    controller = ("controller", "--once", "--shutdown-timeout", "0")
    operator.does("create-vm", "waits", *ACME, *SIZE, "--gpu", "A40-48Q", "--queue")
    known = len(operator.json("list-events", "--kind", "moves-begun"))
    operator.json(*controller)
    assert _places(operator) == before, "without --defrag nothing moves"
    (waits, moved) = operator.json(*controller, "--defrag", "--defrag-moves-per-hour", "1")
    assert waits["outcome"].startswith("waits: ")
    assert moved["outcome"].endswith("to make room for acme/waits"), moved
    (told,) = operator.json("list-events", "--kind", "vm-moved-live", "--limit", "1")
    assert told["detail"] == "controller: room for acme/waits"
    assert len(operator.json("list-events", "--kind", "moves-begun")) == known + 1
    (started,) = operator.json(*controller, "--defrag", "--defrag-moves-per-hour", "1")
    assert (started["name"], started["outcome"]) == ("acme/waits", "started")
    operator.does("delete-vm", "waits", *ACME, "--yes", "--timeout", "0")

    operator.does("move-vm", moved["name"], "--to", before[moved["name"].removeprefix("acme/")], "--live-only")
    operator.does("create-vm", "waits", *ACME, *SIZE, "--gpu", "A40-48Q", "--queue")
    (alone,) = operator.json(*controller, "--defrag", "--defrag-moves-per-hour", "1")
    assert alone["outcome"].startswith("waits: "), "one move was begun in this hour"
    assert len(operator.json(*controller, "--defrag", "--defrag-moves-per-hour", "2")) == 2
    operator.does("leave-queue", "waits", *ACME, "--yes")


def test_a_vm_is_stopped_only_where_somebody_agreed(operator: Operator) -> None:
    (operator.inventory.parent / "group_vars/all.yml").unlink()
    before = _places(operator)
    refused = operator.is_refused(*APPLY)
    assert "would be stopped for the move" in refused["message"]
    assert "--allow-cold" in refused["hint"]
    assert _places(operator) == before
    made = operator.json(*APPLY, "--allow-cold", "--shutdown-timeout", "0")
    assert [(one["outcome"], one["way"]) for one in made["moves"]] == [("moved", "cold")]
    assert _places(operator) != before
