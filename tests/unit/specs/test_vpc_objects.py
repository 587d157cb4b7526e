# SPDX-License-Identifier: Apache-2.0
"""The table of VPC objects: commands and tenant files make equal objects, and every kind has its commands."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from vgpuctl.cli.contents import MADE_BY
from vgpuctl.cli.network.vpc_objects import make
from vgpuctl.errors import InventoryError, UsageError
from vgpuctl.model.network import Backend
from vgpuctl.model.rule_text import describe_rule
from vgpuctl.model.security_rule import Rule
from vgpuctl.model.vpc import SecurityGroup, VpcSpec
from vgpuctl.model.vpc_kind import VpcKind
from vgpuctl.specs.security_rule import RULE
from vgpuctl.specs.tenant import read_tenant_files
from vgpuctl.specs.vpc_objects import KIND_OF, KINDS, LISTED, describe, is_same, list_differences

PEER_KEY = "fE/wdxzl0klVp/IR8UcaoGUMjqaWi3jAd7KzHKFS6Ds="
GIVEN: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "gateway": ({"external_network": "internet"}, "gateway: internet", "gateway", "to internet"),
    "security-group": (
        {"name": "web", "rules": ("tcp:80", "udp:8000-8010@10.9.0.0/24", "any@group:web", "tcp:80")},
        "security_groups: {web: [{protocol: tcp, ports: 80}, 'udp:8000-8010@10.9.0.0/24', {from: 'group:web'}]}",
        "web",
        "rules: tcp:80, udp:8000-8010@10.9.0.0/24, any@group:web",
    ),
    "address-group": (
        {"name": "partners", "addresses": ("192.0.2.0/24", "198.51.100.7", "192.0.2.0/24")},
        "address_groups: {partners: [192.0.2.0/24, 198.51.100.7]}",
        "partners",
        "192.0.2.0/24, 198.51.100.7/32",
    ),
    "egress-policy": (
        {"default": "deny"},
        "egress_policy: deny",
        "egress-policy",
        "deny traffic from VMs that no rule is about",
    ),
    "direct-connect": (
        {"network": "front", "physical_network": "provider", "vlan": None},
        "networks: {front: {cidr: 10.0.0.0/24, direct_connect: {physical_network: provider}}}",
        "front",
        "provider, VLAN: untagged",
    ),
    "route": (
        {"prefix": "10.66.0.0/16", "via": ("fw-1", "fw-2@back", "10.0.1.9", "fw-1")},
        "routes: {10.66.0.0/16: [fw-1, fw-2@back, 10.0.1.9]}",
        "10.66.0.0/16",
        "via fw-1, fw-2@back, 10.0.1.9",
    ),
    "load-balancer": (
        {
            "name": "shop",
            "network": "front",
            "port": 80,
            "vms": ("a", "b", "a"),
            "failures": 2,
            "hash": "source",
            "affinity_s": 60,
            "draining": ("b",),
            "weights": ("a=03",),
        },
        "load_balancers: {shop: {network: front, port: 80, vms: [a, b], failures: 2, hash: source, affinity_s: 60,"
        " draining: [b], weights: [a=3]}}",
        "shop",
        ":80 of front to a, b, port 80",
    ),
    "floating-ip": ({"vm": "a"}, "floating_ips: [a]", "a", " is a's"),
    "port-forward": (
        {"forwarded": "udp/53", "vm": "a", "vm_port": 5353},
        "port_forwards: [{protocol: udp, port: 53, vm: a, vm_port: 5353}]",
        "udp/53",
        ":53 to a:5353",
    ),
    "vpn-connection": (
        {
            **{"name": "office", "network": "front", "prefixes": ("192.168.10.0/24", "192.168.12.7"), "port": 51821},
            **{"peer_key": PEER_KEY, "endpoint": "198.51.100.7:51820", "keepalive_s": 25},
        },
        "vpn_connections: {office: {network: front, prefixes: [192.168.10.0/24, 192.168.12.7], port: 51821,"
        f" peer_key: {PEER_KEY}, endpoint: '198.51.100.7:51820', keepalive_s: 25}}}}",
        "office",
        "192.168.10.0/24, 192.168.12.7/32 by UDP port 51821, peer at 198.51.100.7:51820, our key ",
    ),
    "peering": ({"neighbour": "globex"}, "peerings: [globex]", "globex", "with globex"),
}


def _in_file(folder: Path, text: str) -> tuple[VpcSpec, ...]:
    file = folder / "tenant.yml"
    file.write_text(f"version: 1\ntenant: acme\n{text}\n")
    (tenant,) = read_tenant_files(file, default_backend=Backend.OVN)
    return tenant.objects


@pytest.mark.parametrize("kind", LISTED)
def test_a_command_and_a_tenants_file_make_equal_objects(kind: VpcKind, tmp_path: Path) -> None:
    given, text, name, summary = GIVEN[kind]
    made = KIND_OF[kind].read(given)
    assert _in_file(tmp_path, text) == (made,)
    assert (made.kind, made.key, describe(made)) == (kind, name, summary)
    assert is_same(made, made)
    assert list_differences(made, made) == []


def test_every_kind_has_its_commands_and_every_command_its_kind() -> None:
    wanted = {f"{verb}-{kind}" for kind in LISTED for verb in ("create", "delete")}
    wanted |= {f"set-{one.kind}" for one in KINDS if one.changed or (one.changed_list and not one.item_name)}
    wanted |= {f"{verb}-{one.item_name}" for one in KINDS if one.item_name for verb in ("create", "delete")}
    assert wanted | {"list-vpc-objects"} == {name for name, module in MADE_BY.items() if module == "vpc_objects"}
    for name in wanted:
        assert make(name, "A sentence.").get_short_help_str() == "A sentence."


def test_differences_are_told_by_the_keys_of_a_file_and_leave_out_given_addresses(tmp_path: Path) -> None:
    (there,) = _in_file(tmp_path, "load_balancers: {shop: {network: front, port: 80, vms: [a]}}")
    (wanted,) = _in_file(tmp_path, "load_balancers: {shop: {network: front, port: 80, vms: [b], interval_s: 9}}")
    assert list_differences(there, wanted) == ["vms: a there, b wanted", "interval_s: 5 there, 9 wanted"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("security_groups:\n  web: [{ports: 80}]", "4: a rule has ports, and any has none"),
        ("security_groups:\n  web: ['icmp:8']", "4: file.security_groups.web[0]: '8' is not a type of ICMP"),
        ("security_groups:\n  web: [{protocol: icmp, ports: 8}]", "4: a rule has ports, and icmp has none"),
        ("security_groups:\n  web: [{protocol: tcp, type: echo-request}]", "4: a rule has an ICMP type, and tcp has"),
        ("security_groups:\n  web: [{protocol: icmp, type: 8}]", "4: file.security_groups.web[0].type"),
        ("security_groups:\n  web: [{protocol: tcp, ports: 9-8}]", "4: file.security_groups.web[0].ports: '9-8'"),
        ("security_groups:\n  web: [{priority: 0}]", "4: file.security_groups.web[0].priority is 0"),
        ("security_groups:\n  web: [{priority: 1001}]", "4: file.security_groups.web[0].priority is 1001"),
        ("security_groups:\n  web: [{log: 0}]", "4: file.security_groups.web[0].log is 0"),
        ("security_groups:\n  web: [{action: drop}]", "4: file.security_groups.web[0].action is 'drop'"),
        (
            "security_groups:\n  web: [{action: deny, stateless: true}]",
            "4: a rule is stateless, and its action is deny",
        ),
        ("security_groups:\n  web: [{from: 10.0.0.0/8, to: 10.0.0.0/8}]", "4: file.security_groups.web[0] has both"),
        ("security_groups:\n  web: [{direction: egress, from: 10.0.0.0/8}]", "4: file.security_groups.web[0].from is"),
        ("security_groups:\n  web: [{direction: ingress, to: 10.0.0.0/8}]", "4: file.security_groups.web[0].to is"),
        ("security_groups:\n  web: [any, 'deny:any']", "4: two rules of security group web are about the same traffic"),
        ("address_groups:\n  a: [group:web]", "4: file.address_groups.a[0]: 'group:web' is not a network"),
        ("egress_policy: maybe", "3: file.egress_policy is 'maybe'"),
        ("security_groups:\n  web: [{protcol: tcp}]", "4: file.security_groups.web[0].protcol is not a key"),
        ("security_groups:\n  web: [{ports: 0}]", "4: file.security_groups.web[0].ports: '0' is not a port"),
        ("security_groups:\n  a b: []", "4: name 'a b'"),
        ("load_balancers:\n  shop: {port: 80, vms: [a]}", "4: file.load_balancers.shop has no 'network'"),
        ("load_balancers:\n  shop: {network: n, port: 80, vms: [a b]}", "4: file.load_balancers.shop.vms[0] 'a b'"),
        ("routes:\n  10.66.0.1/16: [fw-1]", "4: prefix '10.66.0.1/16' is not a network"),
        ("routes:\n  10.66.0.0/16: []", "4: file.routes.10.66.0.0/16 is an empty list"),
        ("routes:\n  10.66.0.0/16: [discard, fw-1]", "4: route 10.66.0.0/16 drops its packets (`discard`) and"),
        ("routes:\n  10.66.0.0/16: [a b]", "4: file.routes.10.66.0.0/16[0] 'a b'"),
        ("routes:\n  10.66.0.0/16: [fw-1@a b]", "4: file.routes.10.66.0.0/16[0]: network 'a b'"),
        ("routes:\n  10.66.0.0/16: [fd00::9]", "4: route 10.66.0.0/16 and its next hop fd00::9 are of two IP versions"),
        ("routes:\n  fe80::/64: [fw-1]", "4: prefix fe80::/64: these are link-local addresses"),
        ("routes:\n  224.0.0.0/8: [fw-1]", "4: prefix 224.0.0.0/8: no router sends packets to 224.0.0.0/3"),
        ("routes:\n  anywhere: [fw-1]", "4: prefix 'anywhere' is not a network"),
        (
            "load_balancers:\n  s: {network: n, port: 80, vms: [a], weights: [a=0]}",
            "4: file.load_balancers.s.weights[0]",
        ),
        ("load_balancers:\n  s: {network: n, port: 80, vms: [a], weights: [a]}", "4: file.load_balancers.s.weights[0]"),
        (
            "load_balancers:\n  s: {network: n, port: 80, vms: [a], weights: [b=2]}",
            "4: load balancer s: VM b is drained",
        ),
        (
            "load_balancers:\n  s: {network: n, port: 80, vms: [a], draining: [b]}",
            "4: load balancer s: VM b is drained",
        ),
        (
            "load_balancers:\n  s: {network: n, port: 80, vms: [a], hash: random}",
            "4: file.load_balancers.s.hash is 'random'",
        ),
        (
            "load_balancers:\n  s: {network: n, port: 80, vms: [a], affinity_s: 65536}",
            "4: file.load_balancers.s.affinity_s",
        ),
        ("port_forwards:\n  - {protocol: icmp, port: 80, vm: a}", "4: file.port_forwards[0].protocol is 'icmp'"),
        ("port_forwards:\n  - {port: 65536, vm: a}", "4: file.port_forwards[0].port is 65536"),
        ("gateway: []", "3: file.gateway is a list"),
        ("vpn_connections:\n  a: {network: n}", "4: file.vpn_connections.a has no 'prefixes'"),
        ("vpn_connections:\n  a: {network: n, prefixes: []}", "4: file.vpn_connections.a.prefixes is an empty list"),
        (
            "vpn_connections:\n  a: {network: n, prefixes: [0.0.0.0/0]}",
            "4: file.vpn_connections.a.prefixes[0] 0.0.0.0/0",
        ),
        (
            "vpn_connections:\n  a: {network: n, prefixes: [192.168.1.0/24], peer_key: secret}",
            "4: file.vpn_connections.a.peer_key is not a key of WireGuard",
        ),
    ],
)
def test_a_wrong_object_is_refused_with_its_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InventoryError) as caught:
        _in_file(tmp_path, text)
    assert f"tenant.yml:{said}" in caught.value.message


RULES = {
    "tcp:80": "{protocol: tcp, ports: 80}",
    "any": "{}",
    "egress:tcp:443@addresses:partners": "{protocol: tcp, ports: 443, to: addresses:partners}",
    "egress:deny:any": "{direction: egress, action: deny}",
    "reject:icmp:echo-request@group:web,priority=7": (
        "{action: reject, protocol: icmp, type: echo-request, from: group:web, priority: 7}"
    ),
    "udp:53,stateless,log": "{protocol: udp, ports: 53, stateless: true, log: true}",
    "udp,log=5": "{protocol: udp, log: 5}",
    "udp": "{protocol: udp, log: false, stateless: false}",
}


@pytest.mark.parametrize("line", RULES)
def test_a_rule_in_a_line_and_in_a_mapping_are_equal(line: str, tmp_path: Path) -> None:
    (group,) = _in_file(tmp_path, f"security_groups:\n  web: [{RULES[line]}, '{line}']")
    assert isinstance(group, SecurityGroup)
    assert [describe_rule(rule) for rule in group.rules] == [line], "one rule, written twice"


def test_the_page_has_every_part_of_a_rule_in_one_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "networks.md").read_text()
    table = page.partition("## Security rules")[2].partition("```")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")][2:]
    keys = re.findall(r"`([a-z]+)`", " ".join(row[1] for row in rows))
    assert keys == [field.key for field in RULE.fields]
    attributes = [row[2].strip("`") for row in rows]
    assert sorted(attributes) == sorted(field.name for field in dataclasses.fields(Rule))


def test_a_wrong_name_on_the_command_line_is_refused_with_its_flag() -> None:
    with pytest.raises(UsageError, match="default is 'maybe'"):
        KIND_OF[VpcKind.EGRESS_POLICY].read({"default": "maybe"})
    with pytest.raises(UsageError, match="--vm 'a b'"):
        KIND_OF[VpcKind.PORT_FORWARD].read({"forwarded": "80", "vm": "a b"})
    assert KIND_OF[VpcKind.PORT_FORWARD].name_in("8080") == "tcp/8080"
