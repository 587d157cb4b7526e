# SPDX-License-Identifier: Apache-2.0
"""explain-network: OVN's flows or the store say whether traffic passes, and which rule decides. list-security-rules and
check-vm: what OVN and the hosts say of rules and ports."""

import json
from dataclasses import replace

import pytest

from tests.e2e.operator import Operator
from tests.ovn_fixture import LocalOvn, central, chassis

__all__ = ["central", "chassis"]

ACME = ("--tenant", "acme")
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "front")
EXTERNAL = (
    *("create-external-network", "internet", "--cidr", "203.0.113.0/24", "--gateway", "203.0.113.1"),
    *("--pool", "203.0.113.10-203.0.113.99", "--physical-network", "provider", "--chassis", "of-the-tests"),
)


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator, central: LocalOvn, chassis: None) -> Operator:
    """An operator of a tenant with two VMs: everybody may ask web-1, and db-1 lets its own group alone in."""
    variables = {"VGPUCTL_OVN_NORTHBOUND": central.northbound, "VGPUCTL_OVN_SOUTHBOUND": central.southbound}
    made = replace(fleet_operator, variables=variables)
    made.does(*EXTERNAL)
    made.does("create-tenant", "acme")
    made.does("create-network", "front", *ACME, "--cidr", "10.0.0.0/24", "--cidr6", "fd00:1::/64")
    made.does("create-security-group", "web", *ACME, "--rule", "tcp:80", "--rule", "egress:deny:udp,priority=200")
    made.does("create-security-group", "db", *ACME, "--rule", "tcp:5432", "--rule", "reject:any@group:web,priority=300")
    made.does("create-vm", "web-1", *ACME, *SIZE, "--security-group", "web")
    made.does("create-vm", "db-1", *ACME, *SIZE, "--security-group", "db")
    made.does("create-gateway", "internet", *ACME)
    made.does("create-floating-ip", "web-1", *ACME)
    made.does("create-port-forward", "5432", "--vm", "db-1", *ACME)
    made.does("create-route", "10.66.0.0/16", "--via", "web-1", *ACME)
    made.does("create-route", "10.67.0.0/16", "--via", "discard", *ACME)
    return made


CASES = (
    ("db-1 web-1 tcp/80", True, ("egress allow None", "ingress allow tcp:80")),
    ("db-1 10.0.0.2 tcp/443", False, ("egress allow None", "ingress deny None")),
    ("web-1 db-1 tcp/5432", False, ("egress allow None", "ingress reject reject:any@group:web,priority=300")),
    ("web-1 db-1 udp/53", False, ("egress deny egress:deny:udp,priority=200",)),
    ("db-1 fd00:1::2 tcp/80", True, ("egress allow None", "ingress allow tcp:80")),
    ("web-1 fd00:1::3 icmp", False, ("egress allow None", "ingress reject reject:any@group:web,priority=300")),
    ("outside web-1 tcp/80", True, ("ingress allow tcp:80",)),
    ("198.51.100.9 db-1 tcp/5432", True, ("ingress allow tcp:5432",)),
    ("db-1 10.66.0.5 tcp/80", True, ("egress allow None", "ingress allow tcp:80")),
    ("db-1 10.66.0.5 tcp/443", False, ("egress allow None", "ingress deny None")),
    ("db-1 10.67.0.5 tcp/80", False, ("egress allow None",)),
    ("db-1 outside icmp", True, ("egress allow None",)),
)
ROUTES = {"10.66.0.5": "10.66.0.0/16 via web-1", "10.67.0.5": "10.67.0.0/16 via discard"}


@pytest.mark.parametrize("is_named", [True, False], ids=["ovn", "store"])
def test_ovn_and_the_store_name_the_same_rules(operator: Operator, is_named: bool) -> None:
    asked = operator if is_named else replace(operator, variables=dict(list(operator.variables.items())[:1]))
    for question, is_allowed, decisions in CASES:
        told = asked.json("explain-network", *question.split(), *ACME)
        found = tuple(f"{one['direction']} {one['action']} {one['rule']}" for one in told["decisions"])
        assert (told["is_allowed"], found) == (is_allowed, decisions), (question, told)
        assert told["route"] == ROUTES.get(question.split()[1])
        assert told["answered_by"] == ("ovn-trace" if is_named else "store")
        assert any("VGPUCTL_OVN_SOUTHBOUND" in one for one in told["remarks"]) is not is_named
        assert ("internet" in told["way"]) is (is_named and question.split()[0] in ("outside", "198.51.100.9"))
    assert told["way"] == (["front", "router"] if is_named else [])


def test_a_way_that_ends_without_a_rule_and_ends_that_do_not_fit_are_told(
    operator: Operator, central: LocalOvn
) -> None:
    for question, is_allowed in (("10.66.0.5 db-1 tcp/5432", True), ("10.66.0.5 outside tcp/80", False)):
        told = operator.json("explain-network", *question.split(), *ACME)
        assert (told["is_allowed"], told["answered_by"]) == (is_allowed, "store"), question
    assert "behind a route does not leave the tenant's own networks" in told["reason"]
    told = operator.json("explain-network", "outside", "db-1", "tcp/80", *ACME)
    assert (told["is_allowed"], told["answered_by"]) == (False, "store")
    assert "no port forward leads to its tcp/80" in told["reason"]
    away = replace(operator, variables={**operator.variables, "VGPUCTL_OVN_SOUTHBOUND": "unix:/nowhere/sb.sock"})
    told = away.json("explain-network", "db-1", "web-1", "tcp/80", *ACME)
    assert (told["is_allowed"], told["answered_by"]) == (True, "store")
    assert "unix:/nowhere/sb.sock: No such file or directory" in told["remarks"][0]
    for question, reference in (
        ("web-2 db-1 tcp/80", "not-found"),
        ("web-1 web-1 tcp/80", "usage"),
        ("outside 192.0.2.1 tcp/80", "usage"),
        ("10.0.0.99 db-1 tcp/80", "usage"),
        ("2001:db8::1 10.0.0.2 tcp/80", "usage"),
        ("db-1 fd00:1::2 icmp/type-13", "usage"),
        ("web-1 db-1 80", "usage"),
    ):
        assert operator.is_refused("explain-network", *question.split(), *ACME)["reference"] == reference, question
    routable = replace(operator, variables={**operator.variables, "VGPUCTL_OVN_SOUTHBOUND": "tcp:192.0.2.1:6642"})
    refused = routable.is_refused("explain-network", "web-1", "db-1", "tcp/80", *ACME)
    assert "southbound database at tcp:192.0.2.1:6642 is refused" in refused["message"]


def test_rules_have_the_packets_that_hosts_counted(operator: Operator) -> None:
    rows = operator.json("list-security-rules", *ACME)
    assert {one["not_looked_at"] for one in rows if one["host"]} == {""}
    counted = {(one["group"], one["rule"]): one for one in rows if one["host"]}
    assert {"tcp:80", "egress:deny:udp,priority=200"} == {rule for group, rule in counted if group == "web"}
    assert {(None, "no rule allows it"), (None, "the tenant's default for egress is allow")} <= counted.keys()
    assert all(one["packets"] > 0 and one["bytes"] > 0 and one["since"] > 0 for one in counted.values())
    (idle, *_) = [one for one in rows if one["group"] == "default"]
    assert (idle["packets"], idle["not_looked_at"]) == (None, "no VM that it is for runs")
    assert "tcp:5432" in operator.does("list-security-rules", *ACME, "--group", "db").out
    only_north = replace(operator, variables=dict(list(operator.variables.items())[:1]))
    told = only_north.json("list-security-rules", *ACME, "--group", "web")
    assert {one["packets"] for one in told} == {None}
    assert {one["not_looked_at"] for one in told} == {"OVN's southbound database was not named"}
    for wrong in (("--group", "none"), ("--tenant", "nobody")):
        assert operator.is_refused("list-security-rules", *(ACME if "--group" in wrong else ()), *wrong)


def test_a_port_is_on_the_chassis_of_its_host_and_its_switch_says_so(operator: Operator, central: LocalOvn) -> None:
    (vm,) = [one for one in operator.json("list-vms") if one["name"] == "web-1"]
    ports = operator.json("show-network", "front", *ACME)["ports"]
    (port,) = [one["port"]["id"] for one in ports if one["vm"] == "web-1"]

    def row() -> tuple[str, str]:
        checked = json.loads(operator.run("check-vm", "web-1", *ACME, "--json").out)
        (found,) = [one for one in checked["findings"] if one["row"] == "ports"]
        return found["verdict"], found["seen"].partition(",")[0]

    assert row() == ("broken", "up on of-the-tests")
    central.sbctl("chassis-add", vm["host"], "geneve", "127.0.0.9")
    central.sbctl("lsp-unbind", port)
    central.sbctl("lsp-bind", port, vm["host"])
    central.sync()
    assert row() == ("kept", f"up on {vm['host']}")
    readings = operator.json("inspect-host", vm["host"], "--readings")["readings"]
    values = [value for one in readings["vms"] for value in one["measured"]["values"] if value[0] == "network_port_up"]
    assert [port, 1.0] in [[value[1][1], value[2]] for value in values]
