# SPDX-License-Identifier: Apache-2.0
"""VMs in a network that OVN carries run on working chassis alone, by every command that gives a VM a host."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import need_simulated
from tests.ovn_fixture import LocalOvn, central
from vgpuctl.errors import StateError
from vgpuctl.usecases.vm.start_vm import start_vm
from vgpuctl.wiring import Settings, open_services

__all__ = ["central"]

ACME = ("--tenant", "acme")
VM = (*ACME, "--network", "front", "--memory", "96MiB", "--vcpus", "1")
DEAD = "ovn-controller does not run"
CONTROLLER = ("controller", "--once", "--shutdown-timeout", "0")
NONE = "Open vSwitch does not run"


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LayoutFleet]:
    """Two chassis, made by `apply-hosts`, and a host that is none."""
    need_simulated()
    made = layout_fleet(tmp_path_factory.mktemp("chassis"), 3, "a40")
    vgpu = {"gpus": [{"match": "all", "kind": "vgpu"}]}
    network = {"southbound": "unix:/run/ovn/ovnsb_db.sock", "tunnels": "10.84.0.0/16"}
    made.declare(sim_001={**vgpu, "network": network}, sim_002={**vgpu, "network": network}, sim_003=vgpu)
    made.operator.does("apply-hosts")
    yield made
    lab.simulated.down(folder=made.folder)


@pytest.fixture
def operator(layouts: LayoutFleet, central: LocalOvn, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    central.bind_ports()
    home = tmp_path_factory.mktemp("operator")
    variables = {"VGPUCTL_OVN_NORTHBOUND": central.northbound}
    made = replace(layouts.operator, database=f"sqlite:///{home}/store.db", variables=variables)
    made.does("create-tenant", "acme")
    made.does("create-network", "front", *ACME, "--cidr", "10.0.0.0/24")
    made.does("list-hosts")
    yield made
    for number in (1, 2, 3):
        made.does("uncordon-host", f"sim-{number:03}")
    made.does("offboard-tenant", "acme", "--yes", "--delete-disks", "--timeout", "0")


@contextmanager
def _without_controller(layouts: LayoutFleet, *names: str) -> Iterator[None]:
    """ovn-controller of these hosts is dead, and nobody has looked since."""
    _set_controller(layouts, names, is_active=False)
    try:
        yield
    finally:
        _set_controller(layouts, names, is_active=True)


def _set_controller(layouts: LayoutFleet, names: tuple[str, ...], *, is_active: bool) -> None:
    for name in names:
        with layouts.machine(name).change() as state:
            state.services["ovn-controller.service"] = is_active


def _there(operator: Operator, name: str) -> tuple[str, str]:
    vm = operator.json("show-vm", name, *ACME)["vm"]
    return vm["host"], vm["state"]


def _answers(operator: Operator, *arguments: str) -> dict[str, Any]:
    (explained,) = operator.json("explain-vm", *arguments)
    return {one["host"]: one["code"] for one in explained["answers"]}


def test_a_host_that_is_no_chassis_is_left_out_and_told(operator: Operator) -> None:
    explained = ("--network", "front", "--memory", "96MiB", "--vcpus", "1", "--gpu", "A40-8Q", *ACME)
    assert _answers(operator, *explained) == {"sim-001": None, "sim-002": None, "sim-003": "host-chassis"}
    assert set(_answers(operator, "--network", "none", "--gpu", "A40-8Q", *ACME).values()) == {None}
    refused = operator.is_refused("create-vm", "web", *VM, "--host", "sim-003")
    assert refused["reference"] == "no-capacity"
    assert any(f"sim-003: {NONE}" in line and "host-chassis" in line for line in refused["context"]), refused
    assert "apply-hosts" in refused["hint"]
    operator.does("create-vm", "plain", *ACME, "--network", "none", "--memory", "96MiB", "--host", "sim-003")
    created = operator.json("create-vm", "--count", "3", "web", *VM, "--policy", "spread")
    assert {one["vm"]["host"] for one in created} <= {"sim-001", "sim-002"}


def test_a_controller_that_died_since_the_last_look_is_found_before_anything_is_built(
    operator: Operator, layouts: LayoutFleet
) -> None:
    with _without_controller(layouts, "sim-001"):
        (made,) = operator.json("create-vm", "web", *VM)
        assert made["vm"]["host"] == "sim-002", "the store's facts still had sim-001 as a chassis"
        (checked,) = json.loads(operator.run("check-hosts", "--limit", "sim-001", "--json").out)
        found = checked["findings"]
        assert [one["read"] for one in found if one["check"] == "ovn"] == [DEAD]
        with _without_controller(layouts, "sim-002"):
            refused = operator.is_refused("create-vm", "more", *VM, "--dry-run")
            assert [line for line in refused["context"] if DEAD in line], refused
            operator.does("create-vm", "later", *VM, "--queue")
            operator.does(*CONTROLLER)
            (waiting,) = operator.json("list-queue")["queue"]
            assert waiting["expected_at"] is None and DEAD in waiting["entry"]["reason"], waiting
            assert [one["name"] for one in operator.json("list-vms") if one["vm"] is not None] == ["web"]
        operator.does("list-hosts")
        assert [one["outcome"] for one in operator.json(*CONTROLLER)] == ["started"]
        assert _there(operator, "later") == ("sim-002", "running")


def test_a_vm_starts_restarts_and_moves_on_working_chassis_alone(operator: Operator, layouts: LayoutFleet) -> None:
    operator.does("create-vm", "web", *VM, "--gpu", "A40-8Q", "--disk", "64MiB")
    assert _there(operator, "web") == ("sim-001", "running")
    with _without_controller(layouts, "sim-001"):
        refused = operator.is_refused("restart-vm", "web", *ACME, "--timeout", "0")
        assert refused["message"] == f"acme/web cannot start on sim-001: {DEAD}"
        assert "systemctl start ovn-controller" in refused["hint"]
        assert _there(operator, "web") == ("sim-001", "running"), "nothing was stopped"
        operator.does("stop-vm", "web", *ACME, "--timeout", "0")
        assert DEAD in operator.is_refused("start-vm", "web", *ACME)["message"]
        operator.does("stop-vm", "web", *ACME, "--hold", "release", "--timeout", "0")
        refused = operator.is_refused("start-vm", "web", *ACME)
        assert any(DEAD in line for line in refused["context"]), refused
    operator.does("start-vm", "web", *ACME)
    with _without_controller(layouts, "sim-002"):
        before = layouts.machine("sim-002").state().lasting()
        for command in (
            ("move-vm", "web", *ACME, "--shutdown-timeout", "0"),
            ("move-vm", "web", *ACME, "--to", "sim-002", "--shutdown-timeout", "0"),
        ):
            refused = operator.is_refused(*command)
            assert DEAD in refused["message"] + str(refused["context"]), refused
        (drained,) = operator.ends(10, "drain-host", "sim-001", "--reason", "new disks", "--dry-run")["vms"]
        assert (drained["verdict"], DEAD in drained["reason"]) == ("stay", True), drained
        assert (_there(operator, "web"), layouts.machine("sim-002").state().lasting()) == (
            ("sim-001", "running"),
            before,
        )
    operator.does("move-vm", "web", *ACME, "--shutdown-timeout", "0")
    assert _there(operator, "web") == ("sim-002", "running")


def test_a_gang_starts_as_a_whole_or_nothing_of_it(operator: Operator, layouts: LayoutFleet) -> None:
    """One of its hosts lost its chassis while the gang was preempted; the controller starts it again as a whole."""
    group = ("--gang", "--group", "ring:apart")
    made = operator.json("create-vm", "--count", "2", "ring", *VM, *group, "--gpu", "A40-8Q")
    assert {one["vm"]["host"] for one in made} == {"sim-001", "sim-002"}
    names = [one["vm"]["request"]["name"] for one in made]
    operator.does("stop-vm", *names, *ACME, "--timeout", "0")
    northbound = operator.variables["VGPUCTL_OVN_NORTHBOUND"]
    settings = Settings([str(operator.inventory)], operator.database, ovn_northbound=northbound)
    with open_services(settings, print) as services:
        with services.store.reading() as session:
            gang = session.vms(tenant="acme")
        with _without_controller(layouts, "sim-002"), pytest.raises(StateError, match=DEAD):
            start_vm(services, gang)
        assert {_there(operator, name)[1] for name in names} == {"stopped"}
        start_vm(services, gang)
    assert {_there(operator, name)[1] for name in names} == {"running"}


@pytest.mark.long(
    "tests/e2e/network/test_chassis.py::test_a_vm_starts_restarts_and_moves_on_working_chassis_alone",
    "tests/e2e/network/test_chassis.py::test_a_host_that_is_no_chassis_is_left_out_and_told",
)
def test_a_reservation_and_a_new_size_are_for_working_chassis_too(operator: Operator, layouts: LayoutFleet) -> None:
    reserve = ("reserve", "slot", *ACME, "--gpu", "A40-8Q", "--from", "2026-01-01T00:00", "--until", "2199-01-01T00:00")
    host = operator.json(*reserve)["reservation"]["host"]
    (other,) = {"sim-001", "sim-002", "sim-003"} - {host, "sim-003"}
    with _without_controller(layouts, host):
        refused = operator.is_refused("create-vm", "web", *VM, "--reservation", "slot")
        assert any(DEAD in line for line in refused["context"]), refused
    operator.does("create-vm", "web", *VM, "--reservation", "slot")
    operator.does("create-vm", "grows", *VM, "--host", other)
    with _without_controller(layouts, other):
        refused = operator.is_refused("resize-vm", "grows", *ACME, "--vcpus", "2", "--shutdown-timeout", "0")
        assert DEAD in refused["message"] + str(refused["context"]), refused
        assert _there(operator, "grows") == (other, "running"), "nothing was stopped"


@pytest.mark.long(
    "tests/e2e/network/test_chassis.py::test_a_vm_starts_restarts_and_moves_on_working_chassis_alone",
    "tests/e2e/maintenance/test_dead_host.py::test_a_dead_host_is_fenced_evacuated_forgotten_and_trusted_again",
)
def test_a_dead_host_s_vms_go_to_working_chassis(operator: Operator, layouts: LayoutFleet) -> None:
    operator.does("create-vm", "web", *VM, "--gpu", "A40-8Q")
    (source, _state) = _there(operator, "web")
    (other,) = {"sim-001", "sim-002"} - {source}
    evacuate = ("evacuate-host", source, "--fenced", "--reason", "no power", "--yes")
    lab.faults.begin(source, "sshd", folder=layouts.folder)
    try:
        with _without_controller(layouts, other):
            left = json.loads(operator.run(*evacuate, "--json").out)["vms"]
            assert [one["outcome"] for one in left] == ["left"], left
            assert DEAD in str(left)
        operator.does(*evacuate)
        assert _there(operator, "web") == (other, "running")
    finally:
        lab.faults.clear(source, folder=layouts.folder)
    operator.run("uncordon-host", source)
    operator.does("gc", "--kind", "vgpu", "--yes")


def test_a_network_says_what_was_last_seen_of_its_interfaces(operator: Operator, central: LocalOvn) -> None:
    operator.does("create-vm", "web", *VM)

    def shown() -> tuple[str, str]:
        (port,) = operator.json("show-network", "front", *ACME)["ports"]
        finding = port["finding"]["finding"]
        return finding["verdict"], f"{finding['row']} {finding['seen']}"

    assert shown()[0] == "kept"
    (port,) = operator.json("show-network", "front", *ACME)["ports"]
    central.nbctl("lsp-set-addresses", port["port"]["id"], "52:54:00:00:00:01 10.0.0.9")
    assert shown()[0] == "kept", "nobody has looked since"
    assert operator.run("check-vm", "web", *ACME).code == 1
    verdict, seen = shown()
    assert (verdict, "10.0.0.9" in seen) == ("broken", True)
    assert "broken, seen" in operator.does("show-network", "front", *ACME).out
    assert "1 broken" in operator.does("list-networks", *ACME).out
    operator.does("stop-vm", "web", *ACME, "--timeout", "0")
    (port,) = operator.json("show-network", "front", *ACME)["ports"]
    assert port["finding"] is None
