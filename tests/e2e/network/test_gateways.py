# SPDX-License-Identifier: Apache-2.0
"""Tenants' gateways over several hosts: spread, moved off a host that is drained, and shown with their carriers."""

import contextlib
import json
from dataclasses import replace

import pytest

from tests.e2e.operator import Operator
from tests.ovn_fixture import LocalOvn, central, chassis
from vgpuctl.ovn.gateways import chassis_order, gateway_port

__all__ = ["central", "chassis"]

FLEET = (2, "a40")
TENANTS = ("acme", "globex")
HOSTS = ("sim-001", "sim-002")
ACME = ("--tenant", "acme")
EXTERNAL = (
    *("create-external-network", "internet", "--cidr", "203.0.113.0/24", "--gateway", "203.0.113.1"),
    *("--pool", "203.0.113.10-203.0.113.99", "--physical-network", "provider"),
    *("--chassis", "sim-001", "--chassis", "sim-002"),
)


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator, central: LocalOvn, chassis: None) -> Operator:
    """An operator of two tenants with gateways that have different first hosts."""
    made = replace(fleet_operator, variables={"VGPUCTL_OVN_NORTHBOUND": central.northbound})
    made.does("list-hosts")
    made.does(*EXTERNAL)
    for tenant in TENANTS:
        made.does("create-tenant", tenant)
        made.does("create-network", "front", "--tenant", tenant, "--cidr", "10.0.0.0/24")
        made.does("create-gateway", "internet", "--tenant", tenant)
    return made


def test_gateways_leave_a_host_that_is_drained_and_come_back(operator: Operator, central: LocalOvn) -> None:
    """Without a southbound database nobody looks where they are; a gateway of one chassis alone keeps its host."""

    def firsts() -> dict[str, str]:
        text = central.nbctl("--format=csv", "--no-headings", "--columns=name,priority", "list", "Gateway_Chassis")
        names = [
            name.strip('"') for name, _, priority in (line.partition(",") for line in text.split()) if priority == "2"
        ]
        return dict(name.rsplit("_", 1) for name in names)

    def drain(host: str, *more: str, code: int = 0) -> list[tuple[str, str, str | None]]:
        command = ("drain-host", host, "--reason", "new disks", "--yes", *more)
        rows = operator.ends(code, *command)["vms"] if code else operator.json(*command)["vms"]
        return [(one["verdict"], one["outcome"], one["to"]) for one in rows if one["subject"] == "gateways to internet"]

    ports = {gateway_port(tenant): chassis_order(tenant, HOSTS)[0] for tenant in TENANTS}
    assert firsts() == ports and set(ports.values()) == {"sim-001", "sim-002"}, "not all have the same first one"
    assert drain("sim-002", "--dry-run") == [("move", "planned", "sim-001")]
    assert firsts() == ports, "a dry run changes nothing"
    assert drain("sim-002") == [("move", "moved", "sim-001")]
    assert set(firsts().values()) == {"sim-001"}
    assert (drain("sim-002"), operator.json("repair")) == ([], [])
    assert drain("sim-001", "--dry-run", code=10) == [("stay", "left", None)]
    assert drain("sim-001", code=10) == [("stay", "left", None)]
    assert "declare another with `vgpuctl create-external-network`" in str(
        operator.ends(10, "drain-host", "sim-001", "--reason", "x", "--yes")["vms"]
    )
    assert drain("sim-001", "--stop") == [("stay", "stays", None)]
    for host in HOSTS:
        operator.does("uncordon-host", host)
    assert firsts() == ports
    assert operator.json("repair") == []


def test_an_external_network_shows_who_carries_its_gateways(operator: Operator, central: LocalOvn) -> None:
    looking = replace(operator, variables={**operator.variables, "VGPUCTL_OVN_SOUTHBOUND": central.southbound})
    order = chassis_order("acme", HOSTS)
    show = ("show-external-network", "internet")
    shown = operator.json(*show)
    assert "southbound database was not named" in shown["not_looked_at"]
    assert [(one["name"], one["host"], one["in_ovn"], one["first_of"], one["carries"]) for one in shown["chassis"]] == [
        ("sim-001", "sim-001", None, 1, None),
        ("sim-002", "sim-002", None, 1, None),
    ]
    assert shown["findings"] == []
    for number, name in enumerate(HOSTS, 2):
        central.sbctl("chassis-add", name, "geneve", f"127.0.0.{number}")
    assert looking.json(*show)["findings"] == [f"gateway of {tenant}: no chassis carries it" for tenant in TENANTS]
    operator.does("create-vm", "web", *ACME, "--network", "front", "--memory", "96MiB", "--vcpus", "1")

    def verdict(of: Operator) -> list[tuple[str, str]]:
        checked = json.loads(of.run("check-vm", "web", *ACME, "--json").out)
        return [(one["verdict"], one["seen"]) for one in checked["findings"] if one["row"] == "gateway"]

    assert verdict(operator) == [("not-looked-at", "")]
    assert verdict(looking) == [("broken", "no chassis carries it")]
    for carrier, words in ((order[1], f"{order[1]} carries it, and {order[0]} is the first one"), (order[0], None)):
        with contextlib.suppress(AssertionError):
            central.sbctl("lsp-unbind", f"cr-{gateway_port('acme')}")
        central.sbctl("lsp-bind", f"cr-{gateway_port('acme')}", carrier)
        found = [one for one in looking.json(*show)["findings"] if "acme" in one]
        assert found == ([] if words is None else [f"gateway of acme: {words}"])
        assert verdict(looking) == [("kept", words or f"{carrier} carries it")]
    assert order[0] in looking.does(*show).out
    operator.does(*EXTERNAL, "--chassis", "gpu9")
    found = [one for one in looking.json(*show)["findings"] if "gpu9" in one]
    assert [one.partition(";")[0] for one in found] == [
        "chassis gpu9: no host of the inventory has it",
        "chassis gpu9: OVN has none of this name",
    ]
    wrong = replace(operator, variables={**operator.variables, "VGPUCTL_OVN_SOUTHBOUND": "tcp:192.0.2.1:6642"})
    assert "plain TCP on a routable address" in wrong.json(*show)["not_looked_at"]
    assert operator.is_refused("show-external-network", "intranet")["reference"] == "not-found"
    operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")
