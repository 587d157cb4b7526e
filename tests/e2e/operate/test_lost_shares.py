# SPDX-License-Identifier: Apache-2.0
"""A power cut under stopped VMs that keep their shares, on hosts without the boot unit.

The lease is the promise and stays; every command that looks says that the device is lost, and `repair` or the next
start makes it again, or says why it cannot.
"""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.kills import KILLED_RUN
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import need_simulated, simulated_fleet
from vgpuctl_lab.simulated.layout import simulated_folder
from vgpuctl_lab.simulated.machine.state import MachineFolder, Vgpu

HOST, PROFILES = "sim-001", "0000:41:00.0"
ACME = ("--tenant", "acme")
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")
KEPT = {"on-profiles": "A40-8Q", "on-mdev-vfs": "A40-24Q", "on-mdevs": "T4-4Q"}
WHOLE = {"whole": "passthrough:A40"}
ALL = {*KEPT, *WHOLE}
IMPATIENT = {"VGPUCTL_CONNECT_TIMEOUT": "2", "VGPUCTL_COMMAND_TIMEOUT": "2"}
"""For a host whose network is cut."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lab.LabFolder]:
    home = tmp_path_factory.mktemp("lost-shares")
    with simulated_fleet(home, 1, "a40+a40/mdev-vf+t4+t4+a40/passthrough") as made:
        yield made


@pytest.fixture(scope="module")
def operator(folder: lab.LabFolder) -> Operator:
    """One stopped VM of each kind of share on a host that nothing restores."""
    home = folder.path.parent
    made = Operator(home, simulated_folder(folder).inventory, f"sqlite:///{home}/store.db")
    made.does("create-tenant", "acme")
    made.does("list-gpus", "--refresh")
    for name, gpu in {**KEPT, **WHOLE}.items():
        made.does("create-vm", name, *ACME, "--gpu", gpu, *SIZE)
        stop(made, name)
    return made


@pytest.fixture
def machine(folder: lab.LabFolder, operator: Operator) -> MachineFolder:
    """The host after a power cut, whose VMs are all off."""
    stop(operator, *sorted(ALL))
    lab.simulated.reboot(HOST, folder=folder)
    found = MachineFolder(simulated_folder(folder).host(HOST))
    assert found.state().vgpus == []
    return found


def stop(operator: Operator, *names: str) -> None:
    operator.does("stop-vm", *names, *ACME, "--timeout", "0")


def devices(machine: MachineFolder) -> set[tuple[str, int, str | None]]:
    return {(one.function, one.type_id, one.uuid) for one in machine.state().vgpus}


@contextmanager
def failing(folder: lab.LabFolder, kind: str) -> Iterator[None]:
    lab.faults.begin(HOST, kind, folder=folder)
    try:
        yield
    finally:
        lab.faults.clear(HOST, folder=folder)


def lost(operator: Operator, *options: str) -> set[str]:
    listed = operator.json("list-vms", *options)
    return {one["name"] for one in listed if "lost" in [share["state"] for share in one["shares"]]}


def found(operator: Operator, *options: str) -> dict[str, Any]:
    return {one["subject"].removeprefix("acme/"): one["outcome"] for one in operator.json("repair", *options)}


def events(operator: Operator, kind: str, name: str) -> list[Any]:
    told = operator.json("list-events", "--limit", "1000")
    return [one["after"] for one in told if one["kind"] == kind and one["subject"] == f"acme/{name}"]


def test_a_power_cut_is_told_and_repaired_with_the_same_devices(
    operator: Operator, folder: lab.LabFolder, machine: MachineFolder
) -> None:
    found(operator)
    before = devices(machine)
    assert len(before) == len(KEPT)
    lab.simulated.reboot(HOST, folder=folder)
    listed = operator.does("list-vms", "--refresh")
    assert lost(operator) == set(KEPT)
    assert listed.out.count("; share lost") == len(KEPT)
    assert f"shares are lost on {HOST}, but stay promised: `vgpuctl repair` makes" in listed.err
    assert events(operator, "share-observed", "on-mdevs")[-1] == {"state": "lost"}
    shown = operator.does("show-vm", "on-profiles", *ACME).out
    assert f"lost: not on {HOST} any more" in shown and "`vgpuctl repair` or start-vm makes it again" in shown
    assert operator.is_refused("create-vm", "other", *ACME, "--gpu", "passthrough:A40", *SIZE)["exit_code"] == 5
    assert found(operator, "--dry-run") == dict.fromkeys(KEPT, "would be made again")
    assert devices(machine) == set()
    assert found(operator) == dict.fromkeys(KEPT, "made again")
    assert devices(machine) == before
    assert lost(operator) == set()
    assert found(operator) == {}
    assert operator.json("gc", "--dry-run", "--kind", "vgpu") == []


def test_a_start_says_that_it_makes_the_device_again_and_lists_say_lost_no_more(
    operator: Operator, machine: MachineFolder
) -> None:
    assert lost(operator, "--refresh") == set(KEPT)
    for name in KEPT:
        said = operator.does("start-vm", name, *ACME).err
        assert f"was lost on {HOST}, and is made again" in said
    assert lost(operator) == set()
    assert "lost" not in operator.does("start-vm", "whole", *ACME).err
    assert len(devices(machine)) == len(KEPT)
    assert found(operator) == {}


def test_a_share_that_was_lost_is_no_more_once_its_vm_goes_on(
    operator: Operator, folder: lab.LabFolder, machine: MachineFolder
) -> None:
    operator.does("start-vm", "on-profiles", *ACME)
    operator.does("suspend-vm", "on-profiles", *ACME)
    lab.simulated.reboot(HOST, folder=folder)
    assert "on-profiles" in lost(operator, "--refresh")
    operator.does("resume-vm", "on-profiles", *ACME)
    assert "on-profiles" not in lost(operator)
    assert events(operator, "share-observed", "on-profiles")[-1] == {"state": "held"}


@pytest.mark.long(
    "tests/e2e/host/test_adopt_host.py::test_an_adopted_vm_keeps_its_own_definition_for_life",
    "tests/e2e/operate/test_lost_shares.py::test_a_power_cut_is_told_and_repaired_with_the_same_devices",
)
def test_guests_that_the_power_cut_ended_have_their_shares_after_one_repair(
    operator: Operator, folder: lab.LabFolder, machine: MachineFolder
) -> None:
    operator.does("start-vm", *sorted(ALL), *ACME)
    before = devices(machine)
    lab.simulated.reboot(HOST, folder=folder)
    outcomes = [(one["subject"], one["outcome"]) for one in operator.json("repair")]
    assert len(outcomes) == len(ALL) + len(KEPT)
    assert {name for name, outcome in outcomes if outcome == "made again"} == {f"acme/{name}" for name in KEPT}
    assert devices(machine) == before
    assert found(operator) == {}


@pytest.mark.long(
    "tests/unit/sharing/test_share_on_host.py::test_a_kept_vf_that_carries_the_vgpu_of_somebody_else_serves_nobody",
    "tests/e2e/layout/test_renumbered_types.py::test_a_share_of_another_type_is_never_held_or_healthy",
)
def test_a_vf_that_somebody_else_took_is_named_and_left_alone(operator: Operator, machine: MachineFolder) -> None:
    found(operator)
    (mine,) = [one for one in machine.state().vgpus if one.card == PROFILES]
    with machine.change() as state:
        state.vgpus = [one for one in state.vgpus if one.card != PROFILES]
        state.vgpus.append(Vgpu(PROFILES, mine.function, mine.type_id - 1, 0))
    taken = devices(machine)
    assert lost(operator, "--refresh") == {"on-profiles"}
    reason = f"its VF {mine.function} carries A40-6Q (type {mine.type_id - 1}) now, which is not the VM's"
    done = operator.run("repair", "--json")
    ((row,), code) = json.loads(done.out), done.code
    assert code == 10 and row["host"] == HOST
    assert row["outcome"].startswith("failed: ") and reason in row["outcome"]
    assert "it stays promised" in row["outcome"] and "stop-vm acme/on-profiles --hold release" in row["outcome"]
    assert f"cannot be made again: {reason}" in operator.does("show-vm", "on-profiles", *ACME).out
    refused = operator.is_refused("start-vm", "on-profiles", *ACME)
    assert (refused["reference"], reason in refused["message"]) == ("state", True)
    assert devices(machine) == taken
    with machine.change() as state:
        state.vgpus = [one for one in state.vgpus if one.card != PROFILES]
    assert found(operator) == {"on-profiles": "made again"}


@pytest.mark.long(
    "tests/e2e/host/test_observed_states.py::test_what_could_not_be_asked_is_unknown_and_never_absent",
    "tests/unit/sharing/test_share_on_host.py::test_a_device_is_lost_only_if_it_was_looked_for",
)
def test_of_a_host_without_an_answer_nobody_says_that_a_share_is_lost(
    operator: Operator, folder: lab.LabFolder, machine: MachineFolder
) -> None:
    """The output gives the last known state and its age."""
    assert lost(operator, "--refresh") == set(KEPT)
    with failing(folder, "network"):
        cut = Operator(operator.home, operator.inventory, operator.database, IMPATIENT)
        listed = cut.run("list-vms", "--refresh")
        shown = cut.run("show-vm", "on-mdevs", *ACME).out
    for said in (listed.out, operator.does("list-vms").out):
        assert "share lost" not in said and "(lost)" not in said
        assert re.search(r"T4-4Q \S+ \(unknown since .* UTC, lost \d+s ago\)", said)
    assert "stay promised" not in listed.err
    assert re.search(r"device unknown since .* UTC, lost \d+s ago: its host could not be asked now", shown)
    assert lost(operator, "--refresh") == set(KEPT)


_SECOND_WAY = pytest.mark.long(
    "tests/e2e/operate/test_lost_shares.py::test_a_refusal_of_the_driver_is_told_until_the_share_is_made_again",
    "tests/e2e/operate/test_lost_shares.py::test_a_power_cut_is_told_and_repaired_with_the_same_devices",
)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("repair",), id="repair", marks=_SECOND_WAY),
        pytest.param(("start-vm", "on-profiles", *ACME), id="start-vm"),
    ],
)
def test_a_refusal_of_the_driver_is_told_until_the_share_is_made_again(
    command: tuple[str, ...], operator: Operator, folder: lab.LabFolder, machine: MachineFolder
) -> None:
    with failing(folder, "refuse"):
        assert operator.run(*command).code != 0
    shown = operator.does("show-vm", "on-profiles", *ACME).out
    assert "tries to make it again, which failed the last time: " in shown and "0x1a" in shown.lower()
    assert operator.json("show-vm", "on-profiles", *ACME)["leases"][0]["problem"]
    assert found(operator)["on-profiles"] == "made again"
    assert operator.json("show-vm", "on-profiles", *ACME)["leases"][0]["problem"] is None


def test_a_cordon_does_not_keep_a_share_from_being_made_again(operator: Operator, machine: MachineFolder) -> None:
    operator.does("cordon-host", HOST, "--reason", "a test")
    try:
        assert found(operator) == dict.fromkeys(KEPT, "made again")
    finally:
        operator.does("uncordon-host", HOST)


@pytest.mark.parametrize("is_moved", [False, True], ids=["another type", "another card"])
@pytest.mark.long(
    "tests/unit/sharing/test_share_on_host.py::test_a_mediated_device_is_the_share_only_in_its_place_and_of_its_type",
    "tests/e2e/layout/test_renumbered_types.py::test_a_share_of_another_type_is_never_held_or_healthy",
)
def test_a_mediated_device_with_the_uuid_of_a_share_is_not_yet_the_share(
    is_moved: bool, operator: Operator, machine: MachineFolder
) -> None:
    found(operator)
    (mine,) = [one for one in machine.state().vgpus if one.card == one.function and one.uuid]
    (other,) = [one.address for one in machine.shape.cards if one.interface == "mdev" and one.address != mine.card]
    swapped = replace(mine, card=other, function=other) if is_moved else replace(mine, type_id=mine.type_id - 1)
    put(machine, mine, swapped)
    there = devices(machine)
    assert lost(operator, "--refresh") == {"on-mdevs"}
    said = f"its mdev {mine.uuid} is on {other} now" if is_moved else f"its mdev {mine.uuid} carries"
    done = operator.run("repair")
    assert done.code == 10 and said in done.out
    refused = operator.is_refused("start-vm", "on-mdevs", *ACME)
    assert refused["reference"] == "state" and said in refused["message"]
    assert said in operator.does("show-vm", "on-mdevs", *ACME).out
    assert devices(machine) == there
    put(machine, swapped, None)
    assert found(operator) == {"on-mdevs": "made again"}


def put(machine: MachineFolder, before: Vgpu, after: Vgpu | None) -> None:
    with machine.change() as state:
        state.vgpus = [*(one for one in state.vgpus if one.uuid != before.uuid), *([after] if after else [])]


@pytest.mark.parametrize("point", [1, 2, 4])
@pytest.mark.long(
    "tests/e2e/operate/test_lost_shares.py::test_a_power_cut_is_told_and_repaired_with_the_same_devices",
    "tests/unit/usecases/operate/test_bring_back.py::"
    "test_a_cut_while_shares_are_made_again_leaves_the_boot_to_the_next_look",
)
def test_a_network_cut_during_repair_is_found_by_the_next(
    point: int, operator: Operator, folder: lab.LabFolder, machine: MachineFolder
) -> None:
    variables = {"VGPUCTL_TESTS_LAB": str(folder.path), "VGPUCTL_TESTS_HOSTS": HOST, **IMPATIENT}
    cut = Operator(operator.home, operator.inventory, operator.database, variables)
    cut.run(f"network:{point}", "repair", program=KILLED_RUN)
    lab.faults.clear(HOST, folder=folder)
    found(operator)
    assert len(devices(machine)) == len(KEPT)
    assert lost(operator, "--refresh") == set()
    assert found(operator) == {}


MIG: dict[str, Any] = {
    "match": "all",
    "kind": "mig-vgpu",
    "geometry": {"3g.40gb": 1, "2g.20gb": 2},
    "shares": {"H100-2-20C": 1},
}


@pytest.fixture
def layouts(tmp_path: Path) -> Iterator[LayoutFleet]:
    need_simulated()
    fleet = layout_fleet(tmp_path, 1, "h100-pcie")
    yield fleet
    lab.simulated.down(folder=fleet.folder)


@pytest.mark.long(
    "tests/unit/sharing/test_share_on_host.py::test_a_kept_share_of_a_mig_instance_waits_for_it",
    "tests/unit/planner/layout/test_plan_host.py::"
    "test_shares_that_a_boot_took_are_not_in_the_way_of_the_layout_that_serves_them",
    "tests/e2e/operate/test_watched_layout.py::test_after_a_reboot_layout_then_share_then_vm_come_back",
)
def test_a_share_in_a_mig_instance_waits_for_the_layout_which_it_does_not_stop(layouts: LayoutFleet) -> None:
    """The layout's own share does not get the VF that is promised, though the card has it first."""
    operator, machine = layouts.operator, layouts.machine(HOST)
    without_shares = {name: value for name, value in MIG.items() if name != "shares"}
    layouts.declare(sim_001={"gpus": [without_shares]})
    operator.does("apply-hosts", "--no-boot")
    operator.does("create-tenant", "acme")
    operator.does("create-vm", "web", *ACME, "--gpu", "H100-3-40C", *SIZE)
    stop(operator, "web")
    shutil.rmtree(machine.root / "etc/vgpuctl", ignore_errors=True)
    (before,) = devices(machine)
    lab.simulated.reboot(HOST, folder=layouts.folder)
    done = operator.run("repair")
    assert done.code == 10 and "has no MIG instance 3g.40gb" in done.out and "`vgpuctl apply-hosts`" in done.out
    assert layouts.vfs(HOST) == {}, "VFs would be in the way of the layout"
    assert "has no MIG instance 3g.40gb" in operator.is_refused("start-vm", "web", *ACME)["message"]
    layouts.declare(sim_001={"gpus": [MIG]})
    operator.does("apply-hosts", "--no-boot")
    assert before not in devices(machine)
    assert found(operator) == {"web": "made again"}
    assert before in devices(machine) and len(devices(machine)) == 2
    operator.does("start-vm", "web", *ACME)


@pytest.mark.long(
    "tests/unit/planner/layout/test_plan_host.py::"
    "test_shares_that_a_boot_took_are_not_in_the_way_of_the_layout_that_serves_them",
    "tests/e2e/operate/test_watched_layout.py::test_after_a_reboot_layout_then_share_then_vm_come_back",
)
def test_the_layout_goes_first_or_last(layouts: LayoutFleet) -> None:
    """Without the unit `apply-hosts` and `repair` are both right, in any order."""
    operator, machine = layouts.operator, layouts.machine(HOST)
    layouts.declare(sim_001={"gpus": [{"match": "all", "kind": "vgpu"}]})
    operator.does("apply-hosts", "--no-boot")
    operator.does("create-tenant", "acme")
    operator.does("create-vm", "web", *ACME, "--gpu", "H100-20C", *SIZE)
    stop(operator, "web")
    before = devices(machine)
    for first, second in ((("apply-hosts", "--no-boot"), ("repair",)), (("repair",), ("apply-hosts", "--no-boot"))):
        lab.simulated.reboot(HOST, folder=layouts.folder)
        operator.does(*first)
        operator.does(*second)
        assert devices(machine) == before
