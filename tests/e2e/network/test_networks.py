# SPDX-License-Identifier: Apache-2.0
"""Tenants' networks on simulated hosts, carried by libvirt: made once, given to VMs, finished after kill -9."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest

import vgpuctl_lab as lab
from tests.e2e.kills import kill_after, paired_points
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from vgpuctl.guests.libvirtd.networks import read_entries
from vgpuctl_lab.simulated.layout import simulated_folder

FRONT = ("create-network", "front", "--tenant", "acme", "--cidr", "10.0.0.0/24", "--host", "sim-001")
DELETE_FRONT = ("delete-network", "front", "--tenant", "acme", "--yes")
VM = ("--memory", "96MiB", "--vcpus", "1", "--network", "front")
WEB_1 = ("create-vm", "web-1", "--tenant", "acme", *VM)
DELETE_WEB_1 = ("delete-vm", "web-1", "--tenant", "acme", "--yes", "--timeout", "0")


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Operator:
    for tenant in ("acme", "globex"):
        fleet_operator.does("create-tenant", tenant)
    return fleet_operator


def _networks(fleet: lab.LabFolder, host: str) -> dict[str, dict[str, str]]:
    """Tenants' addresses in the host's libvirt: network → MAC → address."""
    with libvirt_of(simulated_folder(fleet).inventory, host) as there:
        return {
            network.name(): read_entries(network.XMLDesc(0))
            for network in there.connection.listAllNetworks(0)
            if network.isActive() and network.name() != "default"
        }


def test_a_backend_that_does_not_answer_leaves_no_network(operator: Operator, fleet: lab.LabFolder) -> None:
    with_ovn = replace(operator, variables={"VGPUCTL_OVN_NORTHBOUND": "tcp:127.0.0.1:1"})
    back = ("create-network", "back", "--tenant", "acme", "--cidr", "10.9.0.0/24", "--backend", "ovn")
    assert with_ovn.is_refused(*back)["exit_code"] == 11
    lab.faults.begin("sim-001", "libvirtd", folder=fleet)
    try:
        assert operator.is_refused(*FRONT)["exit_code"] == 4
    finally:
        lab.faults.clear("sim-001", folder=fleet)
    assert operator.json("list-networks") == []


def test_a_network_is_made_once_and_its_vms_get_addresses_that_come_back(
    operator: Operator, fleet: lab.LabFolder
) -> None:
    dry = operator.json(*FRONT, "--dry-run")
    assert (dry["changed"], dry["dry_run"], dry["network"]["request"]["host"]) == (True, True, "sim-001")
    assert operator.json("list-networks") == []
    assert operator.json(*FRONT)["changed"]
    assert not operator.json(*FRONT)["changed"]
    assert _networks(fleet, "sim-001") == {"acme.front": {}}
    dry = operator.json(*WEB_1, "--dry-run")[0]
    assert "10.0.0.2" in dry["xml"]
    for name, address in (("web-1", "10.0.0.2"), ("web-2", "10.0.0.3")):
        created = operator.json("create-vm", name, "--tenant", "acme", *VM, "--hostname", name)[0]
        assert created["vm"]["host"] == "sim-001"
        interface = ElementTree.fromstring(created["xml"]).find("devices/interface")
        assert interface is not None
        parameters = {one.get("name"): one.get("value") for one in interface.iter("parameter")}
        port = {"IP": address, "GATEWAY": "10.0.0.1", "NETWORK": "10.0.0.0", "MASK": "255.255.255.0"}
        assert parameters == port
    assert not operator.json("create-vm", "web-2", "--tenant", "acme", *VM, "--hostname", "web-2")[0]["changed"]
    shown = operator.json("show-network", "front", "--tenant", "acme")
    ports = {one["port"]["mac_address"]: one["port"]["address"] for one in shown["ports"]}
    assert _networks(fleet, "sim-001") == {"acme.front": ports}
    assert [one["vm"] for one in shown["ports"]] == ["web-1", "web-2"]
    assert operator.json("repair") == []
    listed = {one["name"]: one for one in operator.json("list-vms")}
    assert [listed[name]["addresses"] for name in ("web-1", "web-2")] == [["10.0.0.2"], ["10.0.0.3"]]
    made_at, uuid = listed["web-1"]["created_at"], listed["web-1"]["vm"]["uuid"]
    later = operator.at(made_at + 3 * 86400)
    columns = ("--columns", "vm,addresses,age,uuid", "--filter", "vm=web-1")
    assert later.does("list-vms", *columns).out.splitlines()[1].split() == ["web-1", "10.0.0.2", "3d", uuid]
    assert "ADDRESSES" in later.does("list-vms", "-o", "wide").out
    assert "ADDRESSES" not in later.does("list-vms").out
    assert " UTC, 3d ago\n" in later.does("show-vm", "acme/web-1").out
    refused = operator.is_refused(*DELETE_FRONT)
    assert refused["reference"] == "network-in-use"
    assert refused["context"] == ["web-1 has 10.0.0.2", "web-2 has 10.0.0.3"]
    operator.does("stop-vm", "web-2", "--tenant", "acme")
    operator.does("start-vm", "web-2", "--tenant", "acme")
    operator.does(*DELETE_WEB_1)
    assert list(_networks(fleet, "sim-001")["acme.front"].values()) == ["10.0.0.3"]
    operator.does("delete-vm", "web-2", "--tenant", "acme", "--yes", "--timeout", "0")
    assert operator.json("list-networks")[0]["free"] == 253
    assert operator.json(*DELETE_FRONT)["deleted"] == ["acme/front"]
    assert _networks(fleet, "sim-001") == {}
    assert operator.json(*DELETE_FRONT, "--if-exists")["deleted"] == []


REFUSED = [
    (("--cidr", "10.9.0.0/24"), "usage", "needs a host: the inventory has 4"),
    (("--cidr", "10.9.0.0/24", "--host", "sim-009"), "inventory", "sim-009"),
    (("--cidr", "10.8.0.0/16", "--host", "sim-003"), "network-in-use", "of the same tenant"),
    (("--cidr", "10.8.0.0/16", "--host", "sim-002", "--tenant", "globex"), "network-in-use", "another tenant on"),
    (("--cidr", "10.9.0.0/24", "--host", "sim-002", "--tenant", "nobody"), "not-found", "no tenant 'nobody'"),
]


def test_what_cannot_be_is_refused_before_anything_is_made(operator: Operator, fleet: lab.LabFolder) -> None:
    there = ("create-network", "there", "--tenant", "acme", "--cidr", "10.8.0.0/24", "--host", "sim-002")
    operator.does(*there)
    for arguments, reference, said in REFUSED:
        refused = operator.is_refused("create-network", "more", "--tenant", "acme", *arguments)
        assert (refused["reference"], said in refused["message"]) == (reference, True), refused
    refused = operator.is_refused(*there, "--isolated")
    assert refused["reference"] == "network-differs"
    assert refused["context"] == ["isolated: no there, yes wanted"]
    refused = operator.is_refused("create-vm", "a", "--tenant", "acme", "--network", "there", "--host", "sim-001")
    assert "network acme/there is on sim-002" in refused["message"]
    assert operator.is_refused("show-network", "ther", "--tenant", "acme")["hint"] == "did you mean there?"
    assert list(_networks(fleet, "sim-002")) == ["acme.there"]
    assert [one["network"]["request"]["name"] for one in operator.json("list-networks")] == ["there"]
    operator.does("delete-network", "there", "--tenant", "acme", "--yes")


def test_a_refusal_names_the_network_that_leaves_a_vm_one_host(operator: Operator) -> None:
    operator.does(*FRONT)
    said = "network acme/front is on sim-001 alone"
    sized = ("big", "--tenant", "acme", "--gpu", "A40-8Q", *VM, "--memory", "4000GiB")
    assert said in operator.is_refused("create-vm", *sized)["message"]
    (answered,) = operator.json("explain-vm", *sized)
    assert said in {one["reason"] for one in answered["answers"] if one["host"] != "sim-001"}
    refused = operator.is_refused("create-vm", "web-1", "--tenant", "acme", *VM, "--limit", "sim-002")
    assert refused["message"] == f"host sim-001 is left out by --limit, and {said}"
    (planned,) = operator.json(*WEB_1, "--dry-run")
    assert (planned["why"]["takers"], planned["why"]["hosts"], planned["why"]["network"]) == (1, 1, "acme/front")
    assert f", {said}, of 1 host with room; " in operator.does(*WEB_1, "--dry-run").out
    said_of = operator.does(*DELETE_FRONT, "--dry-run").err
    assert "dry run: acme/front: would be deleted" in said_of and ": deleted" not in said_of
    operator.does(*DELETE_FRONT)


def test_after_kill_9_anywhere_the_same_command_or_repair_finishes(operator: Operator, fleet: lab.LabFolder) -> None:
    for create_point, delete_point in paired_points(operator, FRONT, DELETE_FRONT):
        by_repair = create_point % 2 == 0
        kill_after(operator, create_point, *FRONT)
        operator.does(*(("repair",) if by_repair else FRONT))
        assert list(_networks(fleet, "sim-001")) == ["acme.front"], (
            f"after side effect {create_point} of create-network"
        )
        kill_after(operator, delete_point, *DELETE_FRONT)
        operator.does(*(("repair",) if by_repair else (*DELETE_FRONT, "--if-exists")))
        assert _networks(fleet, "sim-001") == {}, f"after side effect {delete_point} of delete-network"
    assert operator.json("list-networks") == operator.json("repair") == []


def test_an_address_of_a_killed_run_is_given_back(operator: Operator, fleet: lab.LabFolder) -> None:
    operator.does(*FRONT)
    kill_after(operator, "ensure", *WEB_1)
    assert list(_networks(fleet, "sim-001")["acme.front"].values()) == ["10.0.0.2"]
    operator.does("repair")
    assert _networks(fleet, "sim-001") == {"acme.front": {}}
    operator.does(*WEB_1)
    kill_after(operator, "ensure", *DELETE_WEB_1)
    operator.does("repair")
    assert operator.json("list-vms") == operator.json("repair") == []
    assert operator.json("show-network", "front", "--tenant", "acme")["ports"] == []
    operator.does(*DELETE_FRONT)
