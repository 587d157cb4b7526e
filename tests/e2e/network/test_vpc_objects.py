# SPDX-License-Identifier: Apache-2.0
"""Gateways, groups, balancers and peerings by commands: the same rows as by a tenant's file, on a real OVN central."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.kills import kill_after, paired_points
from tests.e2e.operator import Operator
from tests.ovn_fixture import LocalOvn, central, chassis

__all__ = ["central", "chassis"]

EXTERNAL = (
    *("create-external-network", "internet", "--cidr", "203.0.113.0/24", "--gateway", "203.0.113.1"),
    *("--pool", "203.0.113.10-203.0.113.99", "--physical-network", "provider"),
)
VM = ("create-vm", "web-1", "--tenant", "acme", "--network", "front", "--memory", "96MiB", "--vcpus", "1")
FILE = """
version: 1
tenant: acme
networks:
  front: {cidr: 10.0.0.0/24, direct_connect: {physical_network: provider, vlan: 42}}
address_groups: {partners: [192.0.2.0/24]}
egress_policy: allow
security_groups:
  inner: []
  web:
    - {protocol: tcp, ports: 80}
    - {protocol: udp, ports: 8000-8010, from: 10.9.0.0/24}
    - {from: "group:inner"}
    - {action: deny, protocol: tcp, to: "addresses:partners", priority: 200, log: true}
gateway: internet
floating_ips: [web-1]
port_forwards: [{protocol: udp, port: 53, vm: web-1, vm_port: 5353}]
load_balancers:
  shop: {network: front, port: 80, vms: [web-1, web-2], vm_port: 8080, failures: 2}
peerings: [globex]
routes: {10.66.0.0/16: [web-1]}
"""
RULES = "tcp:80, udp:8000-8010@10.9.0.0/24, any@group:inner, egress:deny:tcp@addresses:partners,priority=200,log"
# How each object is made, another shape of it, what the refusal says of it, and how it is deleted.
OBJECTS: tuple[tuple[tuple[str, ...], tuple[str, ...], str, tuple[str, ...]], ...] = (
    (
        ("create-address-group", "partners", "--address", "192.0.2.0/24"),
        ("--address", "198.51.100.7"),
        "addresses: 192.0.2.0/24 there, 192.0.2.0/24, 198.51.100.7/32 wanted",
        ("delete-address-group", "partners"),
    ),
    (("create-egress-policy", "allow"), (), "", ("delete-egress-policy",)),
    (
        ("create-security-group", "inner"),
        ("--rule", "icmp"),
        "rules: none there, icmp wanted",
        ("delete-security-group", "inner"),
    ),
    (
        (
            *("create-security-group", "web", "--rule", "tcp:80", "--rule", "udp:8000-8010@10.9.0.0/24"),
            *("--rule", "any@group:inner", "--rule", "egress:deny:tcp@addresses:partners,priority=200,log"),
        ),
        ("--rule", "tcp:443"),
        f"rules: {RULES} there, {RULES}, tcp:443 wanted",
        ("delete-security-group", "web"),
    ),
    (("create-gateway", "internet"), (), "", ("delete-gateway",)),
    (
        ("create-direct-connect", "front", "--physical-network", "provider", "--vlan", "42"),
        ("--vlan", "43"),
        "vlan: 42 there, 43 wanted",
        ("delete-direct-connect", "front"),
    ),
    (
        (
            *("create-load-balancer", "shop", "--network", "front", "--port", "80", "--vm", "web-1", "--vm", "web-2"),
            *("--vm-port", "8080", "--failures", "2"),
        ),
        ("--port", "81"),
        "port: 80 there, 81 wanted",
        ("delete-load-balancer", "shop"),
    ),
    (("create-floating-ip", "web-1"), (), "", ("delete-floating-ip", "web-1")),
    (
        ("create-port-forward", "udp/53", "--vm", "web-1", "--vm-port", "5353"),
        ("--vm-port", "53"),
        "vm_port: 5353 there, 53 wanted",
        ("delete-port-forward", "udp/53"),
    ),
    (("create-peering", "globex"), (), "", ("delete-peering", "globex")),
    (
        ("create-route", "10.66.0.0/16", "--via", "web-1"),
        ("--via", "web-2"),
        "via: web-1 there, web-1, web-2 wanted",
        ("delete-route", "10.66.0.0/16"),
    ),
)


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator, central: LocalOvn, chassis: None) -> Operator:
    """An operator of a tenant with a network; every test deletes what it made."""
    made = replace(fleet_operator, variables={"VGPUCTL_OVN_NORTHBOUND": central.northbound})
    made.does(*EXTERNAL)
    made.does("create-tenant", "acme")
    made.does("create-network", "front", "--tenant", "acme", "--cidr", "10.0.0.0/24")
    return made


def _names(operator: Operator) -> list[str]:
    return [f"{one['kind']} {one['name']}" for one in operator.json("list-vpc-objects", "--tenant", "acme")]


def test_commands_make_what_a_tenant_s_file_makes_and_take_it_away(
    operator: Operator, central: LocalOvn, tmp_path: Path
) -> None:
    tenant = ("--tenant", "acme")
    for command, other, difference, _delete in OBJECTS:
        if command[0] == "create-floating-ip":
            told = operator.json(*command, *tenant, "--dry-run")
            assert (told["dry_run"], told["object"]["spec"]["address"]) == (True, "203.0.113.11")
            assert "floating-ip web-1" not in _names(operator), "a dry run writes nothing"
        assert operator.json(*command, *tenant)["changed"], command
        assert not operator.json(*command, *tenant)["changed"], command
        if other:
            refused = operator.is_refused(*command, *other, *tenant)
            assert (refused["reference"], refused["context"]) == ("vpc-object-differs", [difference])
    operator.does(*VM, "--security-group", "web")
    assert "203.0.113.11 10.0.0.2" in central.nbctl(
        "--bare", "--columns=external_ip,logical_ip", "list", "NAT"
    ).replace("\n", " ")
    balancers = central.nbctl("--bare", "--columns=vips", "list", "Load_Balancer").split()
    assert sorted(balancers) == ["10.0.0.253:80=10.0.0.2:8080", "203.0.113.10:53=10.0.0.2:5353"]
    file = tmp_path / "acme.yml"
    file.write_text(FILE)
    outcomes = {
        (one["kind"], one["outcome"]) for one in operator.json("onboard", str(file))["objects"] if one["kind"] != "vm"
    }
    assert {outcome for _kind, outcome in outcomes} == {"unchanged"}, "the file finds what the commands made"
    assert len(outcomes) == len({command[0] for command, *_ in OBJECTS}) + 2
    assert operator.json("repair") == []
    (network,) = operator.json("list-networks")
    assert network == operator.json("show-network", "front", *tenant)
    assert network["free"] == 254 - len(("gateway", "monitor", "balancer", "VM"))
    for command, blocker in (
        (("delete-security-group", "web"), ["security group web: VM web-1 is in it"]),
        (("delete-address-group", "partners"), ["address group partners: a rule of security group web names it"]),
        (("delete-security-group", "inner"), ["security group inner: a rule of group web names it"]),
        (
            ("delete-gateway",),
            [
                "gateway: floating-ip web-1 uses it",
                "gateway: port-forward udp/53 uses it",
            ],
        ),
    ):
        refused = operator.is_refused(*command, *tenant, "--yes")
        assert (refused["reference"], refused["context"]) == ("network-in-use", blocker)
    operator.does("delete-vm", "web-1", *tenant, "--yes", "--timeout", "0")
    for _create, _other, _difference, command in reversed(OBJECTS):
        delete = (*command, *tenant, "--yes")
        names = [f"acme/{one}" for one in command[1:] or [command[0].removeprefix("delete-")]]
        if command[0] == "delete-port-forward":
            assert operator.json(*delete, "--dry-run") == {"deleted": [], "would_delete": names, "dry_run": True}
        assert operator.json(*delete)["deleted"] == names
    assert operator.is_refused(*delete)["reference"] == "not-found"
    assert operator.json(*delete, "--if-exists")["deleted"] == []
    assert _names(operator) == []
    assert operator.json("repair") == []
    assert central.nbctl("--bare", "--columns=_uuid", "list", "Load_Balancer").split() == []


def test_rules_change_one_by_one_and_a_file_counts_them_as_its_own_only_when_it_says_so(
    operator: Operator, central: LocalOvn, tmp_path: Path
) -> None:
    tenant = ("--tenant", "acme")
    operator.does("create-security-group", "web", "--rule", "tcp:80", *tenant)
    for _ in range(2):
        operator.does("create-security-rule", "web", "tcp:443", "icmp", *tenant)
        operator.does("delete-security-rule", "--yes", "web", "tcp:80", *tenant)
        asked = operator.is_refused("delete-security-rule", "nowhere", "tcp:80", *tenant)
        assert asked["reference"] == "not-found", "it looks before it asks"
    (group,) = operator.json("list-vpc-objects", "--kind", "security-group")
    assert [rule["ports"] for rule in group["spec"]["rules"]] == [[443, 443], None]
    assert "tcp.dst == 443" in central.nbctl("--bare", "--columns=match", "list", "ACL")
    for command, reference in (
        (("create-security-rule", "web", "tcp:80@group:no"), "not-found"),
        (("create-security-rule", "web", "tcp:80@addresses:no"), "not-found"),
        (("create-security-rule", "no", "tcp:80"), "not-found"),
        (("create-security-rule", "web", "deny:tcp:443"), "usage"),
        (("create-security-rule", "web", "deny:tcp:443,priority=1001"), "usage"),
        (("create-egress-policy", "maybe"), "usage"),
        (("set-address-group", "no", "--add-address", "192.0.2.1"), "not-found"),
        (("create-security-rule", "web", "icmp:80"), "usage"),
        (("create-security-rule", "web", "tcp:80-70"), "usage"),
        (("create-security-rule", "web", "tcp:80@10.0.0.1/8"), "usage"),
        (("create-port-forward", "80-81", "--vm", "a"), "usage"),
        (("create-floating-ip", "web-1"), "state"),
        (("create-load-balancer", "shop", "--network", "no", "--port", "80", "--vm", "a"), "not-found"),
        (("create-gateway", "nowhere"), "not-found"),
    ):
        assert operator.is_refused(*command, *tenant)["reference"] == reference, command
    told = operator.json("create-security-rule", "web", "deny:any,priority=7", "any@group:web,priority=6", *tenant)
    never = "any@group:web,priority=6 never matches: security group web has no members"
    assert told["remarks"] == told["object"]["remarks"] == [never]
    assert [one["remarks"] for one in operator.json("list-vpc-objects", *tenant)] == [[never]]
    file = tmp_path / "acme.yml"
    file.write_text("version: 1\ntenant: acme\nnetworks: {front: {cidr: 10.0.0.0/24}}\n")
    found = operator.json("onboard", str(file))["objects"]
    assert {"kind": "security-group", "name": "web", "outcome": "not in the file", "detail": []} in found
    operator.does("onboard", str(file), "--prune")
    assert _names(operator) == []


def test_a_balancer_gets_other_vms_and_checks_and_keeps_its_address(operator: Operator, central: LocalOvn) -> None:
    tenant = ("--tenant", "acme")
    balancer = ("set-load-balancer", "shop", *tenant)
    create = ("create-load-balancer", "shop", "--network", "front", "--port", "80", *tenant)
    operator.does(*create, "--vm", "web-1")
    operator.does(*VM)
    before = operator.json("list-vpc-objects", *tenant)[0]["spec"]
    change = (*balancer, "--add-vm", "web-2", "--add-vm", "web-1", "--remove-vm", "gone", "--interval", "9")
    rehearsed = operator.json(*change, "--dry-run")
    assert (rehearsed["dry_run"], rehearsed["object"]["spec"]["vms"]) == (True, ["web-1", "web-2"])
    assert operator.json("list-vpc-objects", *tenant)[0]["spec"] == before, "a dry run writes nothing"
    for is_changed in (True, False):
        told = operator.json(*change)
        assert told["changed"] is is_changed
        assert told["object"]["spec"] == before | {"vms": ["web-1", "web-2"], "health_interval_s": 9}
        assert told["remarks"] == ["tenant acme has no VM web-2 yet"]
    told = central.nbctl("--bare", "--columns=options", "list", "Load_Balancer_Health_Check")
    assert "interval=9" in told.replace('"', "")
    operator.does(*balancer, "--vm-port", "8080", "--remove-vm", "web-2")
    (vip,) = central.nbctl("--bare", "--columns=vips", "list", "Load_Balancer").split()
    assert (vip.partition("=")[0], vip.rpartition(":")[2]) == (f"{before['address']}:80", "8080")
    operator.does(*balancer, "--drain", "web-1", "--weight", "web-1=3", "--hash", "five-tuple", "--affinity-time", "60")
    told = operator.json(*balancer, "--drain", "web-1", "--add-vm", "web-2", "--weight", "web-2=2")
    chosen = {name: told["object"]["spec"][name] for name in ("selection", "affinity_s", "draining", "weights")}
    assert list(chosen.values()) == ["five-tuple", 60, ["web-1"], ["web-1=3", "web-2=2"]]
    operator.does(*balancer, "--undrain", "web-1", "--remove-vm", "web-2")
    told = central.nbctl("--bare", "--columns=vips,options,selection_fields", "list", "Load_Balancer")
    assert told.count("10.0.0.2:8080") == 3, told
    assert {*told.split()[1:]} == {"affinity_timeout=60", "ip_dst", "ip_src", "tp_dst", "tp_src"}
    shown = operator.json("show-load-balancer", "shop", *tenant)
    assert shown["members"] == [{"vm": "web-1", "address": "10.0.0.2", "weight": 3, "state": "not looked at"}]
    assert "VGPUCTL_OVN_SOUTHBOUND" in shown["not_looked_at"]
    looking = replace(operator, variables={**operator.variables, "VGPUCTL_OVN_SOUTHBOUND": central.southbound})
    shown = looking.json("show-load-balancer", "shop", *tenant)
    assert (shown["members"][0]["state"], shown["not_looked_at"]) == ("not checked yet", None)
    refused = operator.is_refused(
        "create-load-balancer", "shop", "--network", "front", "--port", "80", "--vm", "a", *tenant
    )
    assert "vgpuctl set-load-balancer" in refused["hint"]
    for command, reference in (
        ((*balancer, "--remove-vm", "web-1"), "usage"),
        ((*balancer, "--add-vm", "a", "--remove-vm", "a"), "usage"),
        ((*balancer, "--add-vm", "Not a name"), "usage"),
        ((*balancer, "--drain", "nobody"), "usage"),
        ((*balancer, "--weight", "web-1=17"), "usage"),
        (("show-load-balancer", "shpo", *tenant), "not-found"),
        (balancer, "usage"),
        (("set-load-balancer", "shpo", "--add-vm", "a", *tenant), "not-found"),
    ):
        assert operator.is_refused(*command)["reference"] == reference, command
    assert operator.json("list-vpc-objects", *tenant)[0]["spec"]["vms"] == ["web-1"]
    operator.does("create-network", "six", *tenant, "--cidr6", "fd00:6::/64")
    six = ("create-load-balancer", "six", "--network", "six", "--port", "80", "--vm", "a", "--hash", "source", *tenant)
    if "ipv6_src" in Path("/usr/share/ovn/ovn-nb.ovsschema").read_text():
        operator.does(*six)
        operator.does("delete-load-balancer", "six", *tenant, "--yes")
    else:
        assert "OVN 25.03 can, and 23.03 cannot" in operator.is_refused(*six)["hint"]
    operator.does("delete-network", "six", *tenant, "--yes")
    operator.does("delete-vm", "web-1", *tenant, "--yes", "--timeout", "0")
    operator.does("delete-load-balancer", "shop", *tenant, "--yes")


def test_a_route_gets_other_next_hops_and_drops_its_packets_without_one(operator: Operator, central: LocalOvn) -> None:
    route, tenant = "10.66.0.0/16", ("--tenant", "acme")
    operator.does(*VM)
    operator.does("create-route", route, *tenant, "--via", "web-1")
    hops = ("--bare", "--columns=nexthop", "list", "Logical_Router_Static_Route")
    assert central.nbctl(*hops).split() == ["10.0.0.2"]
    secured = ("--bare", "--columns=port_security", "list", "Logical_Switch_Port")
    assert f"10.0.0.2 {route}" in central.nbctl(*secured)
    change = ("set-route", route, *tenant, "--add-via", "web-2", "--remove-via", "web-1")
    for is_changed in (True, False):
        told = operator.json(*change)
        assert (told["changed"], told["object"]["spec"]["next_hops"]) == (is_changed, ["web-2"])
        assert told["remarks"] == [
            "tenant acme has no VM web-2, so nothing is sent to it",
            "no next hop is left, so packets to it are dropped",
        ]
    assert central.nbctl(*hops).split() == ["discard"]
    assert route not in central.nbctl(*secured)
    for command, reference in (
        (("set-route", route, "--remove-via", "web-2"), "usage"),
        (("set-route", route, "--add-via", "discard"), "usage"),
        (("set-route", "10.67.0.0/16", "--add-via", "web-1"), "not-found"),
        (("create-route", "10.0.0.0/25", "--via", "web-1"), "network-in-use"),
        (("create-network", "wide", "--cidr", "10.66.0.0/15"), "network-in-use"),
    ):
        assert operator.is_refused(*command, *tenant)["reference"] == reference, command
    operator.does("delete-route", f"acme/{route}", "--yes")
    assert central.nbctl(*hops).split() == []
    operator.does("delete-vm", "web-1", *tenant, "--yes", "--timeout", "0")


@pytest.mark.long(
    "tests/e2e/network/test_networks.py::test_after_kill_9_anywhere_the_same_command_or_repair_finishes",
    "tests/e2e/network/test_vpc_objects.py::test_commands_make_what_a_tenant_s_file_makes_and_take_it_away",
)
def test_after_kill_9_anywhere_the_same_command_or_repair_finishes(operator: Operator, central: LocalOvn) -> None:
    operator.does("create-gateway", "internet", "--tenant", "acme")
    create = ("create-load-balancer", "shop", "--network", "front", "--port", "80", "--vm", "a", "--tenant", "acme")
    delete = ("delete-load-balancer", "shop", "--tenant", "acme", "--yes", "--if-exists")

    def balancers() -> int:
        return len(central.nbctl("--bare", "--columns=_uuid", "list", "Load_Balancer").split())

    for create_point, delete_point in paired_points(operator, create, delete):
        kill_after(operator, create_point, *create)
        operator.does(*create)
        assert balancers() == 1, f"created after a kill at {create_point}"
        kill_after(operator, delete_point, *delete)
        operator.does(*delete)
        assert balancers() == 0, f"deleted after a kill at {delete_point}"
    kill_after(operator, 2, *create)
    assert (balancers(), len(_names(operator))) == (0, 2), "the row is there, OVN has nothing yet"
    assert [one["outcome"] for one in operator.json("repair")] == ["finished"]
    assert balancers() == 1
    kill_after(operator, "apply", *delete)
    assert (balancers(), len(_names(operator))) == (0, 2), "OVN has it no more, its row is there"
    assert [one["outcome"] for one in operator.json("repair")] == ["finished"]
    assert balancers() == 1
    operator.does(*delete)
    operator.does("delete-gateway", "--tenant", "acme", "--yes")
    assert operator.json("repair") == []


def test_neighbours_are_joined_once_both_want_it_and_parted_as_soon_as_one_does_not(
    operator: Operator, central: LocalOvn
) -> None:
    def routes() -> list[str]:
        return sorted(central.nbctl("--bare", "--columns=ip_prefix", "list", "Logical_Router_Static_Route").split())

    operator.does("create-tenant", "globex")
    operator.does("create-network", "front", "--tenant", "globex", "--cidr", "10.0.0.0/16")
    refused = operator.is_refused("create-peering", "acme", "--tenant", "globex")
    assert (refused["reference"], "of a peered tenant" in refused["message"]) == ("network-in-use", True)
    operator.does("delete-network", "front", "--tenant", "globex", "--yes")
    operator.does("create-network", "front", "--tenant", "globex", "--cidr", "10.1.0.0/24")
    told = operator.json("create-peering", "acme", "--tenant", "globex")
    assert (told["remarks"], routes()) == (["it takes effect once tenant acme has a peering with globex"], [])
    assert operator.json("create-peering", "globex", "--tenant", "acme")["remarks"] == []
    assert routes() == ["10.0.0.0/24", "10.1.0.0/24"]
    delete = ("delete-peering", "acme", "--tenant", "globex", "--yes")
    kill_after(operator, "apply", *delete)
    assert routes() == [], "both routers are parted before the row goes"
    operator.does(*delete)
    operator.does("delete-peering", "globex", "--tenant", "acme", "--yes")
    operator.does("delete-network", "front", "--tenant", "globex", "--yes")
    assert operator.json("repair") == []


def test_while_ovn_is_away_nothing_is_written(operator: Operator, central: LocalOvn) -> None:
    central.stop()
    try:
        refused = operator.is_refused("create-gateway", "internet", "--tenant", "acme")
        assert (refused["reference"], refused["exit_code"]) == ("ovn-unreachable", 11)
        assert _names(operator) == []
    finally:
        central.start()
    assert operator.json("create-gateway", "internet", "--tenant", "acme")["changed"]
    operator.does("delete-gateway", "--tenant", "acme", "--yes")


def test_balancers_and_public_addresses_have_quotas(operator: Operator, tmp_path: Path) -> None:
    """By the command that makes one and by the tenant's file; an address that is held already is free to keep."""
    acme = ("--tenant", "acme")
    balancer = ("create-load-balancer", "shop", "--network", "front", "--port", "80", "--vm", "web-1")
    floating = ("create-floating-ip", "web-1")
    file = tmp_path / "acme.yml"
    file.write_text(FILE)
    operator.does("create-gateway", "internet", *acme)
    for resource, limit, command in (("load-balancers", 0, balancer), ("public-addresses", 1, floating)):
        operator.does("set-quota", "acme", f"{resource}={limit}")
        for rehearsed in ((), ("--dry-run",)):
            refused = operator.is_refused(*command, *acme, *rehearsed)
            assert (refused["reference"], resource in refused["message"]) == ("quota-exceeded", True), refused
        assert f"set-quota acme {resource}={limit + 1}" in refused["hint"]
        refused = operator.is_refused("onboard", str(file))
        assert (refused["reference"], resource in refused["message"]) == ("quota-exceeded", True), refused
        operator.does("create-gateway", "internet", *acme)
        operator.does("set-quota", "acme", f"{resource}={limit + 1}")
        operator.does(*command, *acme)
        operator.does(*command, *acme)
        operator.does("set-quota", "acme", f"{resource}=none")
    found = operator.json("show-tenant", "acme")["tenant"]["quotas"]
    assert [one["resource"] for one in found if one["limit"] is not None] == []
    operator.does("delete-load-balancer", "shop", *acme, "--yes")
    operator.does("delete-floating-ip", "web-1", *acme, "--yes")


def test_a_vpn_connection_has_keys_that_are_shown_once_or_never(
    operator: Operator, central: LocalOvn, tmp_path: Path
) -> None:
    tenant = ("--tenant", "acme")
    operator.does("create-gateway", "internet", *tenant)
    create = ("create-vpn-connection", "office", "--network", "front", "--peer-prefix", "192.168.10.0/24", *tenant)
    assert operator.json(*create, "--dry-run")["changed"]
    assert _names(operator) == ["gateway gateway"], "a dry run writes nothing"
    told = operator.json(*create)
    spec = told["object"]["spec"]
    assert f"our side is at 203.0.113.10:51820, with public key {spec['public_key']}" in told["remarks"]
    assert not operator.json(*create)["changed"]
    rotate = ("rotate-vpn-keys", "office", *tenant)
    assert operator.json(*rotate, "--dry-run")["public_key"] != spec["public_key"]
    made = operator.json(*rotate, "--peer")
    assert f"PublicKey = {made['public_key']}\n" in made["configuration"]
    private = made["configuration"].partition("PrivateKey = ")[2].splitlines()[0]
    (shown,) = (one["spec"] for one in operator.json("list-vpc-objects", *tenant) if one["kind"] == "vpn-connection")
    assert (shown["public_key"], shown["made_peer_key"]) == (made["public_key"], made["peer_key"])
    assert shown["public_key"] != spec["public_key"]
    (forwarded,) = central.nbctl("--bare", "--columns=vips", "list", "Load_Balancer").split()
    assert forwarded == f"203.0.113.10:51820={shown['address']}:51820"
    file = tmp_path / "acme.yml"
    vpn = "vpn_connections: {office: {network: front, prefixes: [192.168.10.0/24]}}"
    file.write_text(f"version: 1\ntenant: acme\nnetworks: {{front: {{cidr: 10.0.0.0/24}}}}\ngateway: internet\n{vpn}\n")
    outcomes = {one["kind"]: one["outcome"] for one in operator.json("onboard", str(file))["objects"]}
    assert outcomes["vpn-connection"] == "unchanged", "the peer's key that was made here stays"
    secret = tmp_path / "psk"
    secret.write_text(f"{private}\n")
    change = ("set-vpn-connection", "office", "--preshared-key", str(secret), "--peer-key", made["peer_key"], *tenant)
    refused = operator.is_refused(*change)
    assert refused["reference"] == "file-not-trusted", "others can read it"
    secret.chmod(0o600)
    assert operator.json(*change)["changed"]
    assert operator.is_refused(*rotate, "--peer")["reference"] == "usage"
    assert "PresharedKey" not in str(operator.json(*rotate))
    for command in (("list-vpc-objects", *tenant), ("list-events",)):
        assert private not in str(operator.json(*command))
    refused = operator.is_refused("delete-gateway", *tenant, "--yes")
    assert refused["context"] == ["gateway: vpn-connection office uses it"]
    refused = operator.is_refused("create-network", "late", *tenant, "--cidr", "192.168.10.0/28")
    assert refused["reference"] == "network-in-use"
    operator.does("delete-vpn-connection", "office", *tenant, "--yes")
    operator.does("delete-gateway", *tenant, "--yes")
    assert _names(operator) == []
    assert central.nbctl("--bare", "--columns=_uuid", "list", "Load_Balancer").split() == []
