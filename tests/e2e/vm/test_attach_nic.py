# SPDX-License-Identifier: Apache-2.0
"""attach-nic and detach-nic on simulated hosts, whose libvirt changes no running domain: at the next start, or stop."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

import pytest

import vgpuctl_lab as lab
from tests.e2e.kills import kill_after, paired_points, stop_after
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.network.test_several_nics import addresses_of
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME
from vgpuctl.model.interfaces import host_mac
from vgpuctl_lab.simulated.layout import simulated_folder

SIZE = (*ACME, "--memory", "96MiB", "--vcpus", "1")
STOP = ("stop-vm", "web", *ACME, "--timeout", "0")
START = ("start-vm", "web", *ACME)
ATTACH = ("attach-nic", "web", "back", *ACME)
DETACH = ("detach-nic", "web", "back", *ACME, "--timeout", "0")


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Operator:
    for tenant in ("acme", "globex"):
        fleet_operator.does("create-tenant", tenant)
    for number, name in enumerate(("front", "back")):
        where = ("--cidr", f"10.{number}.0.0/24", "--host", "sim-001")
        fleet_operator.does("create-network", name, *ACME, *where)
    fleet_operator.does("create-network", "theirs", "--tenant", "globex", "--cidr", "10.9.0.0/24", "--host", "sim-001")
    fleet_operator.does("create-network", "far", *ACME, "--cidr", "10.8.0.0/24", "--host", "sim-002")
    fleet_operator.does("create-vm", "web", *SIZE, "--network", "front", "--spare-ports", "0")
    return fleet_operator


def _interfaces(operator: Operator) -> list[tuple[int, str, str | None, bool]]:
    shown = operator.json("show-vm", "web", *ACME)["interfaces"]
    return [(one["position"], one["network"], one["address"], one["is_detached"]) for one in shown]


def _live(operator: Operator) -> list[tuple[str | None, str | None]]:
    """Network and bus of each interface that the running domain has."""
    xml = operator.json("show-vm", "web", *ACME)["xml"]
    elements = ElementTree.fromstring(xml).findall("devices/interface")
    pairs = [(one.find("source"), one.find("address")) for one in elements]
    return [
        (source.get("network"), address.get("bus"))
        for source, address in pairs
        if source is not None and address is not None
    ]


def _kinds(operator: Operator) -> list[str]:
    return [one["kind"] for one in operator.json("list-events", "acme/web", "--kind", "nic-*")]


def test_an_interface_comes_at_the_next_start_and_goes_with_the_guest(operator: Operator, fleet: lab.LabFolder) -> None:
    attached = operator.json(*ATTACH)
    assert (attached["changed"], attached["outcome"], attached["address"]) == (True, "next start", "10.1.0.2")
    assert addresses_of(fleet, "acme.back") == ["10.1.0.2"]
    again = operator.json(*ATTACH)
    assert (again["changed"], again["mac_address"]) == (False, attached["mac_address"])
    assert _live(operator) == [("acme.front", "0x02")]
    assert operator.json("repair") == []
    operator.does("restart-vm", "web", *ACME, "--timeout", "0")
    assert _live(operator) == [("acme.front", "0x02"), ("acme.back", "0x05")]
    assert operator.json("attach-nic", "web", "default", *ACME, "--model", "e1000e")["position"] == 2

    detached = operator.json(*DETACH)
    assert (detached["outcome"], detached["address"]) == ("pending", "10.1.0.2")
    assert operator.json(*DETACH)["outcome"] == "pending"
    assert _interfaces(operator)[1] == (1, "acme/back", "10.1.0.2", True)
    assert addresses_of(fleet, "acme.back") == ["10.1.0.2"], "the guest may still use it"
    assert operator.json("repair") == []
    operator.does(*STOP)
    assert addresses_of(fleet, "acme.back") == []
    operator.does(*START)
    assert _live(operator) == [("acme.front", "0x02"), ("default", "0x06")], "the port of its position"
    assert _kinds(operator) == ["nic-attached", "nic-attached", "nic-detaching", "nic-detached"]
    assert operator.json("repair") == []


def test_a_stopped_vm_is_changed_at_once(operator: Operator, fleet: lab.LabFolder) -> None:
    operator.does(*STOP)
    first = operator.json(*ATTACH)
    more = operator.json(*ATTACH, "--another")
    assert (first["position"], more["position"], more["address"]) == (1, 3, "10.1.0.3")
    several = operator.is_refused(*DETACH)
    assert several["context"] == sorted([first["mac_address"], more["mac_address"]])
    for mac in (first["mac_address"], more["mac_address"].upper()):
        assert operator.json(*DETACH, "--mac", mac)["outcome"] == "done"
    assert addresses_of(fleet, "acme.back") == []
    assert operator.is_refused(*DETACH)["reference"] == "not-found"
    operator.does("detach-nic", "web", "default", *ACME)
    refused = operator.is_refused("detach-nic", "web", "front", *ACME)
    assert "front is the last network of acme/web" in refused["message"]
    assert operator.json("detach-nic", "web", "front", *ACME, "--last")["outcome"] == "done"
    assert _interfaces(operator) == []
    assert operator.json("attach-nic", "web", "front", *ACME)["position"] == 0
    operator.does(*START)
    assert _live(operator) == [("acme.front", "0x02")]


REFUSED: list[tuple[str, tuple[str, ...], str, str]] = [
    ("theirs", (), "network", "has no network 'theirs'"),
    ("globex.theirs", (), "not-found", "has no network 'globex.theirs'"),
    ("acme.back", (), "not-found", "has no network 'acme.back'"),
    ("far", (), "usage", "network acme/far is on sim-002"),
    ("back", ("--security-group", "web"), "not-found", "no security group 'web'"),
    ("front", ("--bandwidth", "100"), "state", "an interface in front that differs"),
]


def test_what_cannot_be_attached_leaves_the_vm_as_it_is(operator: Operator) -> None:
    before = _interfaces(operator)
    for network, more, reference, said in REFUSED:
        refused = operator.is_refused("attach-nic", "web", network, *ACME, *more)
        assert reference in refused["reference"] and said in refused["message"], refused
        assert "--network" not in (refused["hint"] or ""), "an option of create-vm"
    assert _interfaces(operator) == before


@contextmanager
def _copy(fleet: lab.LabFolder, host: str, mac: str) -> Iterator[None]:
    """A host has a domain of somebody else with a MAC address of ours."""
    xml = (
        "<domain type='test'><name>copy</name><memory>65536</memory><os><type>hvm</type></os><devices>"
        f"<interface type='network'><mac address='{mac}'/><source network='default'/></interface></devices></domain>"
    )
    with libvirt_of(simulated_folder(fleet).inventory, host) as there:
        there.connection.defineXML(xml)
        try:
            yield
        finally:
            there.connection.lookupByName("copy").undefine()


def test_a_mac_address_of_another_domain_is_refused(operator: Operator, fleet: lab.LabFolder) -> None:
    mac = operator.json("attach-nic", "web", "default", *ACME)["mac_address"]
    operator.does("detach-nic", "web", "default", *ACME, "--timeout", "0")
    operator.does(*STOP)
    before = _interfaces(operator)
    with _copy(fleet, "sim-001", mac):
        refused = operator.is_refused("attach-nic", "web", "default", *ACME)
    assert f"domain copy on sim-001 has the MAC address {mac} of an interface of acme/web" in refused["message"]
    assert _interfaces(operator) == before
    operator.does(*START)


def test_a_new_vm_and_one_that_moves_get_no_mac_address_of_another_domain(
    operator: Operator, fleet: lab.LabFolder
) -> None:
    create = ("create-vm", "many", *SIZE, "--network", "default", "--nic", "default", "--json")
    run = stop_after(operator, "transaction", *create)
    (many,) = [one["vm"] for one in operator.json("list-vms") if one["vm"]["request"]["name"] == "many"]
    mac = host_mac(many["uuid"], 1)
    with _copy(fleet, many["host"], mac):
        run.send_signal(signal.SIGCONT)
        _out, err = run.communicate(timeout=100)
    assert run.returncode != 0 and f"domain copy on {many['host']} has the MAC address {mac}" in err
    assert operator.json("repair") == []

    (made,) = operator.json(*create)
    mac, elsewhere = host_mac(made["vm"]["uuid"], 1), {"sim-001": "sim-002"}.get(made["vm"]["host"], "sim-001")
    with _copy(fleet, elsewhere, mac):
        refused = operator.is_refused("move-vm", "many", *ACME, "--to", elsewhere)
    assert f"domain copy on {elsewhere} has the MAC address {mac}" in refused["message"]
    operator.does("delete-vm", "many", *ACME, "--yes", "--timeout", "0")


@pytest.mark.long(
    "tests/e2e/vm/test_attach_nic.py::test_an_interface_comes_at_the_next_start_and_goes_with_the_guest",
    "tests/e2e/operate/test_interrupted.py::test_a_run_killed_after_any_side_effect_is_repaired",
)
def test_a_run_that_is_killed_is_finished_by_repair_or_the_same_command(
    operator: Operator, fleet: lab.LabFolder
) -> None:
    points = paired_points(operator, ATTACH, DETACH, most=3)
    operator.does(*STOP)
    operator.does(*START)
    for attach_point, detach_point in points:
        kill_after(operator, attach_point, *ATTACH)
        operator.does("repair")
        assert operator.json(*ATTACH)["outcome"] == "next start"
        assert addresses_of(fleet, "acme.back") == ["10.1.0.2"]
        assert operator.json("repair") == []
        kill_after(operator, detach_point, *DETACH)
        operator.does("repair")
        shown: list[Any] = [one for one in _interfaces(operator) if one[1] == "acme/back" and not one[3]]
        if shown:
            operator.does(*DETACH)
        operator.does(*STOP)
        operator.does(*START)
        assert addresses_of(fleet, "acme.back") == []
        assert operator.json("repair") == []
