# SPDX-License-Identifier: Apache-2.0
"""move-vm --check and explain-vm --move say how a VM can go to each other host, and write nothing."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import vgpuctl_lab as lab
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator, forgetful
from tests.e2e.small_vms import ACME, SEEDED, operator, trust_network
from tests.e2e.witness import FleetWitness
from tests.lab.simulated_fixtures import machine
from vgpuctl.guests.facts import move_facts
from vgpuctl_lab.simulated.machine import shape as shapes
from vgpuctl_lab.simulated.machine.nvml import CODES

__all__ = ["operator"]

FLEET = (3, "a40+t4")
"""Three equal hosts with an A40 and a T4 each."""
WITHOUT_WAITING = ("--yes", "--timeout", "0")


@pytest.fixture(autouse=True, scope="module")
def trusted(operator: Operator) -> None:
    """The hosts' inventory trusts their network with moves."""
    trust_network(operator)


@pytest.fixture
def web(operator: Operator) -> Iterator[str]:
    """The host of a running VM with a vGPU."""
    (made,) = operator.json("create-vm", "web", *ACME, "--gpu", "A40-8Q", *SEEDED)
    yield made["vm"]["host"]
    operator.does("delete-vm", "web", *ACME, *WITHOUT_WAITING)


def _verdicts(found: dict[str, Any]) -> dict[str, tuple[str, list[str]]]:
    """By host the kind and the codes of the limits."""
    return {
        one["host"]: (one["verdict"]["kind"], [limit["code"] for limit in one["verdict"]["limits"]])
        for one in found["verdicts"]
    }


def test_a_running_vm_can_go_live_to_equal_hosts(operator: Operator, fleet_witness: FleetWitness, web: str) -> None:
    before, events = fleet_witness.state(), len(operator.json("list-events"))
    others = sorted({"sim-001", "sim-002", "sim-003"} - {web})
    said = operator.does("move-vm", "web", *ACME, "--check")
    assert [line.split()[:2] for line in said.out.splitlines()[2:]] == [[one, "live"] for one in others]
    assert "nothing forbids a live move" in said.err
    found = operator.json("move-vm", "web", *ACME, "--check")
    assert (found["vm"], found["host"], _verdicts(found)) == ("acme/web", web, dict.fromkeys(others, ("live", [])))
    assert {one["verdict"]["state_bytes"] for one in found["verdicts"]} == {8 << 30}
    assert operator.json("explain-vm", "web", *ACME, "--move") == [found]
    assert fleet_witness.state() == before and len(operator.json("list-events")) == events


def test_one_host_can_be_asked_about_for_several_vms(operator: Operator, web: str) -> None:
    (other,) = operator.json("create-vm", "plain", *ACME, "--host", web, *SEEDED)
    target = next(one for one in ("sim-001", "sim-002") if one != web)
    found = operator.json("move-vm", "web", "plain", *ACME, "--check", "--to", target)
    assert {one["vm"]: _verdicts(one) for one in found} == {
        "acme/web": {target: ("live", [])},
        "acme/plain": {target: ("pinned", ["declared-host"])},
    }
    operator.does("delete-vm", other["vm"]["request"]["name"], *ACME, *WITHOUT_WAITING)


@pytest.mark.long(
    "tests/unit/planner/moves/test_judge_move.py::test_a_vm_that_is_off_is_not_asked_about_its_running_domain",
)
def test_a_vm_that_is_off_goes_cold(operator: Operator, web: str) -> None:
    operator.does("stop-vm", "web", *ACME, "--force")
    found = _verdicts(operator.json("move-vm", "web", *ACME, "--check"))
    assert found == dict.fromkeys({"sim-001", "sim-002", "sim-003"} - {web}, ("cold", ["vm-is-off"]))


def test_a_closed_host_blocks_and_comes_last(operator: Operator, web: str) -> None:
    first, second = sorted({"sim-001", "sim-002", "sim-003"} - {web})
    operator.does("cordon-host", first, "--reason", "new fans")
    try:
        said = operator.does("move-vm", "web", *ACME, "--check")
        assert [line.split()[:2] for line in said.out.splitlines()[2:4]] == [[second, "live"], [first, "blocked"]]
        assert f"vgpuctl uncordon-host {first}" in said.out and "not looked at" not in said.out
        operator.does("cordon-host", second, "--reason", "new fans")
        for more in ((), ("--dry-run",)):
            refused = operator.run("move-vm", "web", *ACME, *more)
            assert (refused.code, "new fans" in refused.err, "moves cold" in refused.err) == (5, True, False)
    finally:
        operator.does("uncordon-host", first)
        operator.run("uncordon-host", second)


def test_a_named_host_without_room_is_read_again(operator: Operator, web: str, tmp_path: Path) -> None:
    """Somebody else's vGPU of another size closed its card when it was read last, and is gone."""
    first = min({"sim-001", "sim-002", "sim-003"} - {web})
    other = forgetful(operator, tmp_path, "acme")
    other.does("create-vm", "foreign", *ACME, "--limit", first, "--gpu", "A40-4Q", *SEEDED)
    operator.does("list-gpus", "--refresh")
    check = ("move-vm", "web", *ACME, "--check", "--to", first)
    kind, codes = _verdicts(operator.json(*check))[first]
    assert (kind, codes[0]) == ("blocked", "no-equal-share")
    other.does("delete-vm", "foreign", *ACME, *WITHOUT_WAITING)
    assert _verdicts(operator.json(*check)) == {first: ("live", [])}


@pytest.mark.long("tests/unit/planner/moves/test_judge_move.py::test_a_rule_forbids_what_it_says")
def test_an_older_vgpu_manager_takes_the_vm_cold(operator: Operator, fleet: lab.LabFolder, web: str) -> None:
    first, second = sorted({"sim-001", "sim-002", "sim-003"} - {web})
    older = machine(fleet, first)
    before = older.shape
    shapes.write(replace(before, nvidia_driver="535.161.05"), older.folder / "machine.json")
    try:
        found = operator.json("move-vm", "web", *ACME, "--check")
    finally:
        shapes.write(before, older.folder / "machine.json")
    assert _verdicts(found) == {second: ("live", []), first: ("cold", ["nvml-host-driver", "vgpu-version"])}


@pytest.mark.long(
    "tests/unit/planner/moves/test_judge_move.py::test_a_rule_forbids_what_it_says",
    "tests/unit/planner/moves/test_judge_move.py::test_each_thing_that_a_live_move_needs_is_missed",
)
def test_a_kernel_that_cannot_log_dma_keeps_its_vms_from_moving_live(
    operator: Operator, fleet: lab.LabFolder, web: str
) -> None:
    source = machine(fleet, web)
    path = f"/boot/config-{source.shape.kernel}"
    for text, code in (("CONFIG_VFIO=m", "dma-log"), (None, "not-looked-at")):
        with source.change() as state:
            state.files[path] = text
        found = operator.json("move-vm", "web", *ACME, "--check")
        assert set(map(str, _verdicts(found).values())) == {str(("cold", [code]))}
        assert web in str(operator.is_refused("move-vm", "web", *ACME, "--live-only")["context"])
    with source.change() as state:
        del state.files[path]


def test_a_host_that_does_not_answer_is_no_place_and_keeps_no_other_from_an_answer(
    operator: Operator, tmp_path: Path, web: str
) -> None:
    more = tmp_path / "more.yml"
    more.write_text("all: {hosts: {dead: {ansible_host: 127.0.0.1, ansible_port: 1}}}\n")
    found = operator.json("move-vm", "web", *ACME, "--check", "-i", str(operator.inventory), "-i", str(more))
    verdicts = _verdicts(found)
    assert [kind for kind, _codes in verdicts.values()] == ["live", "live", "blocked"]
    assert verdicts["dead"][1][0] == "host-silent"


@pytest.mark.long("tests/unit/planner/moves/test_judge_move.py::test_without_the_word_of_nvml_a_vm_goes_cold")
def test_an_nvml_that_does_not_compare_leaves_a_cold_move(operator: Operator, fleet: lab.LabFolder, web: str) -> None:
    codes = machine(fleet, web).root / CODES.lstrip("/")
    codes.parent.mkdir(parents=True, exist_ok=True)
    codes.write_text("nvmlGetVgpuCompatibility 999\n")
    try:
        found = operator.json("move-vm", "web", *ACME, "--check")
        assert set(map(str, _verdicts(found).values())) == {str(("cold", ["not-looked-at"]))}
        assert all("NVML's comparison" in one["verdict"]["not_looked_at"][0] for one in found["verdicts"])
    finally:
        codes.unlink()


@pytest.mark.long("tests/unit/guests/test_move_facts.py::test_the_rate_at_which_a_guest_writes_its_memory_is_measured")
def test_how_fast_the_guest_writes_its_memory_is_measured(operator: Operator, web: str) -> None:
    with libvirt_of(operator.inventory, web) as there:
        uuid = there.uuid_of("acme.web")
        assert uuid is not None and move_facts.read_dirty_rate(there, uuid) == 1 << 20


def test_only_a_vm_that_exists_is_explained_as_one_that_moves(operator: Operator) -> None:
    refused = operator.run("explain-vm", "other", *ACME, "--gpu", "A40-8Q", "--move")
    assert refused.code == 2 and "--move explains a VM that exists" in refused.err


@pytest.mark.long(
    "tests/unit/planner/moves/test_judge_move.py::test_a_whole_card_goes_cold_where_an_equal_one_is_free",
    "tests/unit/planner/moves/test_judge_move.py::test_a_rule_forbids_what_it_says",
)
def test_a_whole_card_goes_cold_to_an_equal_one_and_is_bound_without(operator: Operator) -> None:
    (made,) = operator.json("create-vm", "whole", *ACME, "--gpu", "passthrough:T4", *SEEDED)
    others = sorted({"sim-001", "sim-002", "sim-003"} - {made["vm"]["host"]})
    assert _verdicts(operator.json("move-vm", "whole", *ACME, "--check")) == dict.fromkeys(
        others, ("cold", ["passthrough"])
    )
    for number, host in enumerate(others):
        operator.does("create-vm", f"part-{number}", *ACME, "--gpu", "T4-8Q", "--host", host, *SEEDED)
    found = operator.json("explain-vm", "whole", *ACME, "--move")
    for kind, codes in _verdicts(found[0]).values():
        assert (kind, codes[0]) == ("pinned", "no-equal-card")
    operator.does("delete-vm", "whole", "part-0", "part-1", *ACME, *WITHOUT_WAITING)


def test_two_hosts_with_one_address_for_moves_take_no_vm_live(operator: Operator, web: str) -> None:
    first, second = sorted({"sim-001", "sim-002", "sim-003"} - {web})
    folder = operator.inventory.parent / "host_vars"
    folder.mkdir()
    for name in (first, second):
        link = {"network": "trusted", "address": "10.0.8.1"}
        (folder / f"{name}.yml").write_text(yaml.safe_dump({"vgpu_moves": link}))
    try:
        found = operator.json("move-vm", "web", *ACME, "--check")
        assert _verdicts(found) == dict.fromkeys((first, second), ("cold", ["move-network"]))
        limit = found["verdicts"][0]["verdict"]["limits"][0]
        assert f"hosts {first} and {second} have the same address for moves" in limit["limit"]
        assert "an `address` of each that no other host has" in limit["remedy"]
        assert f"{first} and {second}" in str(operator.is_refused("move-vm", "web", *ACME, "--live-only")["context"])
        checked = operator.run("check-hosts")
        assert f"hosts {first} and {second} have the same address" in checked.err
        assert f"hosts {second} and {first} have the same address" in checked.err
    finally:
        shutil.rmtree(folder)


def test_its_own_host_is_no_host_to_move_to(operator: Operator, web: str) -> None:
    assert operator.json("move-vm", "web", *ACME, "--check", "--to", web)["verdicts"] == []
    assert operator.does("move-vm", "web", *ACME, "--check", "--to", web).out == f"acme/web is on {web} already\n"
    refused = operator.run("move-vm", "web", *ACME, "--check", "--to", "gone")
    assert refused.code != 0 and "gone" in refused.err
