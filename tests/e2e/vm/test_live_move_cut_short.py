# SPDX-License-Identifier: Apache-2.0
"""A live move that is cut short leaves one VM that runs in one place, and nobody takes its parts for leftovers."""

import contextlib
import signal
import sqlite3
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.kills import KILLED_RUN, kill_after, kill_points, side_effects, stop_after
from tests.e2e.libvirt_of import domains_on, libvirt_of
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SEEDED, operator, trust_network
from tests.e2e.witness import FleetWitness

__all__ = ["operator"]

FLEET = (3, "a40")
"""Three equal hosts with one A40 each."""
HOSTS = ("sim-001", "sim-002", "sim-003")
CREATE = ("create-vm", "web", *ACME, "--gpu", "A40-8Q", *SEEDED)
MOVE = ("move-vm", "web", *ACME, "--live-only")
IMPATIENT = {"VGPUCTL_CONNECT_TIMEOUT": "2", "VGPUCTL_COMMAND_TIMEOUT": "5"}
"""For a host whose network is cut."""
DELETE = ("delete-vm", "web", *ACME, "--yes", "--timeout", "0")


@pytest.fixture(autouse=True)
def trusted(operator: Operator) -> None:
    """The hosts' inventory trusts their network with moves."""
    trust_network(operator)


def test_a_move_that_is_killed_anywhere_leaves_one_running_vm(operator: Operator, fleet_witness: FleetWitness) -> None:
    before = fleet_witness.state()
    operator.does(*CREATE)
    effects = side_effects(operator, *MOVE)
    assert "run" in effects

    points: list[int | str] = ["run", *kill_points(effects, most=3)]
    for point in points:
        (was,) = operator.json("list-vms")
        kill_after(operator, point, *MOVE)
        text = f"after side effect {point} of {effects}"
        operator.does("repair")
        (listed,) = operator.json("list-vms", "--refresh")
        host = listed["vm"]["host"]
        assert (listed["vm"]["state"], listed["vm"]["problem"], listed["observed"]) == ("running", None, "running"), (
            text
        )
        assert [(one["host"], one["state"]) for one in listed["leases"]] == [(host, "running")], text
        everywhere = {name: domains_on(operator.inventory, name) for name in ("sim-001", "sim-002", "sim-003")}
        assert {name: found for name, found in everywhere.items() if found} == {host: {"acme.web": "running"}}, text
        assert operator.json("list-reservations") == operator.json("repair") == [], text
        assert was["vm"]["uuid"] == listed["vm"]["uuid"]
    operator.does(*DELETE)
    operator.does("gc", "--yes")
    assert fleet_witness.state() == before


def test_what_libvirt_left_halted_on_the_old_host_is_ended(operator: Operator, fleet_witness: FleetWitness) -> None:
    """The client died when the target let the VM run: nobody told the source, which keeps it halted for ever."""
    before = fleet_witness.state()
    (made,) = operator.json(*CREATE)
    uuid, source = made["vm"]["uuid"], made["vm"]["host"]
    kill_after(operator, "run", *MOVE)
    with libvirt_of(operator.inventory, source) as there:
        left = f"<name>acme.web</name><uuid>{uuid}</uuid><memory>98304</memory><os><type>hvm</type></os>"
        there.connection.createXML(f"<domain type='kvm'>{left}</domain>").suspend()
    assert domains_on(operator.inventory, source) == {"acme.web": "paused"}
    operator.does("repair")
    (listed,) = operator.json("list-vms", "--refresh")
    assert (listed["vm"]["host"] != source, listed["vm"]["problem"], listed["observed"]) == (True, None, "running")
    assert domains_on(operator.inventory, source) == {}
    assert operator.json("list-reservations") == operator.json("repair") == []
    operator.does(*DELETE)
    assert fleet_witness.state() == before


@pytest.mark.long(
    "tests/unit/usecases/vm/test_whereabouts.py::test_a_vm_goes_on_in_one_place",
    "tests/e2e/vm/test_live_move_cut_short.py::test_what_libvirt_left_halted_on_the_old_host_is_ended",
)
def test_a_vm_that_waits_on_its_new_host_goes_on_there(operator: Operator) -> None:
    """The client died when its old host had nothing of it any more, and before it was let go on the new one."""
    (made,) = operator.json(*CREATE)
    uuid, source = made["vm"]["uuid"], made["vm"]["host"]
    kill_after(operator, "run", *MOVE)
    (target,) = [name for name in HOSTS if domains_on(operator.inventory, name)]
    with libvirt_of(operator.inventory, target) as there:
        there.connection.lookupByUUIDString(uuid).suspend()
    assert (source != target, domains_on(operator.inventory, target)) == (True, {"acme.web": "paused"})
    operator.does("repair")
    (listed,) = operator.json("list-vms", "--refresh")
    assert (listed["vm"]["host"], listed["vm"]["problem"], listed["observed"]) == (target, None, "running")
    assert operator.json("list-reservations") == operator.json("repair") == []
    operator.does(*DELETE)


@pytest.mark.long(
    "tests/unit/usecases/vm/test_whereabouts.py::test_a_vm_goes_on_in_one_place",
    "tests/unit/usecases/vm/test_whereabouts.py::test_a_vm_that_ended_on_its_new_host_has_lost_no_state_to_a_driver",
)
def test_a_vm_that_has_ended_on_its_new_host_keeps_its_newer_disk(operator: Operator) -> None:
    """The client died when the VM ran there already; its guest powered off before anybody looked."""
    (made,) = operator.json(*CREATE)
    uuid, source = made["vm"]["uuid"], made["vm"]["host"]
    kill_after(operator, "run", *MOVE)
    (target,) = [name for name in HOSTS if domains_on(operator.inventory, name)]
    with libvirt_of(operator.inventory, target) as there:
        there.connection.lookupByUUIDString(uuid).destroy()
    said = operator.does("repair").out
    assert (source != target, f"it came to {target}, but it has ended there since" in " ".join(said.split())) == (
        True, True,
    )  # fmt: skip
    (listed,) = operator.json("list-vms", "--refresh")
    assert (listed["vm"]["host"], listed["observed"]) == (target, "shut-off")
    operator.does("repair")
    operator.does("start-vm", "web", *ACME)
    assert domains_on(operator.inventory, target) == {"acme.web": "running"}
    assert operator.json("repair") == []
    operator.does(*DELETE)


def test_gc_leaves_what_a_killed_move_has_on_its_new_host(operator: Operator) -> None:
    """The VM may have gone on there: only `repair` knows."""
    (made,) = operator.json(*CREATE)
    source, target = made["vm"]["host"], "sim-002" if made["vm"]["host"] == "sim-001" else "sim-001"
    kill_after(operator, "run", *MOVE, "--to", target)
    (found,) = operator.json("gc", "-l", target, "--yes")
    move = f"the move of acme/web between {source} and {target}, which was cut short: `vgpuctl repair` finishes it"
    assert (found["kind"], found["left"]) == ("domain", f"it belongs to {move}")
    assert found["outcome"].startswith("left alone")
    assert domains_on(operator.inventory, target) == {"acme.web": "running"}
    operator.does("repair")
    assert domains_on(operator.inventory, target) == {"acme.web": "running"}
    operator.does(*DELETE)


@pytest.mark.long("tests/e2e/vm/test_live_move_cut_short.py::test_gc_leaves_what_a_killed_move_has_on_its_new_host")
def test_what_a_move_has_on_its_new_host_is_no_leftover(operator: Operator, fleet_witness: FleetWitness) -> None:
    """Neither while the move is at work, nor while it waits for `repair`: the VM may have gone on there."""
    before = fleet_witness.state()
    (made,) = operator.json(*CREATE)
    (begun,) = operator.json("list-events", "--limit", "1")
    source, target = made["vm"]["host"], "sim-002" if made["vm"]["host"] == "sim-001" else "sim-001"
    gc = ("gc", "-l", target)
    drain = ("drain-host", target, "--reason", "new fans", "--yes")
    evacuate = ("quarantine-gpu", target, "0000:41:00.0", "--reason", "hot", "--evacuate", "--yes")
    moving = stop_after(operator, "apply", *MOVE, "--to", target)
    try:
        assert operator.json(*gc, "--kind", "vgpu", "--dry-run") == []
    finally:
        moving.send_signal(signal.SIGCONT)
        moving.wait()
    operator.does(*MOVE, "--to", source)

    move = f"the move of acme/web between {source} and {target}, which"
    moving = stop_after(operator, "run", *MOVE, "--to", target)
    try:
        held = operator.json("list-reservations")
        (found,) = operator.json(*gc, "--dry-run")
        assert (found["kind"], found["left"]) == (
            "domain", f"it belongs to {move} is in progress: the command that moves it finishes it",
        )  # fmt: skip
        for command in (drain, evacuate):
            (row,) = operator.ends(10, *command)["vms"]
            assert (row["subject"], row["verdict"], row["outcome"]) == ("shares of acme/web", "stay", "left")
            assert row["reason"] == "a move of acme/web keeps them, which is in progress: wait for its end"
        assert operator.json("list-reservations") == held
    finally:
        moving.kill()
        moving.wait()
    for _look in range(3):
        operator.does("list-vms", "--refresh")
        (found,) = operator.json(*gc, "--dry-run")
    assert found["left"] == f"it belongs to {move} was cut short: `vgpuctl repair` finishes it"
    assert "`vgpuctl repair` finishes it" in operator.ends(10, *drain)["vms"][0]["reason"]
    told = operator.json("list-events", "--kind", "vm-observed", "--limit", "1000")
    assert [one for one in told if one["host"] == target and one["id"] > begun["id"]] == []
    with libvirt_of(operator.inventory, target) as there:
        there.connection.lookupByUUIDString(made["vm"]["uuid"]).destroy()
    assert [one["outcome"].partition(":")[0] for one in operator.json(*gc, "--yes")] == ["left alone"]
    assert operator.json(*gc, "--kind", "volume", "--kind", "vgpu", "--yes") == []
    operator.does("repair")
    operator.does("uncordon-host", target)
    operator.does("unquarantine-gpu", target, "0000:41:00.0", "--reason", "cool")
    operator.does("start-vm", "web", *ACME)
    assert domains_on(operator.inventory, target) == {"acme.web": "running"}
    operator.does(*DELETE)
    assert fleet_witness.state() == before


EVACUATE = ("quarantine-gpu", "{}", "0000:41:00.0", "--reason", "hot", "--evacuate", "--yes")
_OTHER_COMMANDS = pytest.mark.long(
    "tests/e2e/vm/test_live_move_cut_short.py"
    "::test_a_command_that_finishes_a_move_first_goes_on_with_the_vm_where_it_is"
)
EMPTYING: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "drain": (("drain-host", "{}", "--reason", "new fans", "--yes"), ("uncordon-host", "{}")),
    "evacuation": (EVACUATE, ("unquarantine-gpu", "{}", "0000:41:00.0", "--reason", "cool")),
}


@pytest.mark.parametrize("what", ["move", *(pytest.param(one, marks=_OTHER_COMMANDS) for one in ("resize", *EMPTYING))])
def test_a_command_that_finishes_a_move_first_goes_on_with_the_vm_where_it_is(operator: Operator, what: str) -> None:
    """Its run was killed when the VM ran on its new host already, and the store had it on the old one."""
    (made,) = operator.json(*CREATE)
    old, uuid = made["vm"]["host"], made["vm"]["uuid"]

    def has_come() -> str:
        """The host that it is on; nothing has moved it again."""
        (listed,) = operator.json("list-vms", "--refresh")
        host, share = listed["vm"]["host"], listed["leases"][0]["host"]
        (move,) = operator.json("list-events", "--kind", "vm-moved-live", "--limit", "1")
        assert (host != old, share, listed["observed"]) == (True, host, "running")
        assert (move["after"]["host"], move["detail"]) == (host, "repaired")
        assert {name: found for name in HOSTS if (found := domains_on(operator.inventory, name))} == {
            host: {"acme.web": "running"}
        }
        assert (listed["vm"]["uuid"], operator.json("repair")) == (uuid, [])
        return str(host)

    kill_after(operator, "run", *MOVE)
    if what == "resize":
        operator.does("resize-vm", "web", *ACME, "--memory", "128MiB", "--restart", "--shutdown-timeout", "0")
        has_come()
        assert operator.json("list-vms")[0]["vm"]["request"]["memory_mib"] == 128
    elif what == "move":
        done = operator.json(*MOVE)
        assert (done["changed"], done["from"], done["to"]) == (True, old, has_come())
    else:
        command, back = EMPTYING[what]
        (row,) = operator.json(*(one.format(old) for one in command))["vms"]
        assert (row["subject"], row["outcome"], row["to"]) == ("acme/web", "moved", has_come())
        assert row["reason"] == "an earlier move has ended there"
        operator.does(*(one.format(old) for one in back))
    operator.does(*DELETE)


def test_a_vm_whose_move_has_not_ended_does_not_start(operator: Operator) -> None:
    """It may run on either host."""
    (made,) = operator.json(*CREATE)
    source, target = made["vm"]["host"], "sim-002" if made["vm"]["host"] == "sim-001" else "sim-001"
    kill_after(operator, "apply", *MOVE, "--to", target)
    for command in (("start-vm", "web", *ACME), CREATE):
        refused = operator.is_refused(*command)
        assert f"was moved live from {source} to {target}, and that did not end" in refused["message"], command
        assert "vgpuctl repair" in refused["hint"]
    operator.does("repair")
    operator.does(*DELETE)


@pytest.mark.long(
    "tests/e2e/vm/test_live_move_cut_short.py::test_a_vm_whose_move_has_not_ended_does_not_start",
    "tests/unit/planner/moves/test_judge_move.py::test_a_rule_forbids_what_it_says",
)
def test_a_vm_whose_move_has_not_ended_is_told_as_one(operator: Operator, fleet: lab.LabFolder) -> None:
    """While the move is at work it runs and is left alone; once that is dead, nobody says where it runs."""
    (made,) = operator.json(*CREATE)
    source, target = made["vm"]["host"], "sim-002" if made["vm"]["host"] == "sim-001" else "sim-001"
    ends = f"moves live to {target}"

    def limits(*command: str) -> set[tuple[str, str, str]]:
        answer = operator.json(*command)
        found = (answer[0] if isinstance(answer, list) else answer)["verdicts"]
        told = [(one["verdict"]["kind"], limit) for one in found for limit in one["verdict"]["limits"]]
        return {(kind, limit["code"], limit["limit"]) for kind, limit in told if limit["code"] == "unfinished"}

    moving = stop_after(operator, "apply", *MOVE, "--to", target)
    try:
        (row,) = operator.json("repair", "--dry-run")
        assert (row["subject"], row["outcome"]) == ("acme/web", "left alone")
        assert row["found"].startswith("move-vm is at work on it (process ")
        assert ends in operator.does("start-vm", "web", *ACME).err
    finally:
        moving.kill()
        moving.wait()
    started: list[tuple[str, ...]] = [
        ("start-vm", "web", *ACME),
        ("resume-vm", "web", *ACME),
        CREATE,
        ("restart-vm", "web", *ACME),
    ]
    for command in started:
        refused = operator.is_refused(*command)
        assert f"was moved live from {source} to {target}, and that did not end" in refused["message"], command
        assert "vgpuctl repair" in refused["hint"]
    unfinished = f"its live move to {target} has not ended"
    for check in (("move-vm", "web", *ACME, "--check"), ("explain-vm", "web", *ACME, "--move")):
        assert limits(*check) == {("blocked", "unfinished", unfinished)}
    impatient = Operator(operator.home, operator.inventory, operator.database, IMPATIENT)
    lab.faults.begin(target, "network", folder=fleet)
    try:
        for change in (MOVE, ("resize-vm", "web", *ACME, "--memory", "128MiB", "--restart")):
            message = impatient.is_refused(*change)["message"]
            assert message.startswith(f"acme/web: {unfinished}, which comes first: ") and target in message, change
        for emptying in (
            ("drain-host", source, "--reason", "x", "--plan"),
            ("quarantine-gpu", source, "0000:41:00.0", "--reason", "hot", "--evacuate", "--yes"),
        ):
            rows = impatient.ends(10, *emptying)["vms"]
            assert next(one for one in rows if one["subject"] == "acme/web")["reason"].startswith(unfinished), emptying
    finally:
        lab.faults.clear(target, folder=fleet)
    operator.does("unquarantine-gpu", source, "0000:41:00.0", "--reason", "cool")
    operator.does("repair")
    operator.does(*DELETE)


_LATER = pytest.mark.long(
    "tests/e2e/vm/test_live_move_cut_short.py::test_an_interrupt_after_the_vm_is_there_rolls_nothing_back"
)


@pytest.mark.parametrize("is_later", [False, pytest.param(True, marks=_LATER)])
def test_an_interrupt_after_the_vm_is_there_rolls_nothing_back(operator: Operator, *, is_later: bool) -> None:
    """Without a GPU every inverse would work, and the store would have it where it is not."""
    operator.does("create-vm", "web", *ACME, *SEEDED)
    point = str(side_effects(operator, *MOVE).index("run") + 2) if is_later else "run"
    interrupted = operator.run(f"int:{point}", *MOVE, program=KILLED_RUN)
    assert "rolled back completely" not in interrupted.err, interrupted.err
    operator.does("repair")
    (listed,) = operator.json("list-vms", "--refresh")
    running = [name for name in HOSTS if domains_on(operator.inventory, name)]
    assert (listed["observed"], [listed["vm"]["host"]]) == ("running", running), interrupted.err
    operator.does(*DELETE)


def test_a_vm_that_an_older_store_has_elsewhere_is_not_started_twice(operator: Operator, tmp_path: Path) -> None:
    """No look at the hosts has seen it where it runs: its own host has no definition of it, so all are asked."""
    operator.does("create-vm", "web", *ACME, *SEEDED)
    older, newer = tmp_path / "older.db", tmp_path / "newer.db"
    store = Path(operator.database.removeprefix("sqlite:///"))
    _copy_store(store, older)
    moved = operator.json(*MOVE)
    _copy_store(store, newer)
    _copy_store(older, store)
    operator.does("repair")
    refused = operator.is_refused("start-vm", "web", *ACME)
    assert f"would run twice: the store has it on {moved['from']}, and on {moved['to']} domain" in refused["message"]
    assert "reconcile-store --begin" in refused["hint"]
    _copy_store(newer, store)
    operator.does(*DELETE)


@pytest.mark.long(
    "tests/e2e/vm/test_live_move_cut_short.py::test_a_vm_that_an_older_store_has_elsewhere_is_not_started_twice",
)
def test_a_restart_that_an_older_store_has_cut_short_does_not_start_a_vm_twice(
    operator: Operator, tmp_path: Path
) -> None:
    operator.does("create-vm", "web", *ACME, *SEEDED)
    kill_after(operator, "shutdown", "restart-vm", "web", *ACME, "--timeout", "0")
    older, newer = tmp_path / "older.db", tmp_path / "newer.db"
    store = Path(operator.database.removeprefix("sqlite:///"))
    _copy_store(store, older)
    operator.does("repair")
    moved = operator.json(*MOVE)
    _copy_store(store, newer)
    _copy_store(older, store)
    repaired = operator.run("repair")
    assert f"failed: acme/web would run twice: the store has it on {moved['from']}, and on" in repaired.out
    assert "would run twice" in operator.is_refused("start-vm", "web", *ACME)["message"]
    assert [name for name in HOSTS if domains_on(operator.inventory, name)] == [moved["to"]]
    _copy_store(newer, store)
    operator.does(*DELETE)


@pytest.mark.long(
    "tests/integration/store/test_strays.py::test_a_vm_whose_domain_is_gone_does_not_start_while_any_host_is_silent",
    "tests/integration/store/test_strays.py::test_a_vm_that_a_cold_move_brought_starts_though_hosts_are_silent",
)
def test_a_vm_whose_domain_is_gone_does_not_start_while_a_host_is_silent_and_one_that_moved_cold_does(
    operator: Operator, fleet: lab.LabFolder, tmp_path: Path
) -> None:
    """It runs on a host that answers nothing, which the store of before its move does not know."""
    (made,) = operator.json("create-vm", "web", *ACME, *SEEDED)
    first = made["vm"]["host"]
    older, newer = tmp_path / "older.db", tmp_path / "newer.db"
    store = Path(operator.database.removeprefix("sqlite:///"))
    _copy_store(store, older)
    there = operator.json(*MOVE)["to"]
    _copy_store(store, newer)
    _copy_store(older, store)
    operator.does("repair")
    impatient = Operator(operator.home, operator.inventory, operator.database, IMPATIENT)
    lab.faults.begin(there, "network", folder=fleet)
    refused = impatient.is_refused("start-vm", "web", *ACME)
    lab.faults.clear(there, folder=fleet)
    assert f"acme/web may run on {there}, which does not answer: {first} has no domain of it" in refused["message"]
    assert f"vgpuctl evacuate-host {there}" in refused["hint"]
    _copy_store(newer, store)

    operator.does("stop-vm", "web", *ACME, "--timeout", "0")
    operator.does("move-vm", "web", *ACME, "--to", first)
    operator.does("rename-vm", "web", "front", *ACME)
    lab.faults.begin(there, "network", folder=fleet)
    said = impatient.does("start-vm", "front", *ACME).err
    lab.faults.clear(there, folder=fleet)
    assert f"not known whether it runs on {there}" in said
    operator.does("delete-vm", "front", *ACME, "--yes", "--timeout", "0")


def _copy_store(source: Path, target: Path) -> None:
    with contextlib.closing(sqlite3.connect(source)) as here, contextlib.closing(sqlite3.connect(target)) as there:
        here.backup(there)
