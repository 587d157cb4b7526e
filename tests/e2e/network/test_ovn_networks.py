# SPDX-License-Identifier: Apache-2.0
"""Tenants' networks carried by OVN: a real northd's databases beside simulated hosts, the real command."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

import vgpuctl_lab as lab
from tests.e2e.kills import kill_after
from tests.e2e.operator import Operator
from tests.ovn_fixture import LocalOvn, central, chassis

__all__ = ["central", "chassis"]

SIZE = ("--memory", "96MiB", "--vcpus", "1")
ACME = ("--tenant", "acme")
EXTERNAL = (
    *("create-external-network", "internet", "--cidr", "203.0.113.0/24", "--gateway", "203.0.113.1"),
    *("--pool", "203.0.113.10-203.0.113.99", "--physical-network", "provider"),
    *("--chassis", "sim-001", "--chassis", "sim-002"),
)


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator, central: LocalOvn, chassis: None) -> Operator:
    made = replace(fleet_operator, variables={"VGPUCTL_OVN_NORTHBOUND": central.northbound})
    for tenant in ("acme", "globex"):
        made.does("create-tenant", tenant)
    return made


def _count(central: LocalOvn, table: str) -> int:
    return len(central.nbctl("--format=csv", "--no-headings", "--columns=_uuid", "list", table).split())


def _network(operator: Operator, tenant: str, *more: str) -> bool:
    command = ("create-network", "front", "--tenant", tenant, "--cidr", "10.0.0.0/24")
    return bool(operator.json(*command, *more)["changed"])


def test_two_tenants_have_the_same_addresses_on_many_hosts(operator: Operator, central: LocalOvn) -> None:
    for tenant in ("acme", "globex"):
        assert _network(operator, tenant)
        assert not _network(operator, tenant)
    placed = {}
    for tenant, host in (("acme", "sim-001"), ("globex", "sim-002")):
        arguments = ("create-vm", "web", "--tenant", tenant, "--network", "front", "--host", host, *SIZE)
        (created,) = operator.json(*arguments)
        interface = ElementTree.fromstring(created["xml"]).find("devices/interface")
        assert interface is not None
        parameters = interface.find("virtualport/parameters")
        assert parameters is not None
        placed[tenant] = parameters.get("interfaceid") or ""
        shown = operator.json("show-network", "front", "--tenant", tenant)
        assert [one["port"]["address"] for one in shown["ports"]] == ["10.0.0.2"]
        assert shown["ports"][0]["port"]["id"] == placed[tenant]
        security = central.nbctl("get", "Logical_Switch_Port", placed[tenant], "port_security")
        assert security.strip() == f'["{shown["ports"][0]["port"]["mac_address"]} 10.0.0.2"]'
    assert _count(central, "Logical_Router") == _count(central, "Logical_Switch") == 2
    assert operator.json("repair") == []
    refused = operator.is_refused("create-vm", "b", "--tenant", "acme", "--network", "front", "--security-group", "no")
    assert refused["reference"] == "not-found"
    for tenant in ("acme", "globex"):
        operator.does("delete-vm", "web", "--tenant", tenant, "--yes", "--timeout", "0")
        operator.does("delete-network", "front", "--tenant", tenant, "--yes")
    for table in ("Logical_Router", "Logical_Switch", "Port_Group", "DHCP_Options"):
        assert _count(central, table) == 0, table


def test_repair_brings_back_what_is_missing_and_gc_takes_away_what_nobody_has(
    operator: Operator, central: LocalOvn
) -> None:
    _network(operator, "acme")
    before = _count(central, "Logical_Switch_Port")
    central.nbctl("ls-del", central.nbctl("--bare", "--columns=name", "list", "Logical_Switch").strip())
    stray = '{"vgpuctl-owner"="tenant/nobody","vgpuctl-key"="switch/1"}'
    central.nbctl("create", "Logical_Switch", "name=stray", f"external_ids={stray}")
    assert [(one["subject"], one["outcome"]) for one in operator.json("repair")] == [("acme/front", "finished")]
    assert operator.json("repair") == []
    found = operator.json("gc", "--dry-run")
    assert [(one["kind"], one["name"], one["outcome"]) for one in found] == [
        ("ovn", "tenant/nobody", "would be deleted")
    ]
    assert _count(central, "Logical_Switch") == 2
    assert [one["outcome"] for one in operator.json("gc", "--kind", "ovn", "--yes")] == ["deleted"]
    assert (_count(central, "Logical_Switch"), _count(central, "Logical_Switch_Port")) == (1, before)
    assert operator.json("gc") == operator.json("repair") == []
    operator.does("delete-network", "front", "--tenant", "acme", "--yes")


def test_a_database_that_is_away_leaves_no_half_made_network_and_the_same_command_finishes(
    operator: Operator, central: LocalOvn
) -> None:
    central.stop()
    try:
        refused = operator.is_refused("create-network", "front", "--tenant", "acme", "--cidr", "10.0.0.0/24")
        assert refused["reference"] == "ovn-unreachable"
        assert refused["exit_code"] == 11
    finally:
        central.start()
    assert _count(central, "Logical_Switch") == 0
    assert _network(operator, "acme")
    assert operator.json("repair") == []
    central.stop()
    try:
        refused = operator.is_refused("create-vm", "web", "--tenant", "acme", "--network", "front", *SIZE)
        assert refused["reference"] == "ovn-unreachable"
        assert operator.json("list-vms") == []
    finally:
        central.start()
    kill_after(operator, "apply", "delete-network", "front", "--tenant", "acme", "--yes")
    operator.does("repair")
    assert operator.json("list-networks") == []
    assert _count(central, "Logical_Switch") == 0


def test_external_networks_are_declared_changed_and_deleted(operator: Operator) -> None:
    assert operator.json(*EXTERNAL)["changed"]
    assert not operator.json(*EXTERNAL)["changed"]
    assert operator.json(*EXTERNAL, "--vlan", "7")["changed"]
    assert [one["external_network"]["vlan"] for one in operator.json("list-external-networks")] == [7]
    assert operator.is_refused(*EXTERNAL, "--gateway", "203.0.113.20")["reference"] == "usage"
    for variables, code in (({"VGPUCTL_OVN_NORTHBOUND": "tcp:127.0.0.1:1"}, 11), ({}, 2)):
        refused = replace(operator, variables=variables).is_refused("delete-external-network", "--yes", "internet")
        assert refused["exit_code"] == code, "OVN is asked before the store"
    assert len(operator.json("list-external-networks")) == 1
    assert operator.json("delete-external-network", "--yes", "internet")["deleted"] == ["internet"]
    assert operator.json("delete-external-network", "--yes", "internet", "--if-exists")["deleted"] == []


def test_an_open_database_on_a_routable_address_is_refused(operator: Operator) -> None:
    routable = replace(operator, variables={"VGPUCTL_OVN_NORTHBOUND": "tcp:192.0.2.1:6641"})
    refused = routable.is_refused("create-network", "front", "--tenant", "acme", "--cidr", "10.0.0.0/24")
    assert (refused["reference"], "plain TCP on a routable address" in refused["message"]) == ("usage", True)


def test_a_vm_that_moves_keeps_its_addresses_and_a_forgotten_host_gives_them_back(
    operator: Operator, central: LocalOvn, fleet: lab.LabFolder
) -> None:
    def addresses() -> tuple[object, str, str]:
        ports = [(one["vm"], one["port"]) for one in operator.json("show-network", "front", *ACME)["ports"]]
        nat = central.nbctl("--bare", "--columns=external_ip,logical_ip", "list", "NAT")
        return ports, nat, central.nbctl("--bare", "--columns=name,addresses", "list", "Logical_Switch_Port")

    operator.does(*EXTERNAL)
    _network(operator, "acme")
    operator.does("create-gateway", "internet", *ACME)
    (made,) = operator.json("create-vm", "web", *ACME, "--network", "front", "--disk", "64MiB", *SIZE)
    source = made["vm"]["host"]
    operator.does("create-floating-ip", "web", *ACME)
    before, free = addresses(), operator.json("list-networks")[0]["free"]
    operator.does("drain-host", source, "--reason", "new disks", "--yes", "--shutdown-timeout", "0")
    (moved,) = operator.json("list-vms")
    target = moved["vm"]["host"]
    assert (moved["vm"]["uuid"], moved["vm"]["state"], target != source) == (made["vm"]["uuid"], "running", True)
    assert addresses() == before
    assert operator.json("repair") == []

    lab.faults.begin(target, "sshd", folder=fleet)
    try:
        operator.does("forget-host", target, "--fenced", "--reason", "no power", "--yes")
        assert operator.json("list-vms") == []
        assert operator.json("show-network", "front", *ACME)["ports"] == []
        assert operator.json("list-networks")[0]["free"] == free + 1
        assert operator.json("repair") == []
    finally:
        lab.faults.clear(target, folder=fleet)
    operator.does("uncordon-host", source)


def _rates(central: LocalOvn) -> set[str]:
    """The rates of all ports that OVN limits, in kbit/s."""
    found = central.nbctl("--format=csv", "--no-headings", "--columns=bandwidth", "list", "QoS")
    return set(re.findall(r"rate=([0-9]+)", found))


def test_a_vm_has_a_port_in_each_network_with_its_own_groups(operator: Operator, central: LocalOvn) -> None:
    """Also moved: all of its ports come along."""
    for number, name in enumerate(("left", "right"), 20):
        operator.does("create-network", name, *ACME, "--cidr", f"10.{number}.0.0/24")
    operator.does("create-security-group", "db", *ACME)
    operator.does("create-security-rule", "db", "tcp:5432", *ACME)
    nic = "right,security_groups=db,bandwidth_mbps=100"
    operator.does("create-vm", "both", *ACME, "--network", "left", "--nic", nic, *SIZE)
    shown = operator.json("show-vm", "both", *ACME)["interfaces"]
    assert [(one["network"], one["address"]) for one in shown] == [
        ("acme/left", "10.20.0.2"),
        ("acme/right", "10.21.0.2"),
    ]
    attached = operator.json("attach-nic", "both", "left", "--another", *ACME)
    assert (attached["position"], attached["address"]) == (2, "10.20.0.3")
    ports = {
        one["port"]["position"]: one["port"]["id"]
        for name in ("left", "right")
        for one in operator.json("show-network", name, *ACME)["ports"]
    }
    assert _rates(central) == {"100000"}
    operator.does("resize-vm", "both", *ACME, "--bandwidth", "right=200")
    assert _rates(central) == {"200000"}, "OVN limits the port while the VM runs"
    groups = central.nbctl("--format=csv", "--no-headings", "--columns=name,ports", "list", "Port_Group")
    uuids = {
        number: central.nbctl("get", "Logical_Switch_Port", port, "_uuid").strip() for number, port in ports.items()
    }
    sharing = [sum(uuid in line for uuid in uuids.values()) for line in groups.splitlines()]
    assert sorted(count for count in sharing if count)[0] == 1, "the second interface alone is in its group"
    in_use = operator.is_refused("delete-security-group", "db", *ACME, "--yes")
    assert in_use["context"] == ["security group db: VM both is in it"]
    operator.does("move-vm", "both", *ACME, "--shutdown-timeout", "0")
    xml = operator.json("show-vm", "both", *ACME)["xml"]
    parameters = ElementTree.fromstring(xml).iterfind("devices/interface/virtualport/parameters")
    assert [one.get("interfaceid") for one in parameters] == [ports[number] for number in (0, 1, 2)]
    assert operator.json("repair") == []
    operator.does("delete-vm", "both", *ACME, "--yes", "--timeout", "0")
    for port in ports.values():
        assert port not in central.nbctl("--format=csv", "--columns=name", "list", "Logical_Switch_Port")
    operator.does("delete-security-group", "db", *ACME, "--yes")
    for name in ("left", "right"):
        operator.does("delete-network", name, *ACME, "--yes")


SIX = """
version: 1
tenant: hooli
networks:
  front: {cidr: 10.0.0.0/24, cidr6: "fd00:1::/64", dns: [192.0.2.53, "fd00:53::1"]}
  six: {cidr6: "2001:db8:100::/64"}
security_groups:
  web: [{protocol: tcp, ports: 80}, {protocol: icmp, from: "fd00:1::/64"}]
gateway: world
floating_ips: [web]
load_balancers: {shop: {network: front, port: 80, vms: [web]}}
"""
WORLD = (
    *("create-external-network", "world", "--cidr", "203.0.113.0/24", "--gateway", "203.0.113.1", "--pool"),
    *("203.0.113.10-203.0.113.99", "--physical-network", "world", "--cidr6", "2001:db8::/64", "--gateway6", "fe80::1"),
    *("--pool6", "2001:db8::10-2001:db8::99", "--routed6", "2001:db8:100::/56"),
)


def test_ipv6_networks_of_a_file_are_as_those_of_commands_and_leave_nothing(
    operator: Operator, central: LocalOvn, tmp_path: Path
) -> None:
    hooli = ("--tenant", "hooli")
    operator.does(*WORLD)
    again = operator.json(*(word.replace("2001:db8:100", "2001:DB8:0100") for word in WORLD))
    assert (again["changed"], again["external_network"]["routed6"]) == (False, ["2001:db8:100::/56"])
    file = tmp_path / "hooli.yml"
    file.write_text(SIX)
    planned = operator.json("onboard", str(file), "--dry-run")["objects"]
    assert {one["name"] for one in planned if one["outcome"] == "created"} >= {"front", "six", "web", "shop"}, planned
    assert operator.json("onboard", str(file))["changed"]
    assert not operator.json("onboard", str(file))["changed"]
    six = ("--cidr", "10.0.0.0/24", "--cidr6", "FD00:1::/64", "--dns", "192.0.2.53", "--dns", "fd00:53::1")
    assert not operator.json("create-network", "front", *hooli, *six)["changed"]
    for words, said in (
        (("front", "--cidr", "10.0.0.0/24", "--dns", "192.0.2.53"), "exists with another specification"),
        (("b", "--cidr6", "fd00:1::/64"), "overlaps with 10.0.0.0/24, fd00:1::/64"),
        (("b", "--cidr6", "2001:db8:200::/64"), "not within a prefix that an external network routes"),
        (("b", "--cidr6", "2001:db8:100::/64", "--tenant", "acme"), "is another network's"),
        (("b", "--cidr6", "fd00:3::/64", "--backend", "libvirt"), "libvirt carries IPv4 alone"),
        (("b", "--cidr", "203.0.0.0/16"), "the external network world of its tenant's gateway"),
    ):
        owner = () if "--tenant" in words else hooli
        assert said in operator.is_refused("create-network", *words, *owner)["message"], words
    taken = ("--cidr", "10.0.0.0/16", "--gateway", "10.0.0.1", "--pool", "10.0.0.10-10.0.0.20")
    assert "network hooli/front" in operator.is_refused(*WORLD, *taken)["message"]
    operator.does("create-tenant", "soylent")
    same = ("--tenant", "soylent", "--cidr", "203.0.113.0/28", "--cidr6", "fd00:1::/64")
    assert operator.json("create-network", "same", *same)["changed"]
    assert "network soylent/same" in operator.is_refused("create-gateway", "world", "--tenant", "soylent")["message"]
    operator.does("delete-network", "same", "--tenant", "soylent", "--yes")
    nic = ("--network", "front", "--nic", "six", "--security-group", "web", *SIZE)
    operator.does("create-vm", "web", *hooli, *nic)
    shown = operator.json("show-vm", "web", *hooli)["interfaces"]
    assert [one["addresses"] for one in shown] == [["10.0.0.2", "fd00:1::2"], ["2001:db8:100::2"]]
    (listed,) = operator.json("list-vms", *hooli)
    assert listed["addresses"] == ["10.0.0.2", "fd00:1::2", "2001:db8:100::2"]
    front = operator.json("show-network", "front", *hooli)
    assert front["gateways"] == ["10.0.0.1", "fd00:1::1"]
    assert front["free"] == 254 - len(("gateway", "monitor", "balancer", "VM"))
    assert front["ports"][0]["port"]["address6"] == "fd00:1::2"
    assert "10.0.0.2, fd00:1::2" in operator.does("show-network", "front", *hooli).out
    security = central.nbctl("get", "Logical_Switch_Port", front["ports"][0]["port"]["id"], "port_security")
    assert " 10.0.0.2 fd00:1::2" in security
    own = ("find", "NAT", 'external_ids:vgpuctl-owner="tenant/hooli"')
    nat = central.nbctl("--format=csv", "--no-headings", "--columns=external_ip,logical_ip", *own).split()
    assert sorted(one.replace('"', "") for one in nat) == [
        "2001:db8::10,fd00:1::/64",
        "2001:db8::11,fd00:1::2",
        "203.0.113.10,10.0.0.0/24",
        "203.0.113.11,10.0.0.2",
    ]
    assert "[fd00:1::fffe]:80" in central.nbctl("--bare", "--columns=vips", "list", "Load_Balancer")
    assert operator.json("repair") == []
    found = json.loads(operator.run("check-vm", "web", *hooli, "--json").out)["findings"]
    assert [one["verdict"] for one in found if one["row"] == "ports"] == ["kept", "kept"], found
    refused = operator.is_refused("delete-external-network", "world", "--yes")
    assert "tenants hold" in refused["message"]
    operator.does("offboard-tenant", "hooli", "--yes", "--timeout", "0")
    operator.does("delete-external-network", "world", "--yes")
    assert operator.json("gc", "--kind", "ovn", "--dry-run") == []
    assert "hooli" not in central.nbctl("--format=csv", "--columns=external_ids", "list", "DHCP_Options")


def test_vms_have_names_that_follow_them(operator: Operator, central: LocalOvn) -> None:
    def names() -> set[str]:
        records = central.nbctl("--bare", "--columns=records", "list", "DNS").split()
        return {one.partition("=")[0] for one in records if not one.startswith("2.0.0.10")}

    nameless = operator
    operator = replace(operator, variables={**operator.variables, "VGPUCTL_INTERNAL_DOMAIN": "internal"})

    def shown(of: Operator = operator) -> tuple[str | None, list[str | None]]:
        found = of.json("show-network", "front", *ACME)
        return found["domain"], [one["name"] for one in found["ports"]]

    _network(nameless, "acme")
    nameless.does("create-vm", "web", *ACME, "--network", "front", *SIZE)
    assert (names(), shown(nameless)) == (set(), (None, [None]))
    assert [one["outcome"] for one in operator.json("repair")] == ["finished"]
    assert shown() == ("front.acme.internal", ["web.front.acme.internal"])
    assert names() == {"web", "web.front.acme.internal"}
    assert operator.json("list-vms")[0]["addresses"] == ["10.0.0.2"]
    central.nbctl("--all", "destroy", "DNS")
    assert [one["outcome"] for one in operator.json("repair")] == ["finished"]
    assert names() == {"web", "web.front.acme.internal"}
    operator.does("stop-vm", "web", *ACME, "--timeout", "0")
    operator.does("rename-vm", "web", "shop", *ACME)
    assert names() == {"shop", "shop.front.acme.internal"}
    operator.does("rename-vm", "shop", "no_label", *ACME)
    assert (names(), shown()) == (set(), ("front.acme.internal", [None]))
    assert "VM.front.acme.internal; none for no_label" in operator.does("show-network", "front", *ACME).out
    operator.does("rename-vm", "no_label", "Shop", *ACME)
    other = replace(operator, variables={**operator.variables, "VGPUCTL_INTERNAL_DOMAIN": "Cloud.Example.com."})
    assert [one["outcome"] for one in other.json("repair")] == ["finished"]
    assert names() == {"shop", "shop.front.acme.cloud.example.com"}
    assert shown(other) == ("front.acme.cloud.example.com", ["shop.front.acme.cloud.example.com"])
    wrong = replace(operator, variables={**operator.variables, "VGPUCTL_INTERNAL_DOMAIN": "under_score"})
    refused = wrong.is_refused("create-network", "back", *ACME, "--cidr", "10.0.1.0/24")
    assert (refused["reference"], "VGPUCTL_INTERNAL_DOMAIN" in refused["message"]) == ("usage", True)
    operator.does("delete-vm", "Shop", *ACME, "--yes", "--timeout", "0")
    assert names() == set()
    operator.does("delete-network", "front", *ACME, "--yes")
    assert _count(central, "DNS") == 0
