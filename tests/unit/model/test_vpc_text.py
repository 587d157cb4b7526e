# SPDX-License-Identifier: Apache-2.0
"""Rules and forwarded ports as people write them."""

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.model.rule_text import describe_rule, parse_rule
from vgpuctl.model.security_rule import Direction, Protocol, Rule, RuleAction
from vgpuctl.model.vpc import PortProtocol, SecurityGroup
from vgpuctl.model.vpc_text import parse_forwarded

RULES = {
    "icmp": Rule(Protocol.ICMP),
    "any": Rule(),
    "tcp": Rule(Protocol.TCP),
    "tcp:80": Rule(Protocol.TCP, (80, 80)),
    "udp:8000-8010@10.9.0.0/24": Rule(Protocol.UDP, (8000, 8010), "10.9.0.0/24"),
    "any@group:web": Rule(source="group:web"),
    "tcp:80@fd00:1::/64": Rule(Protocol.TCP, (80, 80), "fd00:1::/64"),
    "icmp@::/0": Rule(Protocol.ICMP, source="::/0"),
    "any@0.0.0.0/0": Rule(source="0.0.0.0/0"),
    "icmp:echo-request": Rule(Protocol.ICMP, icmp_type=8),
    "icmp:type-255": Rule(Protocol.ICMP, icmp_type=255),
    "egress:deny:tcp:25@addresses:mail": Rule(
        Protocol.TCP, (25, 25), "addresses:mail", direction=Direction.EGRESS, action=RuleAction.DENY
    ),
    "reject:udp,priority=1,log": Rule(Protocol.UDP, action=RuleAction.REJECT, priority=1, log_per_s=10),
    "udp:53@group:web,priority=1000,stateless,log=1": Rule(
        Protocol.UDP, (53, 53), "group:web", priority=1000, stateless=True, log_per_s=1
    ),
}


@pytest.mark.parametrize("text", RULES)
def test_a_rule_is_read_and_written_alike(text: str) -> None:
    assert parse_rule(text) == RULES[text]
    assert describe_rule(RULES[text]) == text


def test_a_rule_has_one_normal_form() -> None:
    for text, normal in (
        ("ingress:allow:tcp:80-80", "tcp:80"),
        ("icmp:type-8", "icmp:echo-request"),
        ("any@192.0.2.7", "any@192.0.2.7/32"),
        ("tcp,log=10,priority=100", "tcp,log"),
    ):
        assert describe_rule(parse_rule(text)) == normal


NO_RULES = (
    *("", "http", "tcp:", "tcp:0", "tcp:65536", "tcp:80-70", "tcp:-80", "tcp:٨", "icmp:8", "any:80"),
    *("tcp:80@", "tcp@x/8", "tcp@10.0.0.1/8", "any@group:", "any@group:a b", "any@::1/0"),
    *("tcp@fd00::%1/64", "tcp@::ffff:10.0.0.0/120", "tcp@ff02::/16", "tcp@fd00:1::1/64"),
    *(
        "egress",
        "egress:",
        "deny:egress:tcp",
        "tcp:1:2",
        "icmp:80",
        "icmp:type-256",
        "icmp:type-13@fd00::/8",
        "icmp:type-",
        "tcp:echo-request",
    ),
    *("tcp,priority=0", "tcp,priority=1001", "tcp,priority", "tcp,priority=-1", "tcp,priority=1,priority=2"),
    *("deny:tcp,stateless", "reject:tcp,stateless", "tcp,stateless=yes", "tcp,log=0", "tcp,log=1001", "tcp,log="),
    *("tcp,", "tcp, log", "any@addresses:", "any@addresses:a b"),
)


@pytest.mark.parametrize("text", NO_RULES)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_rule(text)


def test_a_source_that_is_any_is_none() -> None:
    assert parse_rule("tcp:80@any") == parse_rule("tcp:80")
    assert describe_rule(parse_rule("tcp:80@any")) == "tcp:80"


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("tcp:80", "deny:tcp:80", "differ in action: allow and deny ingress tcp of any"),
        ("deny:any,priority=7", "reject:any,priority=7", "with priority 7 and differ in action: deny and reject"),
        ("tcp:80", "tcp:80,stateless", "differ in logging or connection tracking"),
        ("tcp:80", "tcp:80,log", "differ in logging or connection tracking"),
    ],
)
def test_rules_of_equal_priority_that_contradict_each_other_are_refused(one: str, other: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        SecurityGroup("web", (parse_rule(one), parse_rule("udp"), parse_rule(other)))
    assert said in refused.value.message and "security group web" in refused.value.message


def test_rules_that_are_about_other_traffic_or_have_another_priority_do_not_contradict() -> None:
    texts = (
        "tcp:80",
        "deny:tcp:80,priority=101",
        "egress:deny:tcp:80",
        "deny:tcp:81",
        "deny:tcp:80@group:web",
        "tcp:80",
    )
    assert len(SecurityGroup("web", tuple(map(parse_rule, texts))).rules) == len(texts)


def test_a_forwarded_port_is_one_port_of_tcp_or_udp() -> None:
    assert [parse_forwarded(text) for text in ("8080", "tcp/8080", "udp/53")] == [
        (PortProtocol.TCP, 8080),
        (PortProtocol.TCP, 8080),
        (PortProtocol.UDP, 53),
    ]
    for text in ("", "/", "tcp/", "icmp/8", "any/80", "80-81", "sctp/80", "tcp/80/tcp"):
        with pytest.raises(UsageError):
            parse_forwarded(text)
