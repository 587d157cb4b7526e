# SPDX-License-Identifier: Apache-2.0
"""A running VM moves to another host without a stop: with all it has, verified there, and nothing stays behind."""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.kills import kill_after
from tests.e2e.libvirt_of import domains_on, libvirt_of
from tests.e2e.node.pools import api, pool, round_of, vms
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SEEDED, SIZE, operator, trust_network
from tests.e2e.witness import FleetWitness
from tests.kubernetes_api import KubernetesApi
from tests.lab.simulated_fixtures import machine
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vm import MUST_RESTART, RESTARTING
from vgpuctl.store.store import open_store
from vgpuctl_lab.simulated.machine.domains import QEMU_LOGS

__all__ = ["api", "operator", "pool"]

FLEET = (3, "a40")
"""Three equal hosts with one A40 each."""
HOSTS = ("sim-001", "sim-002", "sim-003")
CREATE = ("create-vm", "web", *ACME, "--gpu", "A40-8Q", *SEEDED)
MOVE = ("move-vm", "web", *ACME, "--live-only")
DELETE = ("delete-vm", "web", *ACME, "--yes", "--timeout", "0")


@pytest.fixture(autouse=True)
def trusted(operator: Operator) -> None:
    """The hosts' inventory trusts their network with moves."""
    trust_network(operator)


def test_a_running_vm_moves_with_everything_and_is_never_stopped(
    operator: Operator, fleet_witness: FleetWitness
) -> None:
    before = fleet_witness.state()
    (made,) = operator.json(*CREATE)
    uuid, source = made["vm"]["uuid"], made["vm"]["host"]
    planned = operator.json(*MOVE, "--dry-run")
    assert (planned["from"], planned["way"], planned["downtime_s"]) == (source, "live", None)
    said = operator.does(*MOVE, "--dry-run").err
    assert (f"to {planned['to']} while it runs" in said, "stopped" in said, "running on" in said) == (
        True,
        False,
        False,
    )
    moved = operator.json(*MOVE, "--to", planned["to"], "--reason", "new fans")
    target = moved["to"]
    assert (moved["way"], target) == ("live", planned["to"])
    (listed,) = operator.json("list-vms", "--refresh")
    assert (listed["vm"]["host"], listed["vm"]["state"], listed["vm"]["problem"]) == (target, "running", None)
    assert (listed["vm"]["uuid"], listed["observed"]) == (uuid, "running")
    assert [(one["host"], one["share"]["profile"], one["state"]) for one in listed["leases"]] == [
        (target, "A40-8Q", "running")
    ]
    assert (domains_on(operator.inventory, target), domains_on(operator.inventory, source)) == (
        {"acme.web": "running"},
        {},
    )
    (told,) = operator.json("list-events", "--kind", "vm-moved-live")
    assert (told["before"]["host"], told["after"]["host"], told["detail"]) == (source, target, "new fans")
    assert operator.json("list-events", "--kind", "vm-stopped") == []
    assert operator.json("list-reservations") == operator.json("repair") == []
    operator.does(*DELETE)
    assert fleet_witness.state() == before


def test_the_controller_moves_a_vm_that_takes_its_neighbours_time_where_its_tenant_says_so(operator: Operator) -> None:
    (made,) = operator.json(*CREATE)
    source, (lease,) = made["vm"]["host"], made["leases"]
    operator.does("set-quota", "acme", "over-promise=move")
    with open_store(operator.database) as store, store.transaction() as session:
        session.add_event(
            EventKind.CONTENTION_OBSERVED,
            "acme/web",
            tenant="acme",
            host=source,
            after={"state": "begun"},
            evidence={"gpu": lease["share"]["gpu"], "victims": ["acme/other"]},
        )
    try:
        for _round in range(2):
            operator.does("controller", "--once")
        (answer,) = operator.json("list-events", "--kind", "over-promise-answered")
        (listed,) = operator.json("list-vms", "--refresh")
        target = listed["vm"]["host"]
        assert (listed["observed"], target != source) == ("running", True)
        assert answer["after"] == {"policy": "move", "outcome": "moved"}
        assert (answer["detail"], answer["evidence"]["victims"]) == (f"from {source} to {target}", ["acme/other"])
        assert operator.json("list-events", "--kind", "vm-stopped") == []
    finally:
        operator.does("set-quota", "acme", "over-promise=none")
        operator.does(*DELETE)


@pytest.mark.long(
    "tests/e2e/maintenance/test_plan_upgrade.py::test_a_plan_names_order_vms_and_guests_and_changes_nothing",
    "tests/unit/planner/moves/test_judge_move.py::test_a_rule_forbids_what_it_says",
)
def test_an_upgrade_says_how_vms_leave_their_hosts(operator: Operator) -> None:
    """The hosts are asked about a few VMs; of many VMs, what the store has of the hosts decides."""
    operator.does("create-vm", "web", *ACME, "--gpu", "A40-8Q", *SEEDED)

    def leaves() -> dict[str, dict[str, Any]]:
        plan = operator.json("plan-upgrade", "--kernel", "6.12.0")
        return {vm["name"]: vm for host in plan["hosts"] for vm in host["vms"]}

    assert {(one["leaves"], one["not_live"]) for one in leaves().values()} == {("live", None)}
    operator.does("create-vm", "more", *ACME, "--count", "16", *SIZE)
    found = leaves()
    assert {one["leaves"] for one in found.values()} == {"not-looked-at"}
    assert "NVML" in str(found["acme/web"]["not_looked_at"])
    (operator.inventory.parent / "group_vars/all.yml").unlink()
    cold = leaves()["acme/web"]
    assert (cold["leaves"], "names no network" in cold["not_live"]) == ("cold", True)
    operator.delete_all_vms()


@pytest.fixture
def faults(fleet: lab.LabFolder) -> Iterator[Callable[..., None]]:
    """Begins a fault of every host's card, and ends all of them."""

    def begin(kind: str, value: int | None = None) -> None:
        for host in HOSTS:
            lab.faults.begin(host, kind, value=value, folder=fleet)

    yield begin
    for host in HOSTS:
        lab.faults.clear(host, folder=fleet)


def test_a_refused_move_that_resets_the_vgpu_on_its_old_host_says_so(
    operator: Operator, faults: Callable[..., None], fleet: lab.LabFolder
) -> None:
    """Killed before the rows tell it, too: `repair` reads the log then. Each reset is told once."""
    operator.does(*CREATE)
    line = "Failed setting device state to STOP_COPY"
    for round_number, words in enumerate((MOVE, ("suspend-vm", "web", *ACME)), start=1):
        operator.does("restart-vm", "web", *ACME, "--timeout", "0")
        faults("move-refused")
        said = operator.is_refused(*words)
        assert "QEMU has reset its vGPU, and it must be restarted" in said["message"] and line in said["message"]
        assert said["hint"].startswith("`vgpuctl restart-vm acme/web`")
        (listed,) = operator.json("list-vms", "--refresh")
        assert (listed["vm"]["host"], listed["observed"]) == ("sim-001", "running")
        assert listed["vm"]["problem"].startswith("QEMU has reset its vGPU")
        assert operator.json("repair") == []
        told = operator.json("list-events", "--kind", "vgpu-state-lost", "--since", "1h")
        assert len([one for one in told if line in one["detail"]]) == round_number
        for host in HOSTS:
            lab.faults.clear(host, folder=fleet)
    operator.does("restart-vm", "web", *ACME, "--timeout", "0")
    assert operator.json("list-vms")[0]["vm"]["problem"] is None
    faults("move-refused")
    kill_after(operator, "run", *MOVE)
    assert "runs on sim-001; QEMU has reset its vGPU" in operator.does("repair").out
    assert operator.json("list-vms")[0]["vm"]["problem"].startswith("QEMU has reset its vGPU")
    assert len(operator.json("list-events", "--kind", "vgpu-state-lost", "--since", "1h")) == 3
    operator.does(*DELETE)


_SUSPENSION = pytest.mark.long(
    "tests/e2e/vm/test_live_move.py::test_whether_a_vgpu_was_reset_is_not_known_where_the_log_was_not_read"
)


@pytest.mark.parametrize(
    "words", [MOVE, pytest.param(("suspend-vm", "web", *ACME), marks=_SUSPENSION)], ids=["move", "suspension"]
)
def test_whether_a_vgpu_was_reset_is_not_known_where_the_log_was_not_read(
    operator: Operator, faults: Callable[..., None], fleet: lab.LabFolder, words: Sequence[str]
) -> None:
    operator.does(*CREATE)
    told = operator.json("list-events", "--kind", "vgpu-state-lost")
    (machine(fleet, "sim-001").root / QEMU_LOGS / "acme.web.log").write_text("its start is in an older file\n")
    faults("move-read-error")
    doubt = "it is not known whether QEMU has reset its vGPU: the log of its QEMU on sim-001 could not be read"
    assert doubt in operator.is_refused(*words)["message"]
    assert operator.json("list-vms")[0]["vm"]["problem"] == doubt
    assert operator.json("list-events", "--kind", "vgpu-state-lost") == told
    operator.does(*DELETE)


_OTHERS = pytest.mark.long(
    "tests/e2e/vm/test_live_move.py::test_a_move_that_fails_leaves_the_vm_where_it_runs_and_says_what_helps"
)


@pytest.mark.parametrize(
    ("fault", "helps"),
    [
        pytest.param("move-read-error", None, marks=_OTHERS),
        pytest.param(
            "move-header-refused",
            "compare the versions of QEMU and of the GPU's driver on both",
            marks=_OTHERS,
        ),
        ("move-port", "sim-001 must reach 127.0.0.1 at the ports of moves"),
    ],
)
def test_a_move_that_fails_leaves_the_vm_where_it_runs_and_says_what_helps(
    operator: Operator, fleet_witness: FleetWitness, faults: Callable[..., None], fault: str, helps: str | None
) -> None:
    operator.does(*CREATE)
    faults(fault)
    before = fleet_witness.state()
    said = operator.run(*MOVE)
    assert said.code == 7, said.err
    assert "cannot move domain acme.web from sim-001 to" in said.err
    assert "rolled back completely" in said.err
    assert helps is None or helps in said.err
    assert ("at the ports of moves" in said.err) == (fault == "move-port")
    assert fleet_witness.state() == before
    (listed,) = operator.json("list-vms", "--refresh")
    assert (listed["vm"]["host"], listed["vm"]["problem"], listed["observed"]) == ("sim-001", None, "running")
    (told,) = operator.json("list-events", "--kind", "vm-move-ended", "--limit", "1")
    assert "cannot move domain acme.web" in told["detail"]
    assert operator.json("list-reservations") == operator.json("repair") == []
    operator.does(*DELETE)


def test_a_success_of_libvirt_without_the_vgpus_state_is_none(operator: Operator, faults: Callable[..., None]) -> None:
    operator.does(*CREATE)
    faults("move-load-refused")
    said = operator.run(*MOVE, "--to", "sim-002")
    assert said.code == 7, said.err
    assert "acme/web runs on sim-002, but it lost the state of its vGPU on the way and must be restarted" in said.err
    assert "Failed setting device state to RUNNING_P2P" in said.err
    (listed,) = operator.json("list-vms", "--refresh")
    assert (listed["vm"]["host"], listed["observed"]) == ("sim-002", "running")
    assert listed["vm"]["problem"].startswith("came from sim-001: it lost the state of its vGPU")
    (told,) = operator.json("list-events", "--kind", "vgpu-state-lost", "--limit", "1")
    assert (told["subject"], told["tenant"], told["before"]["from_host"]) == ("acme/web", "acme", "sim-001")

    def codes() -> dict[str, list[str]]:
        found = operator.json("move-vm", "web", *ACME, "--check")["verdicts"]
        return {one["host"]: [limit["code"] for limit in one["verdict"]["limits"]] for one in found}

    assert codes() == {"sim-001": ["must-restart", "lost-before"], "sim-003": ["must-restart"]}
    assert "lost the state of a vGPU on" in str(operator.is_refused(*MOVE, "--to", "sim-001")["context"])
    problem, remedy = listed["vm"]["problem"], "`vgpuctl restart-vm acme/web` gives its guest a vGPU that works"

    def state_rows(*command: str, code: int = 0) -> list[dict[str, Any]]:
        found = operator.ends(code, *command, "web", *ACME)
        rows = [one.get("finding", one) for one in found["findings" if command == ("check-vm",) else "promises"]]
        return [one for one in rows if one["row"] == "gpu-state"]

    for found in (state_rows("show-vm"), state_rows("check-vm", code=1)):
        assert [(one["verdict"], one["seen"], one["remedy"]) for one in found] == [("broken", problem, remedy)]
    assert f"it is running on sim-002: {problem}; {remedy}" in operator.does("start-vm", "web", *ACME).err
    refused = operator.is_refused("suspend-vm", "web", *ACME)
    assert (problem in refused["message"], refused["hint"]) == (True, remedy)
    uuid = listed["vm"]["uuid"]
    with libvirt_of(operator.inventory, "sim-002") as there:
        there.connection.lookupByUUIDString(uuid).suspend()
    operator.does("start-vm", "web", *ACME)
    assert operator.json("list-vms")[0]["vm"]["problem"] == problem
    with contextlib.closing(sqlite3.connect(operator.database.removeprefix("sqlite:///"))) as rows, rows:
        rows.execute("UPDATE vms SET problem = ?", (RESTARTING,))  # as a run leaves it that died before it stopped it
    operator.does("repair")
    assert MUST_RESTART in operator.json("list-vms")[0]["vm"]["problem"]
    with libvirt_of(operator.inventory, "sim-002") as there:
        there.connection.lookupByUUIDString(uuid).managedSave()
    operator.does("repair")
    assert MUST_RESTART in operator.json("list-vms")[0]["vm"]["problem"]
    assert MUST_RESTART in operator.run("resume-vm", "web", *ACME).err
    assert MUST_RESTART in operator.json("list-vms")[0]["vm"]["problem"]

    operator.does("restart-vm", "web", *ACME, "--timeout", "0")
    assert codes() == {"sim-001": ["lost-before"], "sim-003": []}
    assert operator.json("list-vms")[0]["vm"]["problem"] is None
    assert state_rows("show-vm") == state_rows("check-vm") == []
    assert operator.json("repair") == []
    operator.does(*DELETE)


def test_a_host_that_loses_states_is_tried_again_where_that_is_wanted(operator: Operator) -> None:
    """sim-001 and sim-002 have lost one in the test before."""
    (made,) = operator.json(*CREATE)
    other = {"sim-001": "sim-002", "sim-002": "sim-001"}[made["vm"]["host"]]
    assert "lost the state of a vGPU" in str(operator.is_refused(*MOVE, "--to", other)["context"])
    (checked,) = operator.json("move-vm", "web", *ACME, "--check", "--to", other, "--trust-hosts")["verdicts"]
    assert checked["verdict"]["kind"] == "live"
    moved = operator.json(*MOVE, "--to", other, "--trust-hosts")
    assert (moved["way"], moved["to"]) == ("live", other)
    operator.does(*DELETE)


@pytest.mark.long(
    "tests/unit/planner/moves/test_judge_move.py::test_each_thing_that_a_live_move_needs_is_missed",
    "tests/e2e/vm/test_move_check.py::test_two_hosts_with_one_address_for_moves_take_no_vm_live",
)
def test_without_a_declared_network_a_vm_moves_cold_or_not_at_all(operator: Operator) -> None:
    operator.does(*CREATE)
    (operator.inventory.parent / "group_vars/all.yml").unlink()
    said = operator.is_refused(*MOVE)
    assert "its inventory names no network for that" in str(said["context"])
    assert said["hint"].endswith("--check` says what helps; without --live-only it is stopped for its move")
    operator.does("create-vm", "db", *ACME, *SEEDED)
    for line in operator.is_refused("move-vm", "web", "db", *ACME, "--live-only")["context"]:
        assert "cannot move while it runs: sim-00" in line and "its inventory names no network for that" in line
    operator.does("delete-vm", "db", *ACME, "--yes", "--timeout", "0")
    moved = operator.json("move-vm", "web", *ACME, "--shutdown-timeout", "0")
    assert moved["way"] == "cold"
    others = [name for name in ("sim-001", "sim-002", "sim-003") if name != moved["to"]]
    for name in others:
        operator.does("cordon-host", name, "--reason", "full")
    assert operator.is_refused(*MOVE)["hint"].endswith("--check` says what helps")
    for name in others:
        operator.does("uncordon-host", name, "--reason", "empty")
    operator.does(*DELETE)


@pytest.mark.long(
    "tests/unit/planner/moves/test_judge_move.py::test_a_longer_stop_than_the_owner_accepts_forbids_a_live_move",
    "tests/e2e/vm/test_live_move.py::test_a_drain_says_what_forbids_a_live_move",
)
def test_a_longer_halt_than_the_vm_allows_is_refused_before(operator: Operator, faults: Callable[..., None]) -> None:
    trust_network(operator, bandwidth_mbps=10_000)
    operator.does(*CREATE, "--max-downtime", "2s")
    (verdict, *_others) = operator.json("move-vm", "web", *ACME, "--check")["verdicts"]
    assert [one["code"] for one in verdict["verdict"]["limits"]] == ["max-downtime"], verdict
    assert verdict["verdict"]["downtime_s"] > 2
    assert "and max_downtime is 2 s" in str(operator.is_refused(*MOVE)["context"])
    refused = operator.is_refused("move-vm", "web", *ACME, "--max-downtime", "3s")
    hint = "`vgpuctl move-vm acme/web --check` says what helps; so does a longer --max-downtime"
    assert operator.is_refused(*MOVE, "--max-downtime", "3s")["hint"] == hint
    assert operator.is_refused(*MOVE, "--cold")["exit_code"] == 2
    assert ("cannot move with a halt of 3s at most" in refused["message"], "--cold" in refused["hint"]) == (True, True)
    assert operator.json(*MOVE, "--max-downtime", "1h")["way"] == "live"
    operator.does(*DELETE)


def test_a_drained_host_is_empty_without_a_stop(operator: Operator) -> None:
    trust_network(operator, bandwidth_mbps=10_000)
    for name in ("web", "db"):
        operator.does("create-vm", name, *ACME, "--gpu", "A40-8Q", *SEEDED)
    host = operator.json("list-vms")[0]["vm"]["host"]
    drain = ("drain-host", host, "--reason", "new fans")
    shown = operator.does(*drain, "--plan").out
    assert shown.splitlines()[0].split() == [
        "SUBJECT", "VERDICT", "MOVE", "HALT", "TO", "STORAGE", "OUTCOME", "REASON",
    ]  # fmt: skip
    planned = {one["subject"]: one for one in operator.json(*drain, "--plan")["vms"]}
    halt = planned["acme/web"]["downtime_s"]
    assert (planned["acme/web"]["way"], planned["acme/web"]["not_live"], halt > 1) == ("live", None, True)
    assert f"about {halt:.1f} s" in shown
    cold = operator.json(*drain, "--plan", "--cold")["vms"]
    assert {(one["way"], one["downtime_s"], one["not_live"]) for one in cold} == {("cold", None, None)}
    drained = operator.json(*drain, "--live-only", "--yes")
    there = [one["vm"]["host"] for one in operator.json("list-vms", "--refresh")]
    assert host not in there
    assert {one["way"] for one in drained["vms"]} == {"live"}
    assert all(one["downtime_s"] < halt for one in drained["vms"]), "as libvirt measured it"
    assert drained["drained"] is True
    operator.does("uncordon-host", host, "--reason", "done")
    operator.delete_all_vms()


def test_a_drain_says_what_forbids_a_live_move(operator: Operator) -> None:
    """A guest whose halt may last no longer than 1 s goes cold, or stays where only live moves are allowed."""
    trust_network(operator, bandwidth_mbps=10_000)
    (made,) = operator.json(*CREATE, "--max-downtime", "1s")
    drain = ("drain-host", made["vm"]["host"], "--reason", "new fans", "--plan")
    (planned,) = operator.json(*drain)["vms"]
    assert (planned["verdict"], planned["way"], planned["downtime_s"]) == ("move", "cold", None)
    assert "and max_downtime is 1 s" in planned["not_live"]
    assert f"not live: {planned['not_live']}" in operator.does(*drain).out
    (stays,) = operator.ends(10, *drain, "--live-only")["vms"]
    assert (stays["verdict"], stays["way"]) == ("stay", None)
    assert "and max_downtime is 1 s" in stays["reason"]
    operator.does(*DELETE)


@pytest.mark.long(
    "tests/e2e/maintenance/test_drain_host.py::test_a_vm_takes_its_reservation_and_its_declared_end_along",
    "tests/e2e/vm/test_live_move.py::test_a_drained_host_is_empty_without_a_stop",
)
def test_a_vm_takes_its_reservation_along_while_it_runs(operator: Operator) -> None:
    begin, end = (datetime.fromtimestamp(time.time() + far, UTC).isoformat(timespec="seconds") for far in (600, 3600))
    operator.does("reserve", "now", *ACME, "--gpu", "A40-8Q", "--from", begin, "--until", end)
    later = operator.later(900)
    later.does("create-vm", "web", *ACME, "--reservation", "now", *SEEDED)
    (made,) = later.json("list-vms")
    host = made["vm"]["host"]
    drained = later.json("drain-host", host, "--reason", "new fans", "--live-only", "--yes")
    rows = {one["subject"]: (one["verdict"], one["way"], one["outcome"]) for one in drained["vms"]}
    assert rows == {"acme/web": ("move", "live", "moved"), "reservation acme/now": ("move", None, "moved")}
    (listed,) = later.json("list-vms", "--refresh")
    (reserved,) = later.json("list-reservations")
    assert (listed["vm"]["state"], listed["vm"]["ends_at"]) == ("running", made["vm"]["ends_at"])
    assert reserved["host"] == listed["vm"]["host"] != host
    assert (reserved["vm_uuid"], reserved["shares"]) == (listed["vm"]["uuid"], [listed["leases"][0]["share"]])
    later.does("uncordon-host", host)
    later.does(*DELETE)
    operator.does("cancel-reservation", "--yes", "now", *ACME)


def test_a_node_that_moves_live_is_not_drained(operator: Operator, api: KubernetesApi, pool: tuple[str, ...]) -> None:
    operator.does(*pool)
    operator.does("scale-node-pool", "gpu", "1", *ACME)
    round_of(operator)
    (vm,) = vms(operator).values()
    api.add_node("gpu-001", f"vgpuctl://default/acme/{vm['uuid']}")
    round_of(operator)
    api.requests.clear()
    drain = ("drain-host", "--reason", "new fans", "--shutdown-timeout", "0", "--yes")
    (moved,) = operator.json(*drain, vm["host"])["vms"]
    assert (moved["way"], api.requests) == ("live", [])
    (moved_back,) = operator.json(*drain, moved["to"], "--cold")["vms"]
    assert (moved_back["way"], api.requests[0]) == ("cold", "PATCH /api/v1/nodes/gpu-001")
    for host in (vm["host"], moved["to"]):
        operator.does("uncordon-host", host, "--force")
    operator.does("delete-node-pool", "gpu", *ACME, "--yes", "--drained", "--timeout", "0")
