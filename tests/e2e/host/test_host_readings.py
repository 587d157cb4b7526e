# SPDX-License-Identifier: Apache-2.0
"""Readings of simulated hosts: tables and JSON, `inspect-host --readings`, and `lab play` that changes them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import machine

SIZE = ("--tenant", "acme", "--memory", "96MiB", "--vcpus", "2", "--network", "none", "--disk", "64MiB")


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Operator:
    """An operator with a VM on each of two hosts, one with a VF, one with an mdev."""
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("create-vm", "web-1", "--gpu", "A40-8Q", "--host", "sim-001", *SIZE)
    fleet_operator.does("create-vm", "web-2", "--gpu", "A40-8Q", "--host", "sim-002", *SIZE)
    return fleet_operator


def test_the_tables_say_what_the_facts_say(operator: Operator) -> None:
    facts = operator.json("inspect-host", "sim-001")
    shown, gpus = operator.does("inspect-host", "sim-001").out, operator.does("list-gpus", "--refresh").out
    for gpu in facts["gpus"]:
        assert gpu["address"] in shown
        assert gpu["address"] in gpus
    assert "A40-8Q" in operator.does("list-profiles", "--creatable").out
    assert facts["kernel"] in operator.does("list-hosts").out


def test_one_host_that_does_not_answer_never_hides_the_others(operator: Operator, tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(
        operator.inventory.read_text() + "\ndead: {hosts: {gpu9: {ansible_host: 127.0.0.1, ansible_port: 1}}}\n"
    )
    more = replace(operator, inventory=inventory)
    done = more.run("list-hosts", "--json")
    assert done.code == 10, done.err
    listed = {one["host"]: one for one in json.loads(done.out)}
    assert set(listed) == {"gpu9", "sim-001", "sim-002", "sim-003", "sim-004"}
    assert '"kernel"' in done.out
    assert "gpu9" in done.err
    others = more.json("list-hosts", "--limit", "all:!gpu9")
    assert [one["host"] for one in others] == ["sim-001", "sim-002", "sim-003", "sim-004"]
    refused = more.is_refused("inspect-host", "gpu9")
    assert (refused["reference"], refused["exit_code"]) == ("host-unreachable", 4)
    assert "127.0.0.1" in refused["message"]
    assert more.is_refused("inspect-host", "sim-001x")["reference"] == "inventory"


def _play(operator: Operator, fleet: lab.LabFolder, *words: str) -> list[dict[str, object]]:
    played: list[dict[str, object]] = json.loads(
        operator.does("lab", "--folder", str(fleet.path), "play", *words, "--json").out
    )
    return played


def test_a_scenario_is_played_seen_and_stopped(operator: Operator, fleet: lab.LabFolder, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yml"
    mine.write_text(
        "about: Half of the GPU\n"
        "curves:\n"
        "  - {target: 'vgpu:1', measure: utilization_ratio, points: {0s: 50%}}\n"
        "  - {target: 'gpu:1', measure: xid/119, points: {0s: 2}}\n"
        "  - {target: 'vm:1', measure: block_read_bytes/vda, points: {0s: 12345}}\n"
    )
    played = _play(operator, fleet, "sim-001", str(mine))
    assert [one["measure"] for one in played] == ["utilization_ratio", "xid/119", "block_read_bytes/vda"]
    assert _play(operator, fleet, "sim-001") == played

    found = operator.json("inspect-host", "sim-001", "--readings")["readings"]
    [vgpu], [gpu], [vm] = found["vgpus"], found["gpus"], found["vms"]
    assert ["utilization_ratio", [], 0.5] in vgpu["measured"]["values"]
    assert ["xid", ["119", "reset-gpu"], 2.0] in gpu["measured"]["values"]
    assert ["block_read_bytes", ["vda"], 12345.0] in vm["measured"]["values"]
    assert (vm["name"], vm["tenant"], vm["uuid"]) == ("acme.web-1", "acme", vgpu["vm_uuid"])
    assert vgpu["device"] in machine(fleet, "sim-001").state().domains[vm["uuid"]].functions

    operator.does("lab", "--folder", str(fleet.path), "play", "sim-001", "--stop")
    assert _play(operator, fleet, "sim-001") == []


def test_the_readings_for_people_have_units_states_and_reasons(operator: Operator) -> None:
    shown = operator.does("inspect-host", "sim-002", "--readings").out
    readings = shown[shown.index("Readings of the host") :]
    for line in (
        "  memory total                   512.0 GiB",
        "  framebuffer size               8.0 GiB",
        "  promised                       17 %",
        "  license state                  licensed",
        "  scheduler policy               best-effort",
        "  slowdown temperature           92 °C",
        "  vcpus                          2",
    ):
        assert line in readings.splitlines()
    assert "not measurable: memory unused: the guest has no balloon driver that tells it" in " ".join(readings.split())
    assert max(map(len, readings.splitlines())) <= 80
    assert "Readings of VM acme.web-2" in readings
    assert "  tenant                         acme" in readings
    assert "Readings of" not in operator.does("inspect-host", "sim-002").out


def test_a_host_without_nvidias_driver_tells_its_own_readings(operator: Operator) -> None:
    found = operator.json("inspect-host", "sim-004", "--readings")["readings"]
    assert {name for name, _, _ in found["measured"]["values"]} >= {"reading_seconds", "memory_available_bytes"}
    [gpu] = found["gpus"]
    assert ["utilization_ratio", "not-measurable", "the driver xe tells no readings that vgpuctl knows"] in gpu[
        "measured"
    ]["missing"]
    assert found["unread"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sim-001", "quiet"), "there is no scenario 'quiet', and no such file"),
        (("sim-004", "xid"), "the host has no gpu:1"),
        (("sim-003", "memory-leak"), "the host has no vgpu:1"),
        (("sim-009", "idle"), "there is no host 'sim-009'"),
        (("sim-001", "idle", "--stop"), "--stop takes no scenario"),
    ],
)
def test_what_cannot_be_played_is_refused_in_words(
    words: tuple[str, ...], said: str, operator: Operator, fleet: lab.LabFolder
) -> None:
    assert said in operator.is_refused("lab", "--folder", str(fleet.path), "play", *words)["message"]
