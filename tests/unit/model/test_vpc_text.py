# SPDX-License-Identifier: Apache-2.0
"""Rules and forwarded ports as people write them."""

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.model.vpc import PortProtocol, Protocol, Rule
from vgpuctl.model.vpc_text import describe_rule, parse_forwarded, parse_rule

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
}


@pytest.mark.parametrize("text", RULES)
def test_a_rule_is_read_and_written_alike(text: str) -> None:
    assert parse_rule(text) == RULES[text]
    assert describe_rule(RULES[text]) == text


NO_RULES = (
    *("", "http", "tcp:", "tcp:0", "tcp:65536", "tcp:80-70", "tcp:-80", "tcp:٨", "icmp:8", "any:80"),
    *("tcp:80@", "tcp@x/8", "tcp@10.0.0.1/8", "any@group:", "any@group:a b", "any@::1/0"),
    *("tcp@fd00::%1/64", "tcp@::ffff:10.0.0.0/120", "tcp@ff02::/16", "tcp@fd00:1::1/64"),
)


@pytest.mark.parametrize("text", NO_RULES)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_rule(text)


def test_a_source_that_is_any_is_none() -> None:
    assert parse_rule("tcp:80@any") == parse_rule("tcp:80")
    assert describe_rule(parse_rule("tcp:80@any")) == "tcp:80"


def test_a_forwarded_port_is_one_port_of_tcp_or_udp() -> None:
    assert [parse_forwarded(text) for text in ("8080", "tcp/8080", "udp/53")] == [
        (PortProtocol.TCP, 8080),
        (PortProtocol.TCP, 8080),
        (PortProtocol.UDP, 53),
    ]
    for text in ("", "/", "tcp/", "icmp/8", "any/80", "80-81", "sctp/80", "tcp/80/tcp"):
        with pytest.raises(UsageError):
            parse_forwarded(text)
