# SPDX-License-Identifier: Apache-2.0
"""Which security rule decides, which rules never match, and which VMs behind balancers answer no client."""

from dataclasses import replace

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.model.http_balancing import BalancerProtocol
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.network import Backend, Network, NetworkRequest, NetworkState, Port
from vgpuctl.model.rule_text import describe_rule, parse_rule
from vgpuctl.model.security_decisions import Traffic, decide, hidden_backends, parse_traffic, rules_that_never_match
from vgpuctl.model.security_rule import Direction, EgressDefault
from vgpuctl.model.vpc import AddressGroup, SecurityGroup, Vpc, VpcPort

NETWORK = Network("n", NetworkRequest("front", "acme", "10.0.0.0/24", backend=Backend.OVN), NetworkState.CREATED)


def _port(vm: str, number: int, *groups: str) -> VpcPort:
    return VpcPort(Port(vm, "n", vm, 0, f"52:00:00:00:00:{number:02x}", f"10.0.0.{number}"), vm, groups)


def _vpc(*rules: str) -> Vpc:
    """A tenant with a VM in `web`, one in `web` and `db`, and one in no group."""
    return Vpc(
        "acme",
        (NETWORK,),
        (_port("a", 2, "web"), _port("b", 3, "web", "db"), _port("c", 4)),
        (SecurityGroup("web", tuple(map(parse_rule, rules))), SecurityGroup("db"), SecurityGroup("lonely")),
        address_groups=(AddressGroup("partners", ("192.0.2.0/25", "10.0.0.9/32")), AddressGroup("empty")),
    )


@pytest.mark.parametrize(
    ("rules", "traffic", "decided"),
    [
        ((), "tcp/80", "deny "),
        (("tcp:80",), "tcp/80", "allow tcp:80"),
        (("tcp:79-81", "deny:tcp:80"), "tcp/80", "deny deny:tcp:80"),
        (("any,priority=101", "deny:tcp:80"), "tcp/80", "allow any,priority=101"),
        (("any", "reject:udp:53", "deny:udp:53,priority=99"), "udp/53", "reject reject:udp:53"),
        (("any", "deny:icmp:echo-reply"), "icmp", "allow any"),
        (("deny:icmp:echo-request", "any"), "icmp/echo-request", "deny deny:icmp:echo-request"),
        (("tcp@group:web",), "tcp/80", "deny "),
        (("tcp@group:default",), "tcp/80", "allow tcp@group:default"),
        (("tcp@addresses:partners",), "tcp/80", "deny "),
        (("egress:tcp:80",), "tcp/80", "deny "),
        (("egress:any,stateless",), "tcp/80", "allow egress:any,stateless"),
        (("egress:icmp:echo-request,stateless",), "icmp/echo-reply", "allow egress:icmp:echo-request,stateless"),
    ],
)
def test_the_rule_of_the_highest_rank_decides(rules: tuple[str, ...], traffic: str, decided: str) -> None:
    vpc = _vpc(*rules)
    found = decide(vpc, vpc.ports_by_vm["b"], Direction.INGRESS, "10.0.0.4", parse_traffic(traffic))
    assert f"{found.action} {'' if found.rule is None else describe_rule(found.rule)}" == decided
    assert (found.group, bool(found.reason)) == ((None, True) if found.rule is None else ("web", False))


def test_what_no_rule_is_about_has_the_tenant_s_default_and_a_vm_without_groups_its_own() -> None:
    vpc = _vpc("tcp:80")
    traffic = parse_traffic("tcp/80")
    for egress in EgressDefault:
        found = decide(replace(vpc, egress=egress), vpc.ports_by_vm["a"], Direction.EGRESS, "10.0.0.4", traffic)
        assert (str(found.action), str(egress) in found.reason) == (str(egress), True)
    found = decide(vpc, vpc.ports_by_vm["c"], Direction.INGRESS, "10.0.0.2", traffic)
    assert (str(found.action), found.reason) == ("deny", "no rule allows it")


@pytest.mark.parametrize(
    ("rules", "reasons"),
    [
        (("tcp:80", "tcp:443"), []),
        (("tcp", "tcp:80"), ["tcp:80 never matches: tcp decides first"]),
        (("tcp:80", "tcp"), ["tcp:80 never matches: tcp decides first"]),
        (("tcp:80", "any,priority=101"), ["tcp:80 never matches: any,priority=101 decides first"]),
        (("any", "deny:tcp:80"), []),
        (("deny:any", "tcp:80"), ["tcp:80 never matches: deny:any decides first"]),
        (("tcp:80", "deny:tcp:80,priority=200"), ["tcp:80 never matches: deny:tcp:80,priority=200 decides first"]),
        (("egress:any", "tcp:80"), []),
        (("any@10.0.0.0/8", "tcp@10.1.0.0/16"), ["tcp@10.1.0.0/16 never matches: any@10.0.0.0/8 decides first"]),
        (("any@10.1.0.0/16", "tcp@10.0.0.0/8"), []),
        (("icmp", "icmp:echo-request"), ["icmp:echo-request never matches: icmp decides first"]),
        (("icmp:echo-request", "icmp"), ["icmp:echo-request never matches: icmp decides first"]),
        (("tcp@192.0.2.0/24", "tcp@addresses:partners"), []),
        (
            ("tcp@0.0.0.0/0", "tcp@addresses:partners"),
            ["tcp@addresses:partners never matches: tcp@0.0.0.0/0 decides first"],
        ),
        (("any@0.0.0.0/0", "tcp@fd00::/8"), []),
        (("any@fd00::/8", "tcp@fd00:1::/64"), ["tcp@fd00:1::/64 never matches: any@fd00::/8 decides first"]),
        (("any@0.0.0.0/0", "any@::/0", "tcp"), []),
        (("tcp@group:lonely",), ["tcp@group:lonely never matches: security group lonely has no members"]),
        (("tcp@addresses:empty",), ["tcp@addresses:empty never matches: address group empty is empty"]),
        (("any@10.0.0.0/8", "tcp@group:web"), []),
        (("any", "tcp@group:web"), ["tcp@group:web never matches: any decides first"]),
    ],
)
def test_a_rule_that_never_matches_is_named(rules: tuple[str, ...], reasons: list[str]) -> None:
    assert [text for _group, text in rules_that_never_match(_vpc(*rules))] == reasons


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (("tcp:8080",), []),
        (("tcp:8080@10.9.0.0/24",), []),
        (
            ("any", "deny:tcp:8080@10.0.0.0/8"),
            ["rule deny:tcp:8080@10.0.0.0/8 of security group web is about the health"],
        ),
        (("any", "reject:any@10.0.0.254/32"), ["rule reject:any@10.0.0.254/32 of security group web"]),
        (("tcp:80",), ["no rule of VM a's security groups (web) allows tcp/8080"]),
    ],
)
def test_a_vm_behind_a_balancer_that_answers_no_client_is_named(rules: tuple[str, ...], said: list[str]) -> None:
    balancer = LoadBalancer("shop", "10.0.0.253", 80, BalancerProtocol.TCP, ("a", "later"), 8080, network="front")
    vpc = replace(_vpc(*rules), balancers=(balancer,))
    texts = list(dict.fromkeys(text for _kind, _name, text in hidden_backends(vpc)))
    assert len(texts) == len(said)
    assert all(text.startswith(one) for text, one in zip(texts, said, strict=True)), texts


def test_traffic_is_read_and_written_alike() -> None:
    for text, written in (("tcp/443", "tcp/443"), ("icmp", "icmp/echo-request"), ("icmp/type-42", "icmp/type-42")):
        assert str(parse_traffic(text)) == written
    assert parse_traffic("udp/53") == Traffic(parse_traffic("udp/1").protocol, 53)
    for text in ("", "tcp", "tcp/", "tcp/0", "any/80", "443", "tcp/80-81", "icmp/80", "icmp/", "tcp/443/tcp"):
        with pytest.raises(UsageError):
            parse_traffic(text)
