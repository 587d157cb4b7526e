# SPDX-License-Identifier: Apache-2.0
"""Emptying a host for maintenance, and what it is afterwards."""

import json
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

import vgpuctl_lab as lab
from tests.e2e.kills import kill_after, stop_after
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator

__all__ = ["operator"]

FLEET = (2, "a40")
"""Two equal hosts with one A40 each."""
NOW = ("--yes", "--shutdown-timeout", "0")
PARTIAL = 10
HOST = "sim-001"


@pytest.fixture(autouse=True)
def nothing_is_left(operator: Operator) -> Iterator[None]:
    yield
    operator.does("uncordon-host", HOST, "--force")
    for one in operator.json("list-reservations"):
        operator.does("cancel-reservation", "--yes", one["name"], *ACME)
    operator.delete_all_vms()


def _on_first(operator: Operator, name: str, *options: str) -> None:
    """Create a VM on the host that is drained, and bound to none."""
    operator.does("cordon-host", "sim-002", "--reason", "the test wants the first")
    operator.does("create-vm", name, *ACME, *options, *SIZE)
    operator.does("uncordon-host", "sim-002")


def _states(operator: Operator) -> dict[str, tuple[str, str]]:
    listed = [one["vm"] for one in operator.json("list-vms")]
    return {one["request"]["name"]: (one["host"], one["state"]) for one in listed}


def _verdicts(told: dict[str, list[dict[str, str]]]) -> dict[str, tuple[str, str | None, str]]:
    return {one["subject"]: (one["verdict"], one["to"], one["outcome"]) for one in told["vms"]}


def test_a_host_is_planned_drained_kept_empty_and_taken_back(operator: Operator) -> None:
    _on_first(operator, "high", "--gpu", "A40-8Q", "--priority", "high")
    _on_first(operator, "low", "--gpu", "A40-8Q")
    operator.does("create-vm", "bound", *ACME, "--gpu", "A40-8Q", "--host", HOST, *SIZE)
    later = [datetime.fromtimestamp(time.time() + far, UTC).isoformat(timespec="seconds") for far in (7200, 10800)]
    operator.does("cordon-host", "sim-002", "--reason", "the test wants the first")
    operator.does("reserve", "training", *ACME, "--gpu", "A40-8Q", "--from", later[0], "--until", later[1])
    operator.does("uncordon-host", "sim-002")
    before = _states(operator)

    planned = operator.ends(PARTIAL, "drain-host", HOST, "--reason", "new disks", "--plan")
    assert [one["subject"] for one in planned["vms"]] == [
        "acme/high",
        "acme/bound",
        "acme/low",
        "reservation acme/training",
    ]
    assert _verdicts(planned) == {
        "acme/high": ("move", "sim-002", "planned"),
        "acme/low": ("move", "sim-002", "planned"),
        "acme/bound": ("stay", None, "left"),
        "reservation acme/training": ("move", "sim-002", "planned"),
    }
    assert (_states(operator), planned["drained"], planned["changed"]) == (before, False, True)

    partial = operator.is_refused("drain-host", HOST, "--reason", "new disks", *NOW)
    assert partial["reference"] == "partial-failure"
    assert "acme/bound: cannot move: it was created for host sim-001" in partial["context"]
    assert _states(operator) == {
        "high": ("sim-002", "running"), "low": ("sim-002", "running"), "bound": (HOST, "running"),
    }  # fmt: skip
    assert operator.json("list-reservations")[0]["host"] == "sim-002"
    (explained,) = operator.json("explain-vm", "new", *ACME, "--gpu", "A40-8Q", "--host", HOST, *SIZE)
    assert "host-cordoned" in {one["code"] for one in explained["answers"]}

    drained = operator.json("drain-host", HOST, "--reason", "new disks", "--stop", *NOW)
    assert (drained["drained"], _verdicts(drained)["acme/bound"]) == (True, ("stop", None, "stopped"))
    assert drained["changed"]
    refused = operator.is_refused("start-vm", "bound", *ACME)
    assert "it is drained: new disks" in refused["message"]
    for how in (NOW, ("--plan",)):
        again = operator.json("drain-host", HOST, "--reason", "new disks", *how)
        assert (again["drained"], again["changed"]) == (True, False), "again: nothing to do"

    back = operator.json("uncordon-host", HOST, "--start", "--reason", "disks are in")
    assert (back["changed"], back["started"]) == (True, {"acme/bound": "running"})
    assert _states(operator)["bound"] == (HOST, "running")
    kinds = [one["kind"] for one in operator.json("list-events", "--host", HOST) if one["kind"].startswith("host-")]
    assert kinds[-4:] == ["host-cordoned", "host-drained", "host-uncordoned", "host-uncordoned"]


def test_a_vm_that_cannot_move_names_the_gpus_and_hosts_that_are_closed(operator: Operator) -> None:
    _on_first(operator, "web", "--gpu", "A40-8Q")
    operator.does("quarantine-gpu", "sim-002", "0000:41:00.0", "--reason", "smells of smoke")
    try:
        planned = operator.ends(PARTIAL, "drain-host", HOST, "--reason", "new disks", "--plan")["vms"][0]
        partial = operator.is_refused("drain-host", HOST, "--reason", "new disks", *NOW)
        moved = operator.is_refused("move-vm", "web", *ACME, "--to", "sim-002")
    finally:
        operator.does("unquarantine-gpu", "sim-002", "0000:41:00.0", "--reason", "the test is over")
    for told in (planned["reason"], str(partial["context"]), str(moved["context"])):
        assert "sim-002 0000:41:00.0" in told and "in quarantine: smells of smoke" in told
        assert "--all" not in told
    operator.does("cordon-host", "sim-002", "--reason", "rack work")
    try:
        planned = operator.ends(PARTIAL, "drain-host", HOST, "--reason", "new disks", "--plan")["vms"][0]
    finally:
        operator.does("uncordon-host", "sim-002")
    assert "sim-002: it is cordoned: rack work" in planned["reason"]


def test_a_stopped_vm_stays_unless_the_host_does_not_come_back(operator: Operator) -> None:
    _on_first(operator, "web", "--gpu", "A40-8Q")
    operator.does("stop-vm", "web", *ACME, "--timeout", "0")
    stays = operator.json("drain-host", HOST, "--reason", "new disks", *NOW)
    assert (stays["drained"], _verdicts(stays)["acme/web"]) == (True, ("stay", None, "stays stopped"))
    moved = operator.json("drain-host", HOST, "--reason", "it is sold", "--all", *NOW)
    assert _verdicts(moved)["acme/web"] == ("move", "sim-002", "moved")
    assert _states(operator) == {"web": ("sim-002", "stopped")}


def test_a_vm_takes_its_reservation_and_its_declared_end_along(operator: Operator) -> None:
    times = (600, 3600, 4200, 7200)
    begin, end, later, after = (
        datetime.fromtimestamp(time.time() + far, UTC).isoformat(timespec="seconds") for far in times
    )
    operator.does("cordon-host", "sim-002", "--reason", "the test wants the first")
    operator.does("reserve", "now", *ACME, "--gpu", "A40-8Q", "--from", begin, "--until", end)
    operator.does("reserve", "later", *ACME, "--gpu", "A40-48Q", "--from", later, "--until", after)
    operator = operator.later(900)
    operator.does("create-vm", "web", *ACME, "--reservation", "now", *SIZE)
    operator.does("create-vm", "bound", *ACME, "--gpu", "A40-8Q", "--host", HOST, *SIZE)
    operator.does("uncordon-host", "sim-002")
    (before,) = [one for one in operator.json("list-vms") if one["vm"]["request"]["name"] == "web"]

    planned = operator.json("drain-host", HOST, "--reason", "new disks", "--plan", "--stop")
    assert _verdicts(planned) == {
        "acme/web": ("move", "sim-002", "planned"),
        "acme/bound": ("stop", None, "planned"),
        "reservation acme/now": ("move", "sim-002", "planned"),
        "reservation acme/later": ("move", "sim-002", "planned"),
    }
    operator.does("drain-host", HOST, "--reason", "new disks", "--stop", *NOW)
    (web,) = [one for one in operator.json("list-vms") if one["vm"]["request"]["name"] == "web"]
    assert (web["vm"]["host"], web["vm"]["state"]) == ("sim-002", "running")
    assert abs(web["vm"]["ends_at"] - before["vm"]["ends_at"]) < 0.001, "not its whole time anew"
    reservations = {one["name"]: one for one in operator.json("list-reservations")}
    assert {name: one["host"] for name, one in reservations.items()} == {"now": "sim-002", "later": "sim-002"}
    assert reservations["now"]["vm_uuid"] == web["vm"]["uuid"]
    assert reservations["now"]["shares"][0]["function"] == web["leases"][0]["share"]["function"]
    again = operator.json("create-vm", "web", *ACME, "--reservation", "now", *SIZE)
    assert again[0]["changed"] is False


def test_a_reservation_whose_vm_stays_stays_with_it(operator: Operator) -> None:
    begin, end = (datetime.fromtimestamp(time.time() + far, UTC).isoformat(timespec="seconds") for far in (600, 3600))
    operator.does("cordon-host", "sim-002", "--reason", "the test wants the first")
    operator.does("reserve", "now", *ACME, "--gpu", "A40-8Q", "--from", begin, "--until", end)
    operator = operator.later(900)
    operator.does("create-vm", "web", *ACME, "--reservation", "now", *SIZE)
    operator.does("uncordon-host", "sim-002")
    operator.does("stop-vm", "web", *ACME, "--timeout", "0")
    done = operator.json("drain-host", HOST, "--reason", "new disks", *NOW)
    assert (done["drained"], _verdicts(done)["reservation acme/now"]) == (True, ("stay", None, "stays"))
    assert operator.json("list-reservations")[0]["host"] == HOST


_ELSEWHERE = pytest.mark.long(
    "tests/e2e/maintenance/test_drain_host.py::test_a_drain_that_is_killed_goes_on_and_what_ran_runs"
)


@pytest.mark.parametrize(
    "where", [pytest.param("shutdown", marks=_ELSEWHERE), "undefine", pytest.param("define", marks=_ELSEWHERE)]
)
def test_a_drain_that_is_killed_goes_on_and_what_ran_runs(operator: Operator, where: str) -> None:
    """Killed with the VM off on its old host, undefined there, and defined on its new one."""
    _on_first(operator, "web", "--gpu", "A40-8Q")
    drain = ("drain-host", HOST, "--reason", "new disks", *NOW)
    kill_after(operator, where, *drain)
    (cut,) = operator.json("list-vms")
    assert cut["vm"]["state"] == ("running" if where == "shutdown" else "stopped")
    if where == "shutdown":
        operator.does("repair")
        operator.does("start-vm", "web", *ACME)
    else:
        assert cut["vm"]["problem"] == "moves from sim-001 to sim-002"
    planned = operator.json("drain-host", HOST, "--reason", "new disks", "--plan")
    assert _verdicts(planned)["acme/web"] == ("move", "sim-002", "planned")
    done = operator.json(*drain)
    assert (done["drained"], _verdicts(done)["acme/web"]) == (True, ("move", "sim-002", "moved"))
    assert _states(operator) == {"web": ("sim-002", "running")}
    assert operator.json("repair") == []
    assert operator.json("list-reservations") == []


def test_a_vm_that_was_being_moved_and_is_stopped_by_its_owner_stays_stopped(operator: Operator) -> None:
    _on_first(operator, "web", "--gpu", "A40-8Q")
    kill_after(operator, "undefine", "drain-host", HOST, "--reason", "x", *NOW)
    operator.does("stop-vm", "web", *ACME, "--timeout", "0")
    assert [one["outcome"] for one in operator.json("repair")] == ["released"], "the shares that were held"
    assert _states(operator) == {"web": (HOST, "stopped")}


def test_a_vm_that_moves_and_does_not_start_is_not_said_to_be_left(operator: Operator, fleet: lab.LabFolder) -> None:
    _on_first(operator, "web", "--gpu", "A40-8Q")
    drain = stop_after(operator, "undefine", "drain-host", HOST, "--reason", "x", *NOW, "--json")
    lab.faults.begin("sim-002", "refuse", folder=fleet)
    drain.send_signal(signal.SIGCONT)
    out, err = drain.communicate(timeout=120)
    lab.faults.clear("sim-002", folder=fleet)
    assert drain.returncode == 10, err
    (row,) = json.loads(out)["vms"]
    assert (row["verdict"], row["to"]) == ("move", "sim-002")
    assert row["outcome"].startswith("failed: it is stopped on sim-002: ")
    assert "moved and did not start" in err
    again = operator.json("drain-host", HOST, "--reason", "x", *NOW)
    assert (again["drained"], _verdicts(again)["acme/web"]) == (True, ("move", "sim-002", "moved"))
    assert _states(operator) == {"web": ("sim-002", "running")}


def test_a_vm_that_a_drain_has_stopped_and_not_moved_is_said_to_be_off(
    operator: Operator, fleet: lab.LabFolder
) -> None:
    _on_first(operator, "web", "--gpu", "A40-8Q")
    lab.faults.begin(HOST, "refuse", folder=fleet)
    lab.faults.begin("sim-002", "disk-full", folder=fleet)
    try:
        done = operator.run("drain-host", HOST, "--reason", "x", *NOW, "--json")
    finally:
        for name in (HOST, "sim-002"):
            lab.faults.clear(name, folder=fleet)
    assert done.code == PARTIAL, done.err
    (row,) = json.loads(done.out)["vms"]
    assert (row["verdict"], row["outcome"].startswith(f"failed: it is stopped on {HOST}: ")) == ("stay", True), row
    assert "--stop" not in done.err
    operator.does("repair")
    assert _states(operator) == {"web": (HOST, "running")}


def test_a_host_that_came_back_otherwise_takes_no_vm(operator: Operator, fleet: lab.LabFolder) -> None:
    operator.does("drain-host", HOST, "--reason", "a new card", *NOW)
    lab.faults.begin(HOST, "sshd", folder=fleet)
    try:
        assert operator.is_refused("uncordon-host", HOST)["exit_code"] == 4
    finally:
        lab.faults.clear(HOST, folder=fleet)
    folder = operator.inventory if operator.inventory.is_dir() else operator.inventory.parent
    variables = folder / "host_vars" / f"{HOST}.yml"
    variables.parent.mkdir(exist_ok=True)
    entries = ("{match: {board: A40}, kind: off}", "{match: {board: '10de:2235'}, kind: off}")
    variables.write_text(f"vgpu: {{version: 1, gpus: [{', '.join(entries)}]}}")
    try:
        refused = operator.is_refused("uncordon-host", HOST)
    finally:
        variables.unlink()
    assert [one for one in refused["context"] if "is meant by" in one], "no step is planned, and no difference"
    assert f"`vgpuctl plan-hosts --limit {HOST}`" in refused["hint"]
    assert operator.json("uncordon-host", HOST)["changed"]
