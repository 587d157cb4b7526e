# SPDX-License-Identifier: Apache-2.0
"""Preemptions that are killed, that fail on a host, or that run two at once, on simulated hosts."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.kills import kill_after, stop_after
from tests.e2e.operator import Operator
from tests.postgres_fixture import LocalPostgres

SMALL = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")
HALF = ("--gpu", "A40-24Q", *SMALL)
LOW = ("--tenant", "acme", "--priority", "low")
URGENT = ("create-vm", "urgent", "--tenant", "umbrella", "--priority", "high", *HALF)
AT_ONCE = ("--preempt", "--grace", "0", "--shutdown-timeout", "0")
FIX = ("repair", "--shutdown-timeout", "0")
CONTROLLER = ("controller", "--once", "--shutdown-timeout", "0")


def _prepare(operator: Operator) -> Operator:
    for tenant in ("acme", "umbrella"):
        operator.does("create-tenant", tenant)
    operator.does("list-gpus", "--refresh")
    return operator


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Operator:
    return _prepare(fleet_operator)


@pytest.fixture(autouse=True)
def nothing_is_left(operator: Operator, fleet: lab.LabFolder) -> Iterator[None]:
    yield
    for name in lab.simulated.names(folder=fleet):
        lab.faults.clear(name, folder=fleet)
    _clear(operator)


def _clear(operator: Operator) -> None:
    for vm in operator.json("list-vms"):
        name, tenant = vm["vm"]["request"]["name"], vm["vm"]["request"]["tenant"]
        operator.does("delete-vm", name, "--tenant", tenant, "--yes", "--timeout", "0")


def _states(operator: Operator) -> dict[str, str]:
    return {one["vm"]["request"]["name"]: one["vm"]["state"] for one in operator.json("list-vms")}


def _create_gang(operator: Operator, folder: Path, action: str) -> None:
    """VMs `near` on sim-001 and `west` on sim-003, and one that fills the rest of sim-001."""
    gang = folder / "gang.yml"
    shape = f"memory: 96MiB, vcpus: 1, network: null, priority: low, preemptible: {action}"
    gang.write_text(
        f"vms:\n- {{name: near, gpus: [A40-24Q], host: sim-001, {shape}}}\n"
        f"- {{name: west, gpus: [passthrough], host: sim-003, {shape}}}\n"
    )
    operator.does("create-vm", "-f", str(gang), "--tenant", "acme", "--gang")
    operator.does("create-vm", "firm", *LOW, *HALF, "--host", "sim-001")


def _kill_in_the_middle(operator: Operator) -> None:
    """Kill a run right after it has asked the first VM of the gang to shut down."""
    kill_after(operator, "shutdown", *URGENT, "--host", "sim-001", *AT_ONCE)
    decided = [one["vm"] for one in operator.json("list-vms") if one["vm"]["notice"] is not None]
    assert [one["notice"]["is_final"] for one in decided] == [True, True]
    assert _states(operator)["west"] == "running"


@contextmanager
def _standing_still(operator: Operator, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A run that has shut down its first victim, and goes on when it gets SIGCONT."""
    with stop_after(operator, "shutdown", *arguments) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)


def _go_on(process: "subprocess.Popen[str]") -> str:
    process.send_signal(signal.SIGCONT)
    _out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return err


def test_a_victim_that_its_owner_is_stopping_is_waited_for(operator: Operator) -> None:
    operator.does("create-vm", "mine", *LOW, *HALF, "--host", "sim-001", "--preemptible", "stop")
    operator.does("create-vm", "firm", *LOW, *HALF, "--host", "sim-001")
    stop = ("stop-vm", "mine", "--tenant", "acme", "--hold", "release", "--timeout", "0")
    preempt = ("--preempt", "--grace", "0", "--shutdown-timeout", "120")
    with (
        _standing_still(operator, *stop) as stopping,
        operator.start(*URGENT, "--host", "sim-001", *preempt) as urgent,
    ):
        assert urgent.stderr is not None
        while "placing again" not in (line := urgent.stderr.readline()):
            assert line, "it gave up"
        _go_on(stopping)
        _out, err = urgent.communicate(timeout=120)
        assert urgent.returncode == 0, err
    assert _states(operator) == {"mine": "stopped", "firm": "running", "urgent": "running"}


def test_a_suspension_that_was_killed_is_finished_with_its_state(operator: Operator) -> None:
    operator.does("create-vm", "mine", *LOW, *HALF, "--host", "sim-001", "--preemptible", "suspend")
    operator.does("create-vm", "firm", *LOW, *HALF, "--host", "sim-001")
    kill_after(operator, "save", *URGENT, "--host", "sim-001", *AT_ONCE)
    operator.does(*FIX)
    (mine,) = [one for one in operator.json("list-vms") if one["vm"]["request"]["name"] == "mine"]
    assert (mine["vm"]["problem"], mine["leases"], mine["vm"]["notice"]) == ("is suspended to disk", [], None)
    assert "goes on from its saved state" in operator.does("start-vm", "mine", "--tenant", "acme").err


_STOPPED = pytest.mark.long(
    "tests/e2e/vm/test_preemption_cut_short.py::test_a_gang_whose_preemption_was_killed_is_stopped_whole"
)


@pytest.mark.parametrize("action", [pytest.param("stop", marks=_STOPPED), "requeue"])
def test_a_gang_whose_preemption_was_killed_is_stopped_whole(action: str, operator: Operator, tmp_path: Path) -> None:
    _create_gang(operator, tmp_path, action)
    _kill_in_the_middle(operator)
    planned = operator.json("repair", "--dry-run")
    assert ("acme/west", "would be finished") in {(one["subject"], one["outcome"]) for one in planned}
    repaired = operator.json(*FIX)
    assert {(one["subject"], one["found"], one["outcome"]) for one in repaired} == {
        (f"acme/{name}", "its preemption by umbrella/urgent did not end", "finished") for name in ("near", "west")
    }
    assert _states(operator) == {"near": "stopped", "west": "stopped", "firm": "running"}
    assert {one["vm"]["notice"] for one in operator.json("list-vms")} == {None}
    assert operator.json(*FIX) == []
    waiting = [{vm["name"] for vm in _requests(one["entry"])} for one in operator.json("list-queue")["queue"]]
    assert waiting == ([{"near", "west"}] if action == "requeue" else [])
    operator.does(*CONTROLLER)
    again = "running" if action == "requeue" else "stopped"
    assert _states(operator) == {"near": again, "west": again, "firm": "running"}


def _requests(entry: dict[str, Any]) -> list[dict[str, Any]]:
    return [entry["request"], *entry["others"]]


@pytest.mark.long(
    "tests/e2e/vm/test_preemption_cut_short.py"
    "::test_a_gang_with_a_host_that_fails_meanwhile_is_stopped_when_it_answers_again"
)
def test_the_next_round_of_the_controller_finishes_a_killed_preemption(operator: Operator, tmp_path: Path) -> None:
    _create_gang(operator, tmp_path, "stop")
    _kill_in_the_middle(operator)
    said = operator.does(*CONTROLLER).err
    assert "acme/west: repaired: stopped as decided" in said
    assert _states(operator) == {"near": "stopped", "west": "stopped", "firm": "running"}
    assert operator.json(*FIX) == []


def test_a_gang_with_a_host_that_fails_meanwhile_is_stopped_when_it_answers_again(
    operator: Operator, fleet: lab.LabFolder, tmp_path: Path
) -> None:
    _create_gang(operator, tmp_path, "requeue")
    with _standing_still(operator, *URGENT, "--host", "sim-001", *AT_ONCE) as process:
        lab.faults.begin("sim-003", "libvirtd", folder=fleet)
        err = _go_on(process)
    assert "acme/west: `vgpuctl repair` or the controller stops it as soon as sim-003 answers" in err
    assert _states(operator) == {"near": "stopped", "west": "running", "firm": "running", "urgent": "running"}, err
    operator.does("delete-vm", "urgent", "--tenant", "umbrella", "--yes", "--timeout", "0")
    refused = operator.is_refused("start-vm", "near", "--tenant", "acme")
    assert operator.json("list-queue")["queue"][0]["entry"]["kind"] == "start-gang"
    assert "acme/west on sim-003 is being preempted, and acme/near is of its gang" in refused["message"]
    assert "failed" in operator.does(*CONTROLLER).err
    assert _states(operator) == {"near": "stopped", "west": "running", "firm": "running"}, "no half of it starts"
    lab.faults.clear("sim-003", folder=fleet)
    operator.does(*CONTROLLER)
    assert _states(operator) == {"near": "running", "west": "running", "firm": "running"}
    assert operator.json(*FIX) == []


@pytest.mark.long("tests/e2e/vm/test_preemption_cut_short.py::test_a_gang_with_a_member_on_a_failed_host_is_no_victim")
def test_a_vm_whose_victims_host_fails_goes_to_another(operator: Operator, fleet: lab.LabFolder) -> None:
    for host in ("sim-001", "sim-002"):
        for number in (1, 2):
            operator.does("create-vm", f"{host}-{number}", *LOW, "--preemptible", "stop", *HALF, "--host", host)
    (planned,) = operator.json(*URGENT, "--preempt", "--dry-run")
    first = planned["vm"]["host"]
    lab.faults.begin(first, "libvirtd", folder=fleet)
    done = operator.does(*URGENT, *AT_ONCE)
    assert f"{first} failed and is left out: " in done.err
    lab.faults.clear(first, folder=fleet)
    vms = {one["vm"]["request"]["name"]: one["vm"] for one in operator.json("list-vms")}
    assert (vms["urgent"]["state"], vms["urgent"]["host"]) == ("running", *({"sim-001", "sim-002"} - {first}))
    assert {vm["state"] for vm in vms.values() if vm["host"] == first} == {"running"}
    assert {vm["notice"] for vm in vms.values()} == {None}
    assert operator.json(*FIX) == []


def test_a_gang_with_a_member_on_a_failed_host_is_no_victim(
    operator: Operator, fleet: lab.LabFolder, tmp_path: Path
) -> None:
    _create_gang(operator, tmp_path, "stop")
    # Their size keeps a half away from the GPU, so both would have to go, and the gang of two is less important.
    for number in (1, 2):
        later = ("--preemptible", "stop", "--priority", "200", "--gpu", "A40-16Q", *SMALL, "--host", "sim-002")
        operator.does("create-vm", f"other-{number}", "--tenant", "acme", *later)
    (planned,) = operator.json(*URGENT, "--preempt", "--dry-run")
    assert {one["vm"] for one in planned["victims"]} == {"acme/near", "acme/west"}
    lab.faults.begin("sim-003", "libvirtd", folder=fleet)
    done = operator.does(*URGENT, *AT_ONCE)
    states = _states(operator)
    assert (states["urgent"], states["near"], states["west"]) == ("running",) * 3
    assert (states["other-1"], states["other-2"]) == ("stopped",) * 2
    assert "sim-003 failed and is left out: " in done.err
    lab.faults.clear("sim-003", folder=fleet)


@pytest.mark.long("tests/e2e/vm/test_preemption_cut_short.py::test_a_gang_with_a_member_on_a_failed_host_is_no_victim")
def test_a_started_vm_spares_a_gang_with_a_member_on_a_failed_host(
    operator: Operator, fleet: lab.LabFolder, tmp_path: Path
) -> None:
    operator.does("create-vm", "vip", "--tenant", "umbrella", "--priority", "high", *HALF, "--host", "sim-001")
    operator.does("stop-vm", "vip", "--tenant", "umbrella", "--hold", "release", "--timeout", "0")
    _create_gang(operator, tmp_path, "stop")
    operator.does("delete-vm", "firm", "--tenant", "acme", "--yes", "--timeout", "0")
    later = ("--preemptible", "stop", "--priority", "200", *HALF, "--host", "sim-001")
    operator.does("create-vm", "other", "--tenant", "acme", *later)
    lab.faults.begin("sim-003", "libvirtd", folder=fleet)
    operator.does("start-vm", "vip", "--tenant", "umbrella", *AT_ONCE)
    lab.faults.clear("sim-003", folder=fleet)
    assert _states(operator) == {"near": "running", "west": "running", "other": "stopped", "vip": "running"}


_OTHER_STORE = pytest.mark.long(
    "tests/e2e/vm/test_preemption_cut_short.py::test_two_runs_at_once_do_not_reclaim_more_than_the_guarantee",
    "tests/integration/store/test_store_reclaims.py::test_many_runs_at_once_reclaim_no_more_than_the_guarantee",
)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=_OTHER_STORE)])
def test_two_runs_at_once_do_not_reclaim_more_than_the_guarantee(
    kind: str, fleet_operator: Operator, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "sqlite":
        _reclaim_twice(_prepare(replace(fleet_operator, database=f"sqlite:///{tmp_path}/store.db")))
        return
    postgres: LocalPostgres = request.getfixturevalue("postgres")
    with postgres.create_database() as database:
        _reclaim_twice(_prepare(replace(fleet_operator, database=database)))


def _reclaim_twice(operator: Operator) -> None:
    """The second run looks, asks and decides while the first waits for a guest to shut down."""
    operator.does("set-quota", "acme", "--guaranteed", "framebuffer=0", "--reclaim", "stop")
    operator.does("set-quota", "umbrella", "--guaranteed", "framebuffer=24GiB")
    for host in ("sim-001", "sim-002"):
        operator.does("create-vm", f"{host}-1", "--tenant", "acme", "--gpu", "A40-48Q", *SMALL, "--host", host)
    try:
        first = ("create-vm", "first", "--tenant", "umbrella", "--priority", "low", *HALF, "--host", "sim-001")
        second = ("create-vm", "second", "--tenant", "umbrella", "--priority", "low", *HALF, "--host", "sim-002")
        with _standing_still(operator, *first, *AT_ONCE) as process:
            assert operator.is_refused(*second, *AT_ONCE)["reference"] == "no-capacity"
            _go_on(process)
        assert operator.is_refused(*second, *AT_ONCE)["reference"] == "no-capacity"
        assert _states(operator) == {"sim-001-1": "stopped", "sim-002-1": "running", "first": "running"}
        operator.does("set-quota", "umbrella", "--guaranteed", "framebuffer=48GiB")
        operator.does(*second, *AT_ONCE)
        assert operator.json(*FIX) == []
    finally:
        _clear(operator)
